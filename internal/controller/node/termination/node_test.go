package termination

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

func nodeReconciler(f *controllertest.Fixture, e *ec2) *NodeReconciler {
	return &NodeReconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: e, Evictor: evictor(f), Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}
}

// leaving is a claim and its Node that are being deleted.
func leaving(change ...func(*karpv1.NodeClaim)) []client.Object {
	return []client.Object{
		controllertest.Claim("a", append([]func(*karpv1.NodeClaim){controllertest.Initialized, controllertest.Deleting}, change...)...),
		controllertest.ReadyNode("a", controllertest.DeletingNode, closed),
	}
}

// closed keeps new pods and load balancers away from a Node.
func closed(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: karpv1.TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}}
	n.Labels[corev1.LabelNodeExcludeBalancers] = "karpenter"
}

func drainedBefore(c *karpv1.NodeClaim) {
	condition.SetTrue(c, karpv1.ConditionDrained, controllertest.Start.Add(-time.Minute))
}

func deadlineIn(d time.Duration) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.Annotations[karpv1.AnnotationTerminationTimestamp] = controllertest.Start.Add(d).Format(time.RFC3339)
	}
}

func attachment(name, node, volume string) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.NodeName = node
	if volume != "" {
		a.Spec.Source.PersistentVolumeName = &volume
	}
	return a
}

func tolerating(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func mounting(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
		}
	}
}

