package initialization

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func TestInitialize(t *testing.T) {
	unlabeled := func(n *corev1.Node) { delete(n.Labels, karpv1.LabelInitialized) }
	tests := []struct {
		name   string
		claim  *karpv1.NodeClaim
		nodes  []client.Object
		status metav1.ConditionStatus
		reason string
		label  bool
	}{
		{
			"ready for use",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a", unlabeled)},
			metav1.ConditionTrue,
			karpv1.ConditionInitialized,
			true,
		},
		{
			"labeled before, the answer was lost",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a")},
			metav1.ConditionTrue,
			karpv1.ConditionInitialized,
			true,
		},
		{
			"a Node without any label",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a", func(n *corev1.Node) { n.Labels = nil })},
			metav1.ConditionTrue,
			karpv1.ConditionInitialized,
			true,
		},
		{
			"resource claims are not in use, and drivers are named",
			controllertest.Claim("a", controllertest.Registered, func(c *karpv1.NodeClaim) {
				c.Annotations[karpv1.AnnotationRequestedDRADrivers] = "gpu.example.com"
			}),
			[]client.Object{controllertest.ReadyNode("a", unlabeled)},
			metav1.ConditionTrue,
			karpv1.ConditionInitialized,
			true,
		},
		{
			"not registered, Ready with all resources",
			controllertest.Claim("a", controllertest.Launched),
			[]client.Object{controllertest.ReadyNode("a", unlabeled)},
			metav1.ConditionUnknown,
			condition.ReasonAwaitingReconciliation,
			false,
		},
		{
			"not Ready",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a", unlabeled, controllertest.NotReady)},
			metav1.ConditionUnknown,
			"NodeNotReady",
			false,
		},
		{"the Node has gone", controllertest.Claim("a", controllertest.Registered), nil, metav1.ConditionUnknown, "NodeNotFound", false},
		{
			"initialized stays, though the node is not Ready any more",
			controllertest.Claim("a", controllertest.Initialized),
			[]client.Object{controllertest.ReadyNode("a", controllertest.NotReady)},
			metav1.ConditionTrue,
			karpv1.ConditionInitialized,
			true,
		},
		{
			"being deleted",
			controllertest.Claim("a", controllertest.Registered, controllertest.Deleting),
			[]client.Object{controllertest.ReadyNode("a", unlabeled)},
			metav1.ConditionUnknown,
			condition.ReasonAwaitingReconciliation,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.nodes, tt.claim)...)
			f.Clock = f.Clock.Add(settlingTime)
			f.Reconcile(&Reconciler{Client: f.API, Log: f.Log, Now: f.Now}, "a")
			if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); c.Status != tt.status || c.Reason != tt.reason {
				t.Errorf("Initialized %s, %s; want %s, %s", c.Status, c.Reason, tt.status, tt.reason)
			}
			if n := f.Node("node-a"); n != nil && (n.Labels[karpv1.LabelInitialized] == "true") != tt.label {
				t.Errorf("labels %v", n.Labels)
			}
		})
	}
}

// What a node waited for arrives or goes, and nothing else is missing.
func TestInitializedOnceNothingIsLeft(t *testing.T) {
	gpu := func(c *karpv1.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	}
	tainted := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: key, Value: "x", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	untainted := func(n *corev1.Node) { n.Spec.Taints = nil }
	for _, tt := range []struct {
		name   string
		claim  func(*karpv1.NodeClaim)
		node   func(*corev1.Node)
		change func(*corev1.Node)
		reason string
	}{
		{"the GPU appears", gpu, func(*corev1.Node) {}, func(n *corev1.Node) {
			n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1")
		}, "ResourceNotRegistered"},
		{
			"the cloud controller manager finishes", controllertest.Registered, tainted("node.cloudprovider.kubernetes.io/uninitialized"),
			untainted, "KnownEphemeralTaintsExist",
		},
		{
			"the readiness rule is satisfied", controllertest.Registered, tainted("readiness.k8s.io/network"), untainted,
			"KnownEphemeralTaintsExist",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered, tt.claim), controllertest.ReadyNode("a", tt.node))
			f.Clock = f.Clock.Add(settlingTime)
			r := &Reconciler{Client: f.API, Log: f.Log, Now: f.Now}
			f.Reconcile(r, "a")
			if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); c.Status != metav1.ConditionUnknown || c.Reason != tt.reason {
				t.Errorf("before: Initialized %s, %s, want Unknown, %s", c.Status, c.Reason, tt.reason)
			}
			n := f.Node("node-a")
			status := n.DeepCopy()
			tt.change(n)
			tt.change(status)
			f.Do(f.API.Update(f.Context(), n))
			status.ResourceVersion = n.ResourceVersion
			f.Do(f.API.Status().Update(f.Context(), status))
			f.Reconcile(r, "a")
			if c := f.Claim("a"); !condition.IsTrue(c, karpv1.ConditionInitialized) {
				t.Errorf("after: %+v", c.Status.Conditions)
			}
		})
	}
}

