package initialization_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/initialization"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// joining is a Node as its kubelet registers it, Ready already.
func joining() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-a", Taints: []corev1.Taint{
			{Key: karpv1.TaintKeyUnregistered, Effect: corev1.TaintEffectNoExecute},
			{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// done is what the cloud controller manager makes of a Node, all but its taint.
func done(n *corev1.Node) {
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "ip-10-0-0-1.ec2.internal"})
	n.Labels[corev1.LabelFailureDomainBetaZone], n.Labels[corev1.LabelInstanceType] = "us-east-1a", "m5.large"
}

// Two others write the Node's taints, each on the condition that it is as they read it, at every moment between two
// of our own reads and writes; and our reads may be from before. A taint that was once seen removed never comes back.
func TestRemovedTaintsStayRemoved(t *testing.T) {
	const seeds = 500
	moments := map[string]bool{}
	for seed := range uint64(seeds) {
		interleave(t, seed, moments)
	}
	if len(moments) < 4 {
		t.Errorf("the others have written at %d different moments only: %v", len(moments), moments)
	}
}

func interleave(t *testing.T, seed uint64, moments map[string]bool) {
	const startup = "example.com/agent-not-ready"
	claim := controllertest.Claim("a", controllertest.Launched, func(c *karpv1.NodeClaim) {
		c.Spec.StartupTaints = []corev1.Taint{{Key: startup, Effect: corev1.TaintEffectNoSchedule}}
		c.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	})
	node := joining()
	if seed%2 == 0 { // its kubelet was informed of pool and startup taints; else both come with registration
		node.Labels[karpv1.LabelNodePool] = claim.Labels[karpv1.LabelNodePool]
		node.Spec.Taints = append(node.Spec.Taints, claim.Spec.StartupTaints...)
	}
	f := controllertest.New(t, claim, node, controllertest.Pool("general"))
	chance := rand.New(rand.NewPCG(seed, 1))
	removed, seen := map[string]bool{}, map[string]bool{}
	look := func() *corev1.Node {
		n := f.Node("node-a")
		for _, taint := range n.Spec.Taints {
			seen[taint.Key] = true
			if removed[taint.Key] {
				t.Fatalf("seed %d: taint %s was removed, and is back", seed, taint.Key)
			}
		}
		return n
	}
	// others removes one of their taints, as of now.
	others := func(moment string) {
		if chance.IntN(3) > 0 {
			return
		}
		key := []string{uninitialized, startup}[chance.IntN(2)]
		n := look()
		before := n.DeepCopy()
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key }) {
			return
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		f.Do(f.API.Patch(t.Context(), n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		removed[key] = true
		moments[moment] = true
	}
	stale := look() // what a cache that is behind still shows
	c := interceptor.NewClient(f.API, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			others("before reading " + kind(list))
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			if nodes, ok := list.(*corev1.NodeList); ok && len(nodes.Items) == 1 && chance.IntN(3) == 0 {
				nodes.Items[0] = *stale.DeepCopy()
			}
			others("after reading " + kind(list))
			return nil
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			others("before reading one " + kind(o))
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			if node, ok := o.(*corev1.Node); ok && chance.IntN(3) == 0 {
				stale.DeepCopyInto(node)
			}
			others("after reading one " + kind(o))
			return nil
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			others("before writing " + kind(o))
			err := c.Patch(ctx, o, patch, opts...)
			look()
			others("after writing " + kind(o))
			return err
		},
	})
	live := interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			others("before asking the API server for " + kind(o))
			err := c.Get(ctx, key, o, opts...)
			others("after asking the API server for " + kind(o))
			return err
		},
	})
	registering := patch.RequeueOnConflict(
		&registration.Reconciler{
			Client:  c,
			Live:    live,
			Health:  health.NewTracker(c, f.Now),
			Events:  f.Events,
			Metrics: f.Metrics,
			Log:     f.Log,
			Now:     f.Now,
		},
	)
	initializing := patch.RequeueOnConflict(
		&initialization.Reconciler{Client: c, Events: f.Events, Log: f.Log, Now: f.Now, RepairStaleTaints: true},
	)
	for round := 0; round < 60 && !condition.IsTrue(f.Claim("a"), karpv1.ConditionInitialized); round++ {
		others("between rounds")
		for _, r := range []int{0, 1} {
			if chance.IntN(2) == 0 {
				stale = look()
			}
			if r == 0 {
				_, _ = f.Try(registering, "a") // a conflict is tried again
			} else {
				_, _ = f.Try(initializing, "a")
			}
			look()
		}
		f.Clock = f.Clock.Add(time.Second)
	}
	if final := look(); !seen[startup] || len(removed) == 2 && !condition.IsTrue(f.Claim("a"), karpv1.ConditionInitialized) {
		t.Fatalf("seed %d: the claim is not initialized after all; taints %v, removed %v, seen %v", seed, final.Spec.Taints, removed, seen)
	}
}