func TestLeavingNode(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	pvc.Spec.VolumeName = "pv-1"
	onlyNode := []client.Object{controllertest.ReadyNode("a", controllertest.DeletingNode, closed)}
	silent := func(objects []client.Object) []client.Object {
		controllertest.NotReady(objects[len(objects)-1].(*corev1.Node))
		return objects
	}
	with := func(objects []client.Object, more ...client.Object) []client.Object { return append(objects, more...) }
	tests := []struct {
		name       string
		objects    []client.Object
		cloud      ec2
		gone       bool
		terminated int
		wait       time.Duration
		// conditions of the claim, as type=status/reason
		conditions []string
		event      string
	}{
		{
			name:       "pods are left",
			objects:    with(leaving(), controllertest.Pod("web", "node-a")),
			wait:       poll,
			conditions: []string{"Drained=Unknown/Draining"},
			event:      "FailedDraining Failed to drain node, 1 pods",
		},
		{
			name:       "nothing to drain: a while for a pod that is being bound",
			objects:    leaving(),
			wait:       poll,
			conditions: []string{"Drained=Unknown/Draining"},
		},
		{
			name: "drained: the instance goes", objects: leaving(drainedBefore), terminated: 1, wait: instancePoll,
			conditions: []string{"Drained=True/Drained", "InstanceTerminating=True/InstanceTerminating", "VolumesDetached=True/VolumesDetached"},
		},
		{
			name:       "the instance is gone: so may the Node",
			objects:    leaving(drainedBefore),
			cloud:      ec2{terminate: errGone},
			gone:       true,
			terminated: 1,
			conditions: []string{"Drained=True/Drained", "VolumesDetached=True/VolumesDetached"},
		},
		{
			name:       "a pod that tolerates the taint delays nothing",
			objects:    with(leaving(drainedBefore), controllertest.Pod("agent", "node-a", tolerating)),
			cloud:      ec2{terminate: errGone},
			gone:       true,
			terminated: 1,
			conditions: []string{"Drained=True/Drained", "VolumesDetached=True/VolumesDetached"},
		},
		{
			name: "a volume of a pod that stays holds nothing up, that of another does", wait: poll,
			objects: with(
				leaving(drainedBefore),
				attachment("va-1", "node-a", "pv-1"),
				attachment("va-2", "node-a", "pv-2"),
				pvc,
				controllertest.Pod("agent", "node-a", tolerating, mounting("data")),
			),
			conditions: []string{
				"Drained=True/Drained",
				"VolumesDetached=Unknown/AwaitingVolumeDetachment",
			}, event: "AwaitingVolumeDetachment Awaiting deletion of bound volumeattachments (va-2)",
		},
		{
			name: "a volume is attached", objects: with(leaving(drainedBefore), attachment("va-1", "node-a", "pv-1")), wait: poll,
			conditions: []string{
				"Drained=True/Drained",
				"VolumesDetached=Unknown/AwaitingVolumeDetachment",
			}, event: "AwaitingVolumeDetachment Awaiting deletion of bound volumeattachments (va-1)",
		},
		{
			name: "a volume of a pod that stays, of another node, of no volume", terminated: 1, wait: instancePoll,
			objects: with(
				leaving(drainedBefore),
				attachment("va-1", "node-a", "pv-1"),
				attachment("va-2", "node-b", "pv-2"),
				attachment("va-3", "node-a", ""),
				pvc,
				controllertest.Pod("agent", "node-a", tolerating, mounting("data"), mounting("data")),
			),
			conditions: []string{"Drained=True/Drained", "InstanceTerminating=True/InstanceTerminating", "VolumesDetached=True/VolumesDetached"},
		},
		{
			name: "the volume is still attached at the deadline", objects: with(leaving(drainedBefore, deadlineIn(-time.Second)),
				attachment("va-1", "node-a", "pv-1")), terminated: 1, wait: instancePoll,
			conditions: []string{
				"Drained=True/Drained",
				"InstanceTerminating=True/InstanceTerminating",
				"VolumesDetached=False/TerminationGracePeriodElapsed",
			},
		},
		{name: "no claim: drained in one pass, no instance call", objects: onlyNode, gone: true},
		{
			name:    "no claim, and a pod is left",
			objects: with(onlyNode, controllertest.Pod("web", "node-a")),
			wait:    poll,
			event:   "FailedDraining Failed to drain node, 1 pods",
		},
		{
			name:    "two claims: as if there were none",
			objects: with(leaving(), controllertest.Claim("b", func(c *karpv1.NodeClaim) { c.Status.ProviderID = "aws:///us-east-1a/i-a" })),
			gone:    true,
		},
		{
			name:    "silent, the instance is gone, pods are left",
			objects: with(silent(leaving()), controllertest.Pod("web", "node-a")),
			cloud:   ec2{get: cloudprovider.ErrNotFound},
			gone:    true,
		},
		{
			name:       "silent, but the instance is there",
			objects:    with(silent(leaving()), controllertest.Pod("web", "node-a")),
			wait:       poll,
			conditions: []string{"Drained=Unknown/Draining"},
		},
		{
			name:       "silent, while the cloud fails: it is drained",
			objects:    with(silent(leaving()), controllertest.Pod("web", "node-a")),
			cloud:      ec2{get: errors.New("InternalError")},
			wait:       poll,
			conditions: []string{"Drained=Unknown/Draining"},
			event:      "FailedDraining Failed to drain node, 1 pods",
		},
		{
			name:       "Ready, though the instance is gone",
			objects:    with(leaving(), controllertest.Pod("web", "node-a")),
			cloud:      ec2{get: cloudprovider.ErrNotFound},
			wait:       poll,
			conditions: []string{"Drained=Unknown/Draining"},
		},
		{name: "not deleted", objects: []client.Object{controllertest.Claim("a", controllertest.Initialized), controllertest.ReadyNode("a")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.objects...)
			result := f.Reconcile(nodeReconciler(f, &tt.cloud), "node-a")
			if gone := f.Node("node-a") == nil; gone != tt.gone || result.RequeueAfter != tt.wait {
				t.Errorf("gone %v, is requeued after %v; want %v, %v", gone, result.RequeueAfter, tt.gone, tt.wait)
			}
			if len(tt.cloud.terminated) != tt.terminated {
				t.Errorf("instances terminated: %v, want %d", tt.cloud.terminated, tt.terminated)
			}
			if diff := cmp.Diff(tt.conditions, drainConditions(f.Claim("a"))); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

func drainConditions(c *karpv1.NodeClaim) []string {
	if c == nil {
		return nil
	}
	var out []string
	for _, typ := range []string{karpv1.ConditionDrained, karpv1.ConditionInstanceTerminating, karpv1.ConditionVolumesDetached} {
		if got, ok := condition.Get(c, typ); ok {
			out = append(out, typ+"="+string(got.Status)+"/"+got.Reason)
		}
	}
	return out
}

func TestNodeOfNobody(t *testing.T) {
	t.Run("a Node that is not managed is not touched", func(t *testing.T) {
		f := controllertest.New(
			t,
			controllertest.ReadyNode("a", controllertest.DeletingNode, func(n *corev1.Node) { delete(n.Labels, awsv1.LabelNodeClass) }),
			controllertest.Pod("web", "node-a"),
		)
		before, e := f.Node("node-a"), &ec2{}
		r := nodeReconciler(f, e)
		if result := f.Reconcile(r, "node-a"); result.RequeueAfter > 0 || len(e.terminated)+len(r.Evictor.requests) > 0 {
			t.Errorf("is requeued after %v; instances terminated %v, evictions %v", result.RequeueAfter, e.terminated, r.Evictor.requests)
		}
		if diff := cmp.Diff(before, f.Node("node-a")); diff != "" {
			t.Errorf("Node (-before +after):\n%s", diff)
		}
	})
}

func TestLeavingNodeIsClosedFirst(t *testing.T) {
	t.Run("the node is cordoned before the first eviction", closedFirst)
	t.Run("nor when a budget lets no pod go", closedThoughHeld)
}

func closedThoughHeld(t *testing.T) {
	objects := append(leaving(), controllertest.Pod("web", "node-a"))
	node := objects[1].(*corev1.Node)
	node.Spec.Taints = nil
	delete(node.Labels, corev1.LabelNodeExcludeBalancers)
	f := controllertest.New(t, objects...)
	r := nodeReconciler(f, &ec2{})
	var c calls
	r.Evictor.Client = refusing(f, &c, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "pdb"))
	r.Evictor.Guard = destroytest.Guard(r.Evictor.Client, f.Now)
	f.Reconcile(r, "node-a")
	n := f.Node("node-a")
	if diff := cmp.Diff([]string{"karpenter.sh/disrupted:NoSchedule"}, controllertest.Taints(n)); diff != "" ||
		n.Labels[corev1.LabelNodeExcludeBalancers] != "karpenter" ||
		c.evictions > 0 {
		t.Errorf("%d evictions, labels %v, taints (-want +got):\n%s", c.evictions, n.Labels, diff)
	}
	f.Reconcile(r, "node-a")
	r.Evictor.work(t.Context())
	if c.evictions != 1 || !f.Get(controllertest.Pod("web", "node-a")) {
		t.Errorf("%d evictions, want one that is refused", c.evictions)
	}
}

func closedFirst(t *testing.T) {
	objects := append(leaving(), controllertest.Pod("web", "node-a"))
	node := objects[1].(*corev1.Node)
	node.Spec.Taints = []corev1.Taint{
		{Key: karpv1.TaintKeyDisrupted, Effect: corev1.TaintEffectNoExecute},
		{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
	}
	delete(node.Labels, corev1.LabelNodeExcludeBalancers)
	f := controllertest.New(t, objects...)
	r := nodeReconciler(f, &ec2{})
	f.Reconcile(r, "node-a")
	n := f.Node("node-a")
	if diff := cmp.Diff([]string{"karpenter.sh/disrupted:NoSchedule", "theirs:NoSchedule"}, controllertest.Taints(n)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if n.Labels[corev1.LabelNodeExcludeBalancers] != "karpenter" {
		t.Errorf("labels %v", n.Labels)
	}
	if len(r.Evictor.requests) > 0 {
		t.Error("a pod is evicted before the taint was observed")
	}
	version := n.ResourceVersion
	f.Reconcile(r, "node-a")
	if len(r.Evictor.requests) != 1 {
		t.Errorf("%d pods are evicted, want one", len(r.Evictor.requests))
	}
	if f.Node("node-a").ResourceVersion != version {
		t.Error("written again, though nothing has changed")
	}
}

func TestDrainTakesItsTime(t *testing.T) {
	t.Run("five seconds with nothing to drain, then the instance is terminated", drainsFiveSeconds)
}

func drainsFiveSeconds(t *testing.T) {
	f := controllertest.New(t, leaving()...)
	e := &ec2{}
	r := nodeReconciler(f, e)
	for range 5 {
		f.Reconcile(r, "node-a")
		if len(e.terminated) > 0 {
			t.Fatalf("instance terminated after %v", f.Clock.Sub(controllertest.Start))
		}
		f.Clock = f.Clock.Add(time.Second)
	}
	f.Reconcile(r, "node-a")
	if len(e.terminated) != 1 {
		t.Error("nothing to drain for five seconds, and the instance is not terminated")
	}
}

func TestDeletedNodeTakesItsClaimAlong(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a", controllertest.DeletingNode, closed),
	)
	e := &ec2{}
	// The claim that was read is out of date once it is deleted: what was found out is written next time.
	if _, err := f.Try(nodeReconciler(f, e), "node-a"); err != nil && !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if f.Claim("a").DeletionTimestamp == nil {
		t.Error("the claim stays, and would be given a node again")
	}
	if f.Node("node-a") == nil || len(e.terminated) > 0 {
		t.Error("gone without a drain")
	}
}

// A claim with a finalizer that somebody has removed by force is gone though the cache still shows it. Its node has not been
// drained by that.
func TestClaimThatVanishesDuringTheDrain(t *testing.T) {
	f := controllertest.New(t, append(leaving(), controllertest.Pod("web", "node-a"))...)
	r := nodeReconciler(f, &ec2{})
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return apierrors.NewNotFound(schema.GroupResource{Group: karpv1.GroupVersion.Group, Resource: "nodeclaims"}, "a")
		},
	})
	result := f.Reconcile(r, "node-a")
	if f.Node("node-a") == nil || result.RequeueAfter != poll {
		t.Errorf("the node is removed with a pod on it; is requeued after %v", result.RequeueAfter)
	}
}

