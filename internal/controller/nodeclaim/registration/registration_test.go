package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

const (
	dedicated, starting = "example.com/own:NoSchedule", "example.com/starting:NoExecute"
	unregisteredT       = "karpenter.sh/unregistered:NoExecute"
)

func theClaim(change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	return controllertest.Claim("a", append([]func(*karpv1.NodeClaim){controllertest.Launched, func(c *karpv1.NodeClaim) {
		c.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}}
		c.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/starting", Effect: corev1.TaintEffectNoExecute}}
		c.Labels["both"] = "claim"
		c.Annotations = map[string]string{"both": "claim", karpv1.AnnotationNominatedPods: "pod-1"}
	}}, change...)...)
}

func reconciler(f *controllertest.Fixture) *Reconciler {
	return &Reconciler{
		Client:  f.API,
		Live:    f.API,
		Health:  health.NewTracker(f.API, f.Now),
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     f.Now,
	}
}

func TestRegister(t *testing.T) {
	f := controllertest.New(t, theClaim(), controllertest.JoinedNode("a", func(n *corev1.Node) {
		n.Labels["both"], n.Labels["node"] = "node", "1"
		n.Annotations = map[string]string{"both": "node", "node": "1"}
	}))
	f.Reconcile(reconciler(f), "a")
	n, c := f.Node("node-a"), f.Claim("a")
	if n.Labels["both"] != "claim" || n.Labels["node"] != "1" || n.Labels[karpv1.LabelRegistered] != "true" ||
		n.Labels[karpv1.LabelNodePool] != "general" {
		t.Errorf("labels %v", n.Labels)
	}
	if diff := cmp.Diff(map[string]string{"both": "claim", "node": "1"}, n.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{dedicated, starting}, controllertest.Taints(n)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if !slices.Contains(n.Finalizers, karpv1.FinalizerTermination) || len(n.OwnerReferences) != 1 || n.OwnerReferences[0].UID != c.UID {
		t.Errorf("finalizers %v, owners %v", n.Finalizers, n.OwnerReferences)
	}
	if !condition.IsTrue(c, karpv1.ConditionRegistered) || c.Status.NodeName != "node-a" {
		t.Errorf("status %+v", c.Status)
	}
	if events := f.RecordedEvents(); len(events) > 0 {
		t.Errorf("events %v", events)
	}
}

func TestRegistration(t *testing.T) {
	doNotSync := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[karpv1.LabelDoNotSyncTaints] = value }
	}
	tests := []struct {
		name   string
		node   *corev1.Node
		taints []string
		event  string
	}{
		{
			"no unregistered taint",
			controllertest.JoinedNode("a", func(n *corev1.Node) { n.Spec.Taints = nil }),
			[]string{dedicated, starting},
			"UnregisteredTaintMissing",
		},
		{"taints are not to be synced", controllertest.JoinedNode("a", doNotSync("true")), nil, ""},
		{"any other value", controllertest.JoinedNode("a", doNotSync("yes")), []string{dedicated, starting}, ""},
		{"what is there already keeps its value", controllertest.JoinedNode("a", func(n *corev1.Node) {
			n.Spec.Taints = append(
				n.Spec.Taints,
				corev1.Taint{Key: "example.com/own", Value: "x", Effect: corev1.TaintEffectNoSchedule},
				corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
			)
		}), []string{dedicated, starting, "theirs:NoSchedule"}, ""},
		{"the owner is not named twice", controllertest.JoinedNode("a", func(n *corev1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: karpv1.GroupVersion.String(), Kind: "NodeClaim", Name: "a", UID: "uid-a"}}
		}), []string{dedicated, starting}, ""},
		{"registered before, the answer was lost: a startup taint that went stays away", controllertest.ReadyNode("a", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}}
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: karpv1.GroupVersion.String(), Kind: "NodeClaim", Name: "a", UID: "uid-a"}}
		}), []string{dedicated}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, theClaim(), tt.node)
			f.Reconcile(reconciler(f), "a")
			n := f.Node("node-a")
			if diff := cmp.Diff(tt.taints, controllertest.Taints(n)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if len(n.OwnerReferences) != 1 || n.Labels[karpv1.LabelRegistered] != "true" ||
				!condition.IsTrue(f.Claim("a"), karpv1.ConditionRegistered) {
				t.Errorf("not registered: owners %v, labels %v", n.OwnerReferences, n.Labels)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); (tt.event == "") != (events == "") || !strings.Contains(events, tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

func TestNotRegistered(t *testing.T) {
	second := controllertest.JoinedNode("a", func(n *corev1.Node) { n.Name = "node-b" })
	leaving := controllertest.JoinedNode("a", func(n *corev1.Node) {
		controllertest.DeletingNode(n)
		n.Finalizers = []string{"example.com/theirs"}
	})
	tests := []struct {
		name   string
		claim  *karpv1.NodeClaim
		nodes  []client.Object
		status metav1.ConditionStatus
		reason string
	}{
		{"no Node yet", theClaim(), nil, metav1.ConditionUnknown, "NodeNotFound"},
		{"another instance's Node", theClaim(), []client.Object{controllertest.JoinedNode("b")}, metav1.ConditionUnknown, "NodeNotFound"},
		{"a Node that is being deleted", theClaim(), []client.Object{leaving}, metav1.ConditionUnknown, "NodeNotFound"},
		{"two Nodes", theClaim(), []client.Object{controllertest.JoinedNode("a"), second}, metav1.ConditionFalse, "MultipleNodesFound"},
		{
			"not launched",
			controllertest.Claim("a"),
			[]client.Object{controllertest.JoinedNode("a")},
			metav1.ConditionUnknown,
			condition.ReasonAwaitingReconciliation,
		},
		{
			"being deleted",
			theClaim(controllertest.Deleting),
			[]client.Object{controllertest.JoinedNode("a")},
			metav1.ConditionUnknown,
			condition.ReasonAwaitingReconciliation,
		},
		{
			"another provider's",
			theClaim(func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }),
			[]client.Object{controllertest.JoinedNode("a")},
			metav1.ConditionUnknown,
			condition.ReasonAwaitingReconciliation,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.nodes, tt.claim)...)
			f.Reconcile(reconciler(f), "a")
			if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionRegistered); c.Status != tt.status || c.Reason != tt.reason {
				t.Errorf("Registered %s, %s; want %s, %s", c.Status, c.Reason, tt.status, tt.reason)
			}
			if n := f.Node("node-a"); n != nil && !slices.Equal(controllertest.Taints(n), []string{unregisteredT}) {
				t.Errorf("the Node was changed: %v", controllertest.Taints(n))
			}
		})
	}
}

