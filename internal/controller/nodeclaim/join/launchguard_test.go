package join

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// ofPool puts a claim into a pool.
func ofPool(pool string, c *karpv1.NodeClaim) *karpv1.NodeClaim {
	c.Labels = map[string]string{karpv1.LabelNodePool: pool}
	return c
}

// neverReady is a claim with a node that has registered and does not become Ready in time.
func neverReady(name, pool string) *karpv1.NodeClaim {
	c := ofPool(pool, launched(name))
	condition.SetTrue(c, karpv1.ConditionRegistered, controllertest.Start.Add(5*time.Second))
	condition.SetUnknown(
		c,
		karpv1.ConditionInitialized,
		condition.Because("NodeNeverReady", "cni plugin not initialized"),
		controllertest.Start.Add(time.Minute),
	)
	return c
}

// launches are whether claims of the pool are admitted by the guard now, one after another.
func launches(t *testing.T, guard *LaunchGuard, pool string, names ...string) (admitted []string) {
	t.Helper()
	for _, name := range names {
		_, err := guard.LaunchInBatch(t.Context(), ofPool(pool, launched(name)), class(), nil)
		var notReady *cloudprovider.NodeClassNotReadyError
		switch {
		case err == nil:
			admitted = append(admitted, name)
		case !errors.As(err, &notReady):
			t.Fatal(err)
		}
	}
	return admitted
}

// One node that never becomes Ready is replaced. When its replacement does not either, one at a time is tried for that
// pool, ever more seldom, until one is initialized; other pools go on.
func TestNodesThatNeverBecomeReadyAreReplacedOnceAndThenOneAtATime(t *testing.T) {
	f := controllertest.New(t, class(), neverReady("a", "general"), neverReady("b", "general"), neverReady("z", "other"))
	o := &fakeCloud{}
	r := reconciler(f, o)
	guard := NewLaunchGuard(o, r.Breakers, f.Now)
	f.Clock = controllertest.Start.Add(time.Minute)
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	f.Reconcile(r, "z")
	if _, _, held := guard.PoolHeld("general", "default"); held {
		t.Fatal("one node of the pool is not Ready, and its replacement is held back")
	}
	f.Reconcile(r, "b")
	finding, until, held := guard.PoolHeld("general", "default")
	if !held || finding.Cause != "NodeNeverReady" || !strings.Contains(finding.Message, "cni plugin not initialized") ||
		!until.Equal(f.Clock.Add(firstProbe)) {
		t.Fatalf("two nodes of the pool are not Ready: held %v until %v, %+v", held, until, finding)
	}
	if got := launches(t, guard, "general", "early"); len(got) > 0 {
		t.Errorf("%v launched at once", got)
	}
	if got := launches(t, guard, "other", "y"); len(got) != 1 {
		t.Error("a pool with one such node is held back by those of another pool")
	}
	for _, c := range guard.ResolveNodeClass(t.Context(), class()).Conditions {
		if c.Status != metav1.ConditionTrue {
			t.Errorf("the node class is not ready for a fault of one pool: %+v", c)
		}
	}
	probes(t, guard, f, func(probe string) {
		f.Clock = f.Clock.Add(time.Minute)
		f.Do(f.API.Create(f.Context(), neverReady(probe, "general")))
		f.Reconcile(r, probe)
	})
	joined := ofPool("general", launched("ok"))
	condition.SetTrue(joined, karpv1.ConditionRegistered, f.Clock.Add(5*time.Second))
	f.Do(f.API.Create(f.Context(), joined))
	f.Reconcile(r, "ok")
	if _, _, held := guard.PoolHeld("general", "default"); !held {
		t.Error("launches go on because a node has joined that is not Ready yet")
	}
	ready := f.Claim("a")
	condition.SetTrue(ready, karpv1.ConditionInitialized, f.Clock.Add(20*time.Second))
	f.Do(f.API.Status().Update(f.Context(), ready))
	f.Reconcile(r, "a")
	if _, _, held := guard.PoolHeld("general", "default"); held {
		t.Error("a node is initialized, and launches are held back")
	}
}

// probes expects that one claim of pool general after another is tried, each alone, and that the pause doubles when one
// has failed.
func probes(t *testing.T, guard *LaunchGuard, f *controllertest.Fixture, fail func(probe string)) {
	t.Helper()
	pause := pauseOf(t, guard, f, "general")
	for _, probe := range []string{"p1", "p2", "p3"} {
		f.Clock = f.Clock.Add(pause)
		if got := launches(t, guard, "general", probe, probe+"-too"); len(got) != 1 || got[0] != probe {
			t.Fatalf("after %v %v are launched, want %s alone", pause, got, probe)
		}
		fail(probe)
		if next := pauseOf(t, guard, f, "general"); next != 2*pause {
			t.Fatalf("after %s the pause is %v, want %v", probe, next, 2*pause)
		}
		pause *= 2
	}
}