// A cloud that fails keeps no node from being drained, and is no reason to believe that its instance is gone.
func TestNodeIsDrainedWhileTheCloudFails(t *testing.T) {
	failed := errors.New("throttled")
	objects := leaving(drainedBefore)
	controllertest.NotReady(objects[1].(*corev1.Node))
	f := controllertest.New(t, objects...)
	e := &ec2{get: failed, terminate: []error{failed}}
	if _, err := f.Try(nodeReconciler(f, e), "node-a"); !errors.Is(err, failed) || f.Node("node-a") == nil || len(e.terminated) != 1 {
		t.Errorf("error %v, %d attempts to terminate: whether the instance is gone is not known", err, len(e.terminated))
	}
}

// While the cloud does not answer the call that terminates the instance, the claim shows soon that its node is drained.
func TestDrainShowsWhileTheTerminationHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controllertest.New(t, leaving(func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionDrained, condition.Because("Draining", ""), controllertest.Start.Add(-time.Minute))
		})...)
		began := time.Now()
		_, err := f.Try(nodeReconciler(f, &ec2{hangs: true}), "node-a")
		if took := time.Since(began); err == nil || took > terminateTimeout {
			t.Errorf("error %v after %v", err, took)
		}
		if !condition.IsTrue(f.Claim("a"), karpv1.ConditionDrained) || f.Node("node-a") == nil {
			t.Errorf("conditions %+v", f.Claim("a").Status.Conditions)
		}
	})
}