// A node that has just registered is not stated to wait for what happens to every node; one that lacks a resource is.
func TestNodeSettlesBeforeItIsSaidToWait(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), controllertest.ReadyNode("a", controllertest.NotReady))
	r := &Reconciler{Client: f.API, Log: f.Log, Now: f.Now}
	f.Clock = f.Clock.Add(2 * time.Second)
	if got := f.Reconcile(r, "a").RequeueAfter; got != settlingTime-2*time.Second {
		t.Errorf("looks again after %v", got)
	}
	if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); c.Reason != condition.ReasonAwaitingReconciliation {
		t.Errorf("Initialized: %s after 2 s", c.Reason)
	}
	f.Clock = f.Clock.Add(settlingTime)
	f.Reconcile(r, "a")
	if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); c.Reason != reasonNotReady {
		t.Errorf("Initialized: %s once it should have settled", c.Reason)
	}
}

// What others remove from a node is recorded as it happens, without a request.
func TestRemovedTaintsAreNoticed(t *testing.T) {
	f := controllertest.New(t)
	r := &Reconciler{Now: f.Now, Removals: cluster.NewTaintRemovals()}
	taint := corev1.Taint{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}
	waits := controllertest.JoinedNode("a", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint} })
	r.observe(t.Context(), event.UpdateEvent{ObjectOld: waits, ObjectNew: waits}, nil)
	if until := r.Removals.LateUntil(waits, &taint); !until.IsZero() {
		t.Errorf("a node has changed and has the taint still: late until %v", until)
	}
	r.observe(t.Context(), event.UpdateEvent{ObjectOld: waits, ObjectNew: controllertest.ReadyNode("a")}, nil)
	if until := r.Removals.LateUntil(waits, &taint); !until.Equal(f.Clock.Add(cluster.TaintOwnerWindow)) {
		t.Errorf("late until %v", until)
	}
	if until := r.Removals.LateUntil(waits, &corev1.Taint{Key: "example.com/other"}); !until.IsZero() {
		t.Errorf("another taint is late until %v", until)
	}
}

// A node with what its claim expects needs no second write to report it. One with less is the consistency controller's.
func TestConsistentNodeNeedsOneWrite(t *testing.T) {
	expects := func(c *karpv1.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}
	}
	has := func(memory string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			q := resource.MustParse(memory)
			n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: q}, corev1.ResourceList{corev1.ResourceMemory: q}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*karpv1.NodeClaim)
		memory string
		want   metav1.ConditionStatus
	}{
		{"all of it", func(*karpv1.NodeClaim) {}, "64Gi", metav1.ConditionTrue},
		{"half of it", func(*karpv1.NodeClaim) {}, "32Gi", ""},
		{"all of it, and devices that are not known here", func(c *karpv1.NodeClaim) {
			c.Annotations[karpv1.AnnotationRequestedDRADrivers] = "gpu.example.com"
		}, "64Gi", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered, expects, tt.change),
				controllertest.ReadyNode("a", has(tt.memory)))
			f.Reconcile(&Reconciler{Client: f.API, Log: f.Log, Now: f.Now}, "a")
			claim := f.Claim("a")
			if c, _ := condition.Get(claim, karpv1.ConditionConsistentStateFound); c.Status != tt.want {
				t.Errorf("ConsistentStateFound is %q, want %q", c.Status, tt.want)
			}
			if !condition.IsTrue(claim, karpv1.ConditionInitialized) {
				t.Errorf("not initialized: %v", claim.Status.Conditions)
			}
		})
	}
}

// When a pod came before the claim is initialized, one write has both.
func TestPodsThatCameBefore(t *testing.T) {
	came := metav1.NewTime(controllertest.Start.Add(7 * time.Second))
	pod := controllertest.Pod("web", "node-a", func(p *corev1.Pod) { p.CreationTimestamp = came })
	daemon := controllertest.Pod("agent", "node-a", controllertest.OwnedByDaemonSet, func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(came.Add(time.Minute))
	})
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered), controllertest.ReadyNode("a"), pod, daemon)
	writes := 0
	api := interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			writes++
			return c.SubResource(name).Patch(ctx, o, p, opts...)
		},
	})
	f.Reconcile(&Reconciler{Client: api, Events: f.Events, Log: f.Log, Now: f.Now}, "a")
	claim := f.Claim("a")
	if !condition.IsTrue(claim, karpv1.ConditionInitialized) || !claim.Status.LastPodEventTime.Equal(&came) || writes != 1 {
		t.Errorf("%d writes, status %+v, want the pod's time %v", writes, claim.Status, came)
	}
}