func kind(o runtime.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.") }

// A taint that stays beyond its time is named, with its owner, in condition and event.
func TestStuckTaint(t *testing.T) {
	for name, tt := range map[string]struct {
		taint corev1.Taint
		names string
	}{
		"cloud controller manager": {
			corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
			"the cloud controller manager must remove it and has not finished with this node",
		},
		"startup taint of a CNI": {corev1.Taint{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}, "Cilium"},
		"startup taint of one's own": {
			corev1.Taint{Key: "example.com/warming-up", Effect: corev1.TaintEffectNoSchedule},
			"the component that the NodePool's startupTaints are for",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := joining()
			node.Spec.Taints = []corev1.Taint{tt.taint}
			f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered, func(c *karpv1.NodeClaim) {
				if tt.taint.Key != uninitialized {
					c.Spec.StartupTaints = []corev1.Taint{tt.taint}
				}
			}), node)
			r := &initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now, RepairStaleTaints: true}
			f.Clock = controllertest.Start.Add(50 * time.Second)
			if result := f.Reconcile(r, "a"); result.RequeueAfter != 10*time.Second || len(f.RecordedEvents()) > 0 {
				t.Fatalf("in time: is requeued after %v", result.RequeueAfter)
			}
			f.Clock = controllertest.Start.Add(time.Minute)
			f.Reconcile(r, "a")
			got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if got.Status != metav1.ConditionUnknown || got.Reason != "TaintStuck" || !strings.Contains(got.Message, tt.names) ||
				!strings.Contains(got.Message, tt.taint.ToString()) {
				t.Errorf("condition Initialized: %+v", got)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, "Warning TaintStuck") ||
				!strings.Contains(events, tt.names) {
				t.Errorf("events: %s", events)
			}
			if len(f.Node("node-a").Spec.Taints) != 1 {
				t.Error("a taint of another owner was removed")
			}
		})
	}
}

// A lost update is repaired: the owner has done its work, and the taint is there nevertheless.
func TestStaleTaintIsRemoved(t *testing.T) {
	for _, mend := range []bool{true, false} {
		node := joining()
		node.Spec.Taints = append(node.Spec.Taints[1:], corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
		done(node)
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), node)
		r := &initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now, RepairStaleTaints: mend}
		f.Clock = controllertest.Start.Add(59 * time.Second)
		f.Reconcile(r, "a")
		if n := len(f.Node("node-a").Spec.Taints); n != 2 {
			t.Fatalf("in time: %d taints, want both", n)
		}
		f.Clock = controllertest.Start.Add(time.Minute)
		f.Reconcile(r, "a")
		left := f.Node("node-a").Spec.Taints
		if mend != (len(left) == 1 && left[0].Key == "dedicated") {
			t.Errorf("mend %v: taints %v", mend, left)
		}
		f.Reconcile(r, "a")
		if condition.IsTrue(f.Claim("a"), karpv1.ConditionInitialized) != mend {
			t.Errorf("mend %v: initialized %v", mend, !mend)
		}
		if events := strings.Join(f.RecordedEvents(), "\n"); mend != strings.Contains(events, "Warning StaleTaintRemoved") {
			t.Errorf("mend %v: events %s", mend, events)
		}
	}
}

// A node that is not Ready a minute after it has registered is named with what its kubelet reports, once, whatever
// taints it has.
func TestNodeThatNeverBecomesReadyIsNamedWithKubeletsReason(t *testing.T) {
	const why = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	for name, tt := range map[string]struct {
		node  func(*corev1.Node)
		names string
	}{
		"the network plugin does not come up": {func(n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: why}
		}, "KubeletNotReady: " + why},
		"kubelet has gone silent": {func(n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}
		}, "NodeStatusUnknown: Kubelet stopped posting"},
		"kubelet has never reported": {func(n *corev1.Node) { n.Status.Conditions = nil }, "kubelet has reported no status"},
	} {
		t.Run(name, func(t *testing.T) {
			node := joining()
			tt.node(node)
			f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), node)
			r := &initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now, RepairStaleTaints: true}
			f.Clock = controllertest.Start.Add(59 * time.Second)
			result := f.Reconcile(r, "a")
			got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if result.RequeueAfter != time.Second || got.Reason != "NodeNotReady" || len(f.RecordedEvents()) > 0 {
				t.Fatalf("in time: requeued after %v, reason %s", result.RequeueAfter, got.Reason)
			}
			f.Clock = controllertest.Start.Add(time.Minute)
			f.Reconcile(r, "a")
			f.Reconcile(r, "a")
			got, _ = condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if got.Status != metav1.ConditionUnknown || got.Reason != "NodeNeverReady" || !strings.Contains(got.Message, tt.names) ||
				!strings.Contains(got.Message, "kubectl get pods") {
				t.Errorf("condition Initialized: %+v", got)
			}
			if events := f.RecordedEvents(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning NodeNeverReady") ||
				!strings.Contains(events[0], tt.names) {
				t.Errorf("events: %q", events)
			}
			ready := f.Node("node-a")
			ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			f.Do(f.API.Status().Update(f.Context(), ready))
			ready = f.Node("node-a")
			ready.Spec.Taints = nil
			f.Do(f.API.Update(f.Context(), ready))
			f.Reconcile(r, "a")
			if !condition.IsTrue(f.Claim("a"), karpv1.ConditionInitialized) {
				t.Error("the node is Ready after all, and not initialized")
			}
		})
	}
}

