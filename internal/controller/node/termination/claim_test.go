package termination

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// ec2 answers calls about one instance from a script; the last answer is repeated.
type ec2 struct {
	get        error
	terminate  []error
	orphans    []cloudprovider.Instance
	terminated []string
	// hangs has Terminate return only when its context is done.
	hangs bool
}

func (e *ec2) Get(context.Context, string) (cloudprovider.Instance, error) {
	return cloudprovider.Instance{}, e.get
}

func (e *ec2) Terminate(ctx context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	e.terminated = append(e.terminated, providerID)
	if e.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if len(e.terminate) == 0 {
		return nil
	}
	answer := e.terminate[0]
	if len(e.terminate) > 1 {
		e.terminate = e.terminate[1:]
	}
	return answer
}

func (e *ec2) FindByClaim(context.Context, *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	return e.orphans, nil
}

func claimReconciler(f *controllertest.Fixture, e *ec2) *ClaimReconciler {
	return &ClaimReconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: e, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}
}

var errGone = []error{cloudprovider.ErrNotFound}

func TestDeletedClaim(t *testing.T) {
	grace := func(c *karpv1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour} }
	theirs := func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }
	mark := func(c *karpv1.NodeClaim) {
		c.Annotations[karpv1.AnnotationTerminationTimestamp] = controllertest.Start.Format(time.RFC3339)
	}
	second := func(name string) *corev1.Node {
		return controllertest.ReadyNode("a", func(n *corev1.Node) { n.Name = name })
	}
	tests := []struct {
		name  string
		claim *karpv1.NodeClaim
		nodes []client.Object
		cloud ec2
		// gone: the finalizer was removed. terminated: the instances that the cloud terminated.
		gone       bool
		terminated []string
		wait       time.Duration
		deleted    []string // Nodes
		deadline   string
	}{
		{name: "before launch", claim: controllertest.Claim("a", controllertest.Deleting), gone: true},
		{
			name:  "before launch, Nodes without provider ID are there",
			claim: controllertest.Claim("a", controllertest.Deleting),
			nodes: []client.Object{controllertest.ReadyNode("x", func(n *corev1.Node) { n.Spec.ProviderID = "" })},
			gone:  true,
		},
		{
			name: "before its launch was written down: the instance is found", claim: controllertest.Claim("a", controllertest.Deleting),
			cloud: ec2{orphans: []cloudprovider.Instance{{ProviderID: "orphan"}}}, terminated: []string{"orphan"}, wait: instancePoll,
		},
		{
			name:       "launched, not registered: the instance goes, the Node stays",
			claim:      controllertest.Claim("a", controllertest.Launched, controllertest.Deleting),
			nodes:      []client.Object{controllertest.JoinedNode("a")},
			terminated: []string{"aws:///us-east-1a/i-a"},
			wait:       instancePoll,
		},
		{
			name:    "registered, but not recorded: its Node is drained",
			claim:   controllertest.Claim("a", controllertest.Launched, controllertest.Deleting),
			nodes:   []client.Object{controllertest.ReadyNode("a")},
			deleted: []string{"node-a"},
		},
		{
			name:    "all Nodes of the instance go first",
			claim:   controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			nodes:   []client.Object{controllertest.ReadyNode("a"), second("node-b"), second("node-c")},
			deleted: []string{"node-a", "node-b", "node-c"},
		},
		{
			name:    "a Node is finalizing",
			claim:   controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			nodes:   []client.Object{controllertest.ReadyNode("a", controllertest.DeletingNode)},
			deleted: []string{"node-a"},
		},
		{
			name:       "the instance is being deleted",
			claim:      controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			terminated: []string{"aws:///us-east-1a/i-a"},
			wait:       instancePoll,
		},
		{
			name:       "the instance is gone",
			claim:      controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			cloud:      ec2{terminate: errGone},
			gone:       true,
			terminated: []string{"aws:///us-east-1a/i-a"},
		},
		{
			name:       "no grace period, no deadline",
			claim:      controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			terminated: []string{"aws:///us-east-1a/i-a"},
			wait:       instancePoll,
		},
		{
			name:     "a deadline comes first",
			claim:    controllertest.Claim("a", controllertest.Registered, controllertest.Deleting, grace),
			nodes:    []client.Object{controllertest.ReadyNode("a")},
			deadline: "2026-03-14T13:00:00Z",
		},
		{
			name:     "an existing deadline stands",
			claim:    controllertest.Claim("a", controllertest.Registered, controllertest.Deleting, grace, mark),
			nodes:    []client.Object{controllertest.ReadyNode("a")},
			deadline: "2026-03-14T12:00:00Z",
			deleted:  []string{"node-a"},
		},
		{
			name:  "another provider's",
			claim: controllertest.Claim("a", controllertest.Registered, controllertest.Deleting, theirs),
			nodes: []client.Object{controllertest.ReadyNode("a")},
		},
		{
			name:  "not deleted",
			claim: controllertest.Claim("a", controllertest.Registered),
			nodes: []client.Object{controllertest.ReadyNode("a")},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.nodes, tt.claim)...)
			result := f.Reconcile(claimReconciler(f, &tt.cloud), "a")
			c := f.Claim("a")
			if gone := c == nil; gone != tt.gone || result.RequeueAfter != tt.wait {
				t.Errorf("gone %v, is requeued after %v; want %v, %v", gone, result.RequeueAfter, tt.gone, tt.wait)
			}
			if diff := cmp.Diff(tt.terminated, tt.cloud.terminated); diff != "" {
				t.Errorf("instances (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.deleted, deletedNodes(f)); diff != "" {
				t.Errorf("Nodes (-want +got):\n%s", diff)
			}
			for _, n := range tt.nodes { // those that are deleted have a finalizer, and wait for their drain
				if !f.Get(n) {
					t.Errorf("Node %s is gone", n.GetName())
				}
			}
			if c != nil && c.Annotations[karpv1.AnnotationTerminationTimestamp] != tt.deadline {
				t.Errorf("annotations %v, want deadline %q", c.Annotations, tt.deadline)
			}
		})
	}
}