// A deadline that nobody can read is none: node and claim go as they would without it, and somebody reports it. One of
// long ago or far away is one.
func TestNodeWithAnOddDeadlineGoesAllTheSame(t *testing.T) {
	grace := func(c *karpv1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour} }
	endless := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64)) }
	tests := []struct {
		name, deadline string
		change         func(*karpv1.NodeClaim)
		pod            func(*corev1.Pod)
		says           string
		// forced pods are deleted, others are evicted.
		forced bool
		// stands holds what the annotation is afterwards.
		stands string
	}{
		{name: "malformed", deadline: "soon", says: "InvalidTerminationTimestamp", stands: "soon"},
		{
			name:     "malformed, of a claim with a grace period",
			deadline: "2026-03-14 12:00",
			change:   grace,
			says:     "InvalidTerminationTimestamp",
			stands:   "2026-03-14T13:00:00Z",
		},
		{name: "number of seconds", deadline: "1773489600", says: "InvalidTerminationTimestamp", stands: "1773489600"},
		{
			name:     "long ago",
			deadline: "0001-01-01T00:00:00Z",
			forced:   true,
			says:     "TerminationGracePeriodExpiring",
			stands:   "0001-01-01T00:00:00Z",
		},
		{name: "far away", deadline: "9999-12-31T23:59:59Z", says: "TerminationGracePeriodExpiring", stands: "9999-12-31T23:59:59Z"},
		{
			name:     "near, and a pod that may take forever",
			deadline: "2026-03-14T13:00:00Z",
			pod:      endless,
			forced:   true,
			says:     "TerminationGracePeriodExpiring",
			stands:   "2026-03-14T13:00:00Z",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			odd := func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationTerminationTimestamp] = tt.deadline }
			pod := controllertest.Pod("web", "node-a", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30)) })
			objects := leaving(odd)
			if tt.change != nil {
				tt.change(objects[0].(*karpv1.NodeClaim))
			}
			if tt.pod != nil {
				tt.pod(pod)
			}
			f := controllertest.New(t, append(objects, pod)...)
			cloud := &ec2{terminate: errGone}
			claims, nodes := claimReconciler(f, cloud), nodeReconciler(f, cloud)
			f.Reconcile(claims, "a")
			f.Reconcile(nodes, "node-a")
			if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, tt.says) {
				t.Errorf("events\n%s\nwant %s", events, tt.says)
			}
			if c := f.Claim("a"); c == nil || c.Annotations[karpv1.AnnotationTerminationTimestamp] != tt.stands {
				t.Errorf("claim %+v, want deadline %q", c, tt.stands)
			}
			ask := nodes.Evictor.requests[podKey{"shop", "web", "uid-web"}]
			if forced := drain.Overdue(pod, ask.deadline, f.Now()); ask.node == nil || forced != tt.forced {
				t.Errorf("eviction %+v, forced %v, want %v", ask, forced, tt.forced)
			}
			f.Do(f.API.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
			for range 8 {
				f.Clock = f.Clock.Add(5 * time.Second)
				if f.Node("node-a") != nil {
					f.Reconcile(nodes, "node-a")
				}
				if f.Claim("a") != nil {
					f.Reconcile(claims, "a")
				}
			}
			if f.Node("node-a") != nil || f.Claim("a") != nil {
				t.Errorf("node there: %v, claim there: %v", f.Node("node-a") != nil, f.Claim("a") != nil)
			}
		})
	}
}