// pauseOf returns how long launches of the pool are still held back.
func pauseOf(t *testing.T, guard *LaunchGuard, f *controllertest.Fixture, pool string) time.Duration {
	t.Helper()
	_, until, held := guard.PoolHeld(pool, "default")
	if !held {
		t.Fatal("launches are not held back")
	}
	return until.Sub(f.Clock)
}

// timeOut deletes a claim that has not joined, in the state that the fixture has.
func timeOut(f *controllertest.Fixture, r *Reconciler, name string) {
	f.Reconcile(r, name)
	f.Do(f.API.Delete(f.Context(), f.Claim(name)))
	f.Reconcile(r, name)
}

// A wave of claims that do not join for an unknown cause is relaunched one by one, with pauses that grow.
func TestClaimsThatTimeOutForAnUnknownCauseAreRelaunchedOneAtATime(t *testing.T) {
	f := controllertest.New(t, class(), ofPool("general", launched("a")), ofPool("general", launched("b")))
	o := &fakeCloud{}
	r := reconciler(f, o)
	guard := NewLaunchGuard(o, r.Breakers, f.Now)
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	f.Reconcile(r, "a")
	f.Reconcile(r, "b")
	if _, _, held := guard.PoolHeld("general", "default"); held {
		t.Fatal("claims are late for an unknown cause, and that holds others back already")
	}
	f.Clock = controllertest.Start.Add(15 * time.Minute)
	timeOut(f, r, "a")
	timeOut(f, r, "b")
	finding, _, held := guard.PoolHeld("general", "default")
	if !held || finding.Cause != "NodesDoNotJoin" || !strings.Contains(finding.Message, "NodePool general") ||
		!strings.Contains(finding.Message, "NodeClaim") {
		t.Fatalf("held %v: %+v", held, finding)
	}
	if got := launches(t, guard, "other", "y"); len(got) != 1 {
		t.Error("another pool is held back")
	}
	probes(t, guard, f, func(probe string) {
		claim := ofPool("general", launched(probe))
		condition.SetTrue(claim, karpv1.ConditionLaunched, f.Clock)
		f.Do(f.API.Create(f.Context(), claim))
		f.Clock = f.Clock.Add(10 * time.Minute)
		f.Reconcile(r, probe)
		if got := launches(t, guard, "general", probe+"-late"); len(got) > 0 {
			t.Fatalf("%v launched while %s may still join", got, probe)
		}
		f.Clock = f.Clock.Add(5 * time.Minute)
		timeOut(f, r, probe)
	})
	joined := ofPool("general", launched("ok"))
	condition.SetTrue(joined, karpv1.ConditionRegistered, f.Clock.Add(5*time.Second))
	f.Do(f.API.Create(f.Context(), joined))
	f.Reconcile(r, "ok")
	if _, _, held := guard.PoolHeld("general", "default"); held {
		t.Error("a node has joined, and launches are held back")
	}
}

// A cause of one claim alone, one that is held back otherwise, or a deletion on purpose does not hold back the pool.
func TestClaimsThatEndOtherwiseDoNotHoldTheirPoolBack(t *testing.T) {
	timeout := controllertest.Start.Add(15 * time.Minute)
	likely := cloudprovider.Finding{Cause: "BootstrapFailed", Certainty: cloudprovider.Likely, Message: "m"}
	for name, tt := range map[string]struct {
		found   []cloudprovider.Finding
		others  bool // have joined meanwhile
		deleted time.Time
		held    bool
	}{
		"nothing explains it":            {deleted: timeout, held: true},
		"what explains it is not sure":   {found: []cloudprovider.Finding{likely}, deleted: timeout, held: true},
		"a certain fault of the class":   {found: []cloudprovider.Finding{untrust}, deleted: timeout},
		"others have joined since":       {others: true, deleted: timeout},
		"somebody has deleted the claim": {deleted: controllertest.Start.Add(14 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			claim := ofPool("general", launched("a"))
			other := ofPool("general", launched("b"))
			if tt.others {
				condition.SetTrue(other, karpv1.ConditionRegistered, controllertest.Start.Add(10*time.Minute))
			}
			claim.DeletionTimestamp = &metav1.Time{Time: tt.deleted}
			f := controllertest.New(t, class(), other)
			r := reconciler(f, &fakeCloud{found: tt.found})
			f.Clock = controllertest.Start.Add(12 * time.Minute)
			f.Reconcile(r, "b")
			alive := claim.DeepCopy()
			alive.DeletionTimestamp = nil
			f.Do(f.API.Create(f.Context(), alive))
			f.Reconcile(r, "a")
			f.Clock = controllertest.Start.Add(15 * time.Minute)
			terminated := controllertest.New(t, class(), other.DeepCopy(), claim)
			r.Client = terminated.API
			terminated.Reconcile(r, "a")
			if _, _, held := NewLaunchGuard(&fakeCloud{}, r.Breakers, f.Now).PoolHeld("general", "default"); held != tt.held {
				t.Errorf("held %v, want %v", held, tt.held)
			}
		})
	}
}