// Others change the Node between our read and our write: the cloud controller manager takes its taint off, the kubelet
// writes what it likes. The taint must not come back, and nothing of theirs be lost.
func TestNodeChangesMeanwhile(t *testing.T) {
	const theirs = "node.cloudprovider.kubernetes.io/uninitialized"
	tests := []struct {
		name   string
		races  int
		slower bool
	}{
		{"once", 1, false},
		{"again and again", 100, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, theClaim(), controllertest.JoinedNode("a", func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: theirs, Effect: corev1.TaintEffectNoSchedule})
			}))
			r := reconciler(f)
			left := tt.races
			r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if _, isNode := o.(*corev1.Node); isNode && left > 0 {
						left--
						n := f.Node("node-a")
						n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == theirs })
						metav1.SetMetaDataAnnotation(&n.ObjectMeta, "kubelet", fmt.Sprint(left))
						f.Do(c.Update(ctx, n))
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			if _, err := f.Try(r, "a"); apierrors.IsConflict(err) != tt.slower || err != nil && !tt.slower {
				t.Fatalf("error %v", err)
			}
			if tt.slower { // they come to rest
				left = 0
				f.Reconcile(r, "a")
			}
			node := f.Node("node-a")
			if diff := cmp.Diff([]string{dedicated, starting}, controllertest.Taints(node)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if node.Labels[karpv1.LabelRegistered] != "true" || node.Annotations["kubelet"] == "" {
				t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
			}
		})
	}
}
