package join

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// waiting is a claim with a node that has joined and waits for a taint beyond the grace period.
func waiting(name string) *karpv1.NodeClaim {
	c := launched(name)
	condition.SetTrue(c, karpv1.ConditionRegistered, controllertest.Start.Add(5*time.Second))
	condition.SetUnknown(
		c,
		karpv1.ConditionInitialized,
		condition.Because("TaintStuck", "taint x is for y to remove"),
		controllertest.Start,
	)
	return c
}

// One node that waits for a taint is replaced; when the next one waits, too, one at a time is tried, until one is
// initialized.
func TestTaintsThatStay(t *testing.T) {
	f := controllertest.New(t, class(), waiting("a"), waiting("b"))
	r := reconciler(f, &fakeCloud{})
	f.Clock = controllertest.Start.Add(time.Minute)
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	if len(r.Breakers.Open()) > 0 {
		t.Fatal("one node that waits keeps others from being launched")
	}
	f.Reconcile(r, "b")
	held, _, is := r.Breakers.Held(launchScopes(&fakeCloud{}, launched("x"), class()))
	if !is || held.Cause != "TaintStuck" {
		t.Fatalf("two nodes wait, and held is %v %+v", is, held)
	}
	joined := launched("c")
	condition.SetTrue(joined, karpv1.ConditionRegistered, f.Clock.Add(5*time.Second))
	f.Do(f.API.Create(f.Context(), joined))
	f.Reconcile(r, "c")
	if len(r.Breakers.Open()) == 0 {
		t.Error("closed by a node that has only joined")
	}
	ready := f.Claim("b")
	condition.SetTrue(ready, karpv1.ConditionInitialized, f.Clock.Add(20*time.Second))
	f.Do(f.API.Status().Update(f.Context(), ready))
	f.Reconcile(r, "b")
	if len(r.Breakers.Open()) > 0 {
		t.Error("a node is initialized, and the breaker is still open")
	}
}

// Times of conditions are whole seconds. A node that was seen to wait, and is initialized within the second in which
// launches were held back, stops that.
func TestLaunchesGoOnWithinTheSecondOfTheFirstNode(t *testing.T) {
	f := controllertest.New(t, class(), waiting("a"), waiting("b"))
	r := reconciler(f, &fakeCloud{})
	f.Clock = controllertest.Start.Add(time.Minute + 300*time.Millisecond)
	f.Reconcile(r, "a")
	f.Reconcile(r, "b")
	if len(r.Breakers.Open()) == 0 {
		t.Fatal("two nodes wait, and launches are not held back")
	}
	f.Clock = f.Clock.Add(400 * time.Millisecond)
	ready := f.Claim("b")
	condition.SetTrue(ready, karpv1.ConditionInitialized, f.Clock)
	f.Do(f.API.Status().Update(f.Context(), ready))
	f.Reconcile(r, "b")
	if open := r.Breakers.Open(); len(open) > 0 {
		t.Errorf("launches are still held back: %+v", open)
	}
}

// Where other nodes are initialized all the time, those that wait are late, and nothing is gained by a stop of launches.
func TestTaintsThatGoLate(t *testing.T) {
	f := controllertest.New(t, class(), waiting("a"), waiting("b"), waiting("c"), launched("up"))
	r := reconciler(f, &fakeCloud{})
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	up := f.Claim("up")
	condition.SetTrue(up, karpv1.ConditionRegistered, controllertest.Start.Add(5*time.Second))
	condition.SetTrue(up, karpv1.ConditionInitialized, f.Clock.Add(-progressWindow+time.Second))
	f.Do(f.API.Status().Update(f.Context(), up))
	for _, name := range []string{"up", "a", "b"} {
		f.Reconcile(r, name)
	}
	if open := r.Breakers.Open(); len(open) > 0 {
		t.Fatalf("nodes that are late keep others from being launched: %+v", open)
	}
	f.Clock = f.Clock.Add(time.Second)
	f.Reconcile(r, "c")
	if len(r.Breakers.Open()) == 0 {
		t.Error("no node was initialized for a minute, and more are launched")
	}
}

// Nodes of other pools of the class are initialized all the time, since they do not have the taint: that hides nothing, and
// they go on.
func TestTaintsThatStayInOnePool(t *testing.T) {
	f := controllertest.New(t, class(), ofPool("cilium", waiting("a")), ofPool("cilium", waiting("b")), ofPool("general", launched("up")))
	o := &fakeCloud{}
	r := reconciler(f, o)
	guard := NewLaunchGuard(o, r.Breakers, f.Now)
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	up := f.Claim("up")
	condition.SetTrue(up, karpv1.ConditionRegistered, controllertest.Start.Add(5*time.Second))
	condition.SetTrue(up, karpv1.ConditionInitialized, f.Clock.Add(-time.Second))
	f.Do(f.API.Status().Update(f.Context(), up))
	for _, name := range []string{"up", "a"} {
		f.Reconcile(r, name)
	}
	if _, _, held := guard.PoolHeld("cilium", "default"); held {
		t.Fatal("one node that waits keeps others from being launched")
	}
	for _, name := range []string{"b", "up", "a"} {
		f.Reconcile(r, name)
	}
	if finding, _, held := guard.PoolHeld("cilium", "default"); !held || finding.Cause != "TaintStuck" {
		t.Errorf("two nodes of the pool wait: held %v, %+v", held, finding)
	}
	if got := launches(t, guard, "cilium", "c"); len(got) > 0 {
		t.Errorf("%v launched", got)
	}
	if got := launches(t, guard, "general", "d"); len(got) != 1 {
		t.Error("a pool whose nodes are initialized is held back")
	}
	ready := f.Claim("b")
	condition.SetTrue(ready, karpv1.ConditionInitialized, f.Clock.Add(time.Second))
	f.Do(f.API.Status().Update(f.Context(), ready))
	f.Reconcile(r, "b")
	if _, _, held := guard.PoolHeld("cilium", "default"); held {
		t.Error("a node of the pool is initialized, and the pool is still held back")
	}
}
