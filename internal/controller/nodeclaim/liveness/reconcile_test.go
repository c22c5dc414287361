package liveness

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func reconciler(f *controllertest.Fixture) *Reconciler {
	return &Reconciler{
		Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Health: health.NewTracker(f.API, f.Now), Events: f.Events, LaunchTimeout: LaunchTimeout, Metrics: f.Metrics, Log: f.Log,
		Now: f.Now,
	}
}

func TestLateClaims(t *testing.T) {
	tests := []struct {
		name   string
		claim  *karpv1.NodeClaim
		age    time.Duration
		wait   time.Duration
		reason string
	}{
		{"four minutes without instance", controllertest.Claim("a"), 4 * time.Minute, time.Minute, ""},
		{"six minutes without instance", controllertest.Claim("a"), 6 * time.Minute, 0, "launch_timeout"},
		{"the condition's time decides, not the claim's", controllertest.Claim("a", func(c *karpv1.NodeClaim) {
			condition.SetFalse(c, karpv1.ConditionLaunched, condition.Because("X", ""), controllertest.Start.Add(time.Hour))
		}), time.Hour, LaunchTimeout, ""},
		{"twenty minutes without Node", controllertest.Claim("a", controllertest.Launched), 20 * time.Minute, 0, "registration_timeout"},
		{"registered, never initialized", controllertest.Claim("a", controllertest.Registered), 20 * time.Minute, 0, ""},
		{"another provider's", controllertest.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), time.Hour, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.claim)
			f.Clock = f.Clock.Add(tt.age)
			result := f.Reconcile(reconciler(f), "a")
			if terminated := f.Claim("a").DeletionTimestamp != nil; terminated != (tt.reason != "") || result.RequeueAfter != tt.wait {
				t.Errorf("terminated %v, is requeued after %v; want %q, %v", terminated, result.RequeueAfter, tt.reason, tt.wait)
			}
			if tt.reason != "" && f.Counted(tt.reason) != 1 {
				t.Errorf("not counted as %s", tt.reason)
			}
		})
	}
}

// The claim launched at the last moment, and the cache does not show it yet.
func TestLaunchedAtTheLastMoment(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a"))
	stale := f.Claim("a")
	c := f.Claim("a")
	controllertest.Launched(c)
	f.Do(f.API.Status().Update(f.Context(), c))
	f.Clock = f.Clock.Add(LaunchTimeout)
	r := reconciler(f)
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*karpv1.NodeClaim))
			return nil
		},
	})
	if _, err := f.Try(r, "a"); !apierrors.IsConflict(err) || f.Claim("a").DeletionTimestamp != nil {
		t.Errorf("error %v: a claim that has its instance was terminated for having none", err)
	}
}

// another time to launch.
func TestLaunchTimeout(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a"))
	r := reconciler(f)
	r.LaunchTimeout = 45 * time.Second
	f.Clock = f.Clock.Add(30 * time.Second)
	if result := f.Reconcile(r, "a"); result.RequeueAfter != 15*time.Second || f.Claim("a").DeletionTimestamp != nil {
		t.Errorf("after 30 s: is requeued after %v", result.RequeueAfter)
	}
	f.Clock = f.Clock.Add(30 * time.Second)
	f.Reconcile(r, "a")
	if f.Claim("a").DeletionTimestamp == nil || f.Counted("launch_timeout") != 1 {
		t.Error("after 60 s the claim is still there, or was not counted")
	}
}

// Failures are counted for the pool, and successes of others weigh against them.
func TestPoolsHearOfFailures(t *testing.T) {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.UID = "uid-pool" })
	owned := func(c *karpv1.NodeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "NodePool", Name: "general", UID: "uid-pool"}}
	}
	f := controllertest.New(t, pool, controllertest.Claim("a", owned, controllertest.Launched), controllertest.Claim("b", owned))
	f.Clock = f.Clock.Add(20 * time.Minute)
	r := reconciler(f)
	for n, name := range []string{"a", "b"} {
		f.Reconcile(r, name)
		f.Get(pool)
		if unhealthy := condition.IsFalse(pool, karpv1.ConditionNodeRegistrationHealthy); unhealthy != (n == 1) {
			t.Errorf("after %d failures the pool is unhealthy: %v", n+1, unhealthy)
		}
	}
}