// A node that becomes Ready late has its taint of not being Ready for a moment longer, which is not stuck.
func TestNodeThatBecomesReadyLateIsNotStuckAtOnce(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), controllertest.JoinedNode("a", func(n *corev1.Node) {
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(controllertest.Start.Add(5 * time.Minute))
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	}))
	r := &initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now}
	for n, reason := range []string{"KnownEphemeralTaintsExist", "TaintStuck"} {
		after := time.Duration(5+n) * time.Minute
		f.Clock = controllertest.Start.Add(after)
		f.Reconcile(r, "a")
		if got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); got.Reason != reason {
			t.Errorf("%v after it has registered: %s, want %s", after, got.Reason, reason)
		}
	}
}

// While the owner of a taint removes it from other nodes, a node that still has it is late, and reports it; its pods
// wait for it. When the owner has stopped, or has left the node out, the taint is stuck.
func TestTaintIsLateWhileItsOwnerIsAtWork(t *testing.T) {
	for name, tt := range map[string]struct {
		removed time.Duration // when the taint was removed from another node, after the start
		joined  time.Duration // when that node joined
		reason  string
		again   time.Duration
	}{
		"its owner works": {
			time.Minute - time.Second, 0, "KnownEphemeralTaintsExist",
			cluster.TaintOwnerWindow - time.Second,
		},
		"its owner has stopped":                 {time.Minute - cluster.TaintOwnerWindow, 0, "TaintStuck", 0},
		"its owner has left the node out":       {time.Minute, 10 * time.Minute, "TaintStuck", 0},
		"it has finished one that joined later": {time.Minute, 3 * time.Minute, "KnownEphemeralTaintsExist", cluster.TaintOwnerWindow},
	} {
		t.Run(name, func(t *testing.T) {
			tainted := func(name string, joined time.Duration) *corev1.Node {
				return controllertest.JoinedNode(name, func(n *corev1.Node) {
					n.CreationTimestamp = metav1.NewTime(controllertest.Start.Add(joined))
					n.Spec.Taints = []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
				})
			}
			f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), tainted("a", 0))
			removals := cluster.NewTaintRemovals()
			other := tainted("b", tt.joined)
			free := other.DeepCopy()
			free.Spec.Taints = nil
			removals.Observe(other, free, controllertest.Start.Add(tt.removed))
			r := &initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now, Removals: removals}
			f.Clock = controllertest.Start.Add(time.Minute)
			result := f.Reconcile(r, "a")
			got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if got.Reason != tt.reason || result.RequeueAfter != tt.again || !strings.Contains(got.Message, "cloud controller manager") {
				t.Errorf("requeued after %v, want %v; condition %+v", result.RequeueAfter, tt.again, got)
			}
			events := strings.Join(f.RecordedEvents(), "\n")
			if late := tt.reason != "TaintStuck"; late != strings.Contains(events, "Normal TaintLate") ||
				late == strings.Contains(events, "Warning TaintStuck") {
				t.Errorf("events: %s", events)
			}
		})
	}
}

// A process that has just started knows from the claims that were initialized lately that the owner works.
func TestTaintIsLateAfterARestartToo(t *testing.T) {
	for ago, reason := range map[time.Duration]string{time.Minute: "KnownEphemeralTaintsExist", 3 * time.Minute: "TaintStuck"} {
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), controllertest.JoinedNode("a", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		}), controllertest.Claim("b", controllertest.Registered, func(c *karpv1.NodeClaim) {
			condition.SetTrue(c, karpv1.ConditionInitialized, controllertest.Start.Add(5*time.Minute-ago))
		}))
		f.Clock = controllertest.Start.Add(5 * time.Minute)
		f.Reconcile(
			&initialization.Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now, Removals: cluster.NewTaintRemovals()},
			"a",
		)
		if got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); got.Reason != reason {
			t.Errorf("another node was initialized %v ago: %s, want %s", ago, got.Reason, reason)
		}
	}
}