func deletedNodes(f *controllertest.Fixture) []string {
	var list corev1.NodeList
	f.Do(f.API.List(f.Context(), &list))
	var out []string
	for _, n := range list.Items {
		if n.DeletionTimestamp != nil {
			out = append(out, n.Name)
		}
	}
	return out
}

func TestClaimWaitsForItsNodes(t *testing.T) {
	t.Run("the instance and the claim wait for the last of three Nodes", func(t *testing.T) {
		last := controllertest.ReadyNode("a", controllertest.DeletingNode, func(n *corev1.Node) { n.Name = "node-c" })
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered, controllertest.Deleting), last)
		e := &ec2{terminate: errGone}
		r := claimReconciler(f, e)
		if f.Reconcile(r, "a"); f.Claim("a") == nil || len(e.terminated) > 0 {
			t.Errorf("claim %v, instances terminated %v, though a Node exists", f.Claim("a"), e.terminated)
		}
		f.Do(f.API.Patch(f.Context(), f.Node("node-c"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		if f.Reconcile(r, "a"); f.Claim("a") != nil || len(e.terminated) != 1 {
			t.Errorf("claim %v, instances terminated %v, though all Nodes are gone", f.Claim("a"), e.terminated)
		}
	})
}

// One claim's termination, step by step.
// A claim with an instance that cannot be terminated reports why, whether the Node or the claim was deleted.
func TestInstanceThatCannotBeEnded(t *testing.T) {
	protected := errors.New("OperationNotPermitted: the instance may not be terminated")
	why := func(f *controllertest.Fixture) string {
		c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInstanceTerminating)
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	const want = "Unknown FailedTermination Terminating instance aws:///us-east-1a/i-a failed: OperationNotPermitted: the instance may not be terminated"
	t.Run("after its node has gone", func(t *testing.T) {
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting))
		e := &ec2{terminate: []error{protected, nil}}
		r := claimReconciler(f, e)
		if _, err := f.Try(r, "a"); err == nil || why(f) != want {
			t.Errorf("error %v, condition %q, want %q", err, why(f), want)
		}
		if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, "FailedTermination") {
			t.Errorf("events %q", events)
		}
		if f.Reconcile(r, "a"); !condition.IsTrue(f.Claim("a"), karpv1.ConditionInstanceTerminating) {
			t.Errorf("it is being deleted now, condition %q", why(f))
		}
	})
	t.Run("before", func(t *testing.T) {
		f := controllertest.New(t, leaving(drainedBefore)...)
		e := &ec2{terminate: []error{protected, nil, errors.New("throttled")}}
		r := nodeReconciler(f, e)
		if _, err := f.Try(r, "node-a"); err == nil || why(f) != want {
			t.Errorf("error %v, condition %q, want %q", err, why(f), want)
		}
		events := f.RecordedEvents()
		if len(events) != 2 || !strings.Contains(events[0], "FailedTermination") || !strings.Contains(events[1], "FailedTermination") {
			t.Errorf("events %q, want one on the Node and one on the claim", events)
		}
		f.Reconcile(r, "node-a")
		if _, err := f.Try(r, "node-a"); err == nil || !condition.IsTrue(f.Claim("a"), karpv1.ConditionInstanceTerminating) {
			t.Errorf("error %v: it is shutting down, whatever one call returns, condition %q", err, why(f))
		}
	})
}

func TestInstanceEnds(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, func(c *karpv1.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("50000")}
	}))
	e := &ec2{terminate: []error{errors.New("throttled"), nil, nil, cloudprovider.ErrNotFound}}
	r := claimReconciler(f, e)
	t.Run("the call fails once", func(t *testing.T) {
		if _, err := f.Try(r, "a"); err == nil {
			t.Error("the error is not returned")
		}
	})
	t.Run("InstanceTerminating leaves Ready as it is", func(t *testing.T) {
		f.Reconcile(r, "a")
		if c := f.Claim("a"); !condition.IsTrue(c, karpv1.ConditionInstanceTerminating) || condition.IsUnknown(c, condition.Ready) {
			t.Errorf("conditions %+v", c.Status.Conditions)
		}
	})
	t.Run("still there at the next poll", func(t *testing.T) {
		if result := f.Reconcile(r, "a"); result.RequeueAfter != instancePoll || f.Claim("a") == nil {
			t.Errorf("is requeued after %v", result.RequeueAfter)
		}
	})
	t.Run("a quantity that the API writes otherwise does not keep it", func(t *testing.T) {
		f.Reconcile(r, "a")
		if f.Claim("a") != nil {
			t.Error("the instance is gone, the claim is not")
		}
	})
}