func TestPoolOfThatNameIsAnother(t *testing.T) {
	t.Run("late claims go, and a pool that has the name of their own is not judged", func(t *testing.T) {
		pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.UID = "uid-pool" })
		orphaned := func(c *karpv1.NodeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "NodePool", Name: "general", UID: "uid-of-the-old-pool"}}
		}
		f := controllertest.New(t, pool, controllertest.Claim("a", orphaned, controllertest.Launched), controllertest.Claim("b", orphaned))
		f.Get(pool)
		before := pool.DeepCopy()
		f.Clock = f.Clock.Add(20 * time.Minute)
		r := reconciler(f)
		for _, name := range []string{"a", "b"} {
			f.Reconcile(r, name)
			if f.Claim(name).DeletionTimestamp == nil {
				t.Errorf("claim %s stays", name)
			}
		}
		f.Get(pool)
		if diff := gocmp.Diff(before.Status, pool.Status); diff != "" {
			t.Errorf("pool (-before +after):\n%s", diff)
		}
	})
}

// A node that has registered and never becomes Ready is terminated after a while, unless it is in use.
func TestNodeThatNeverBecomesReadyIsTerminatedUnlessItIsUsed(t *testing.T) {
	never := func(c *karpv1.NodeClaim) {
		controllertest.Registered(c)
		condition.SetUnknown(
			c,
			karpv1.ConditionInitialized,
			condition.Because("NodeNeverReady", "cni plugin not initialized"),
			controllertest.Start.Add(time.Minute),
		)
	}
	kept := func(o client.Object) { o.SetAnnotations(map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}) }
	finished := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	silent, ready := controllertest.JoinedNode("a", controllertest.NotReady), controllertest.JoinedNode("a")
	watched := controllertest.JoinedNode("a", controllertest.NotReady, func(n *corev1.Node) { kept(n) })
	wanted := controllertest.Claim("a", never, func(c *karpv1.NodeClaim) { kept(c) })
	daemons := []client.Object{
		controllertest.Pod("agent", "node-a", controllertest.OwnedByDaemonSet),
		controllertest.Pod("job", "node-a", finished),
		controllertest.Pod("elsewhere", "node-b"),
	}
	for _, tt := range []struct {
		name       string
		claim      *karpv1.NodeClaim
		node       *corev1.Node
		pods       []client.Object
		age        time.Duration
		terminated bool
		wait       time.Duration
	}{
		{name: "in time", node: silent, age: 10 * time.Minute, wait: 5 * time.Minute},
		{name: "nothing uses it", node: silent, age: ReadinessTimeout, terminated: true},
		{name: "daemons and what is finished do not use it", node: silent, pods: daemons, age: ReadinessTimeout, terminated: true},
		{
			name: "a pod is on it", node: silent, pods: []client.Object{controllertest.Pod("web", "node-a")}, age: ReadinessTimeout,
			wait: inUseRecheckInterval,
		},
		{name: "it is Ready by now", node: ready, age: ReadinessTimeout, wait: inUseRecheckInterval},
		{name: "its node has do-not-disrupt", node: watched, age: ReadinessTimeout, wait: inUseRecheckInterval},
		{name: "the claim has do-not-disrupt", claim: wanted, node: silent, age: time.Hour, wait: inUseRecheckInterval},
		{name: "the Node is gone", age: ReadinessTimeout, terminated: true},
		{name: "it waits for something else", claim: controllertest.Claim("a", controllertest.Registered), node: silent, age: time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := append(slices.Clone(tt.pods), cmp.Or(tt.claim, controllertest.Claim("a", never)))
			if tt.node != nil {
				objects = append(objects, tt.node.DeepCopy())
			}
			f := controllertest.New(t, objects...)
			f.Clock = f.Clock.Add(tt.age)
			result := f.Reconcile(reconciler(f), "a")
			if terminated := f.Claim("a").DeletionTimestamp != nil; terminated != tt.terminated || result.RequeueAfter != tt.wait {
				t.Errorf("terminated %v, requeued after %v; want %v, %v", terminated, result.RequeueAfter, tt.terminated, tt.wait)
			}
			if tt.terminated && f.Counted("readiness_timeout") != 1 {
				t.Error("not counted as readiness_timeout")
			}
		})
	}
}