// Pods are evicted tier by tier, with the reason of their node's disruption.
func TestDrainAsksTheEvictor(t *testing.T) {
	f := controllertest.New(t, append(leaving(func(c *karpv1.NodeClaim) {
		condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("Empty", "Empty"), controllertest.Start)
	}), controllertest.Pod("web", "node-a"), controllertest.Pod("agent", "node-a", controllertest.OwnedByDaemonSet), controllertest.Pod("elsewhere", "node-b"))...)
	r := nodeReconciler(f, &ec2{})
	f.Reconcile(r, "node-a")
	var requested []string
	for key, ask := range r.Evictor.requests {
		requested = append(requested, key.name+" "+ask.cause.String())
	}
	slices.Sort(requested)
	if diff := cmp.Diff([]string{"web Empty"}, requested); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
}

// A pause of deletions stops a drain that has begun: neither pods nor Node nor instance go before a person resumes deletions.
func TestADrainStopsWhileDeletionsArePaused(t *testing.T) {
	held := func(c *karpv1.NodeClaim) {
		if err := c.SetDeletionCause(karpv1.DeletionCause{Kind: string(destroy.Planned), Reason: "Drifted"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, objects := range map[string][]client.Object{
		"with pods":   append(leaving(held), controllertest.Pod("web", "node-a")),
		"drained":     leaving(held, drainedBefore),
		"not started": {controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, held), controllertest.ReadyNode("a")},
	} {
		t.Run(name, func(t *testing.T) {
			f := controllertest.New(t, objects...)
			e := &ec2{}
			nodes, claims := nodeReconciler(f, e), claimReconciler(f, e)
			nodes.Guard = destroytest.Paused(f.API, f.Now, "general")
			claims.Guard = nodes.Guard
			if _, err := f.Try(nodes, "node-a"); name != "not started" && !destroy.IsPaused(err) {
				t.Errorf("node: %v", err)
			}
			if _, err := f.Try(claims, "a"); !destroy.IsPaused(err) {
				t.Errorf("claim: %v", err)
			}
			if deleting := f.Node("node-a").DeletionTimestamp != nil; deleting != (name != "not started") || len(nodes.Evictor.requests) > 0 {
				t.Errorf("Node is being deleted: %v, evictions %v", deleting, nodes.Evictor.requests)
			}
		})
	}
}
