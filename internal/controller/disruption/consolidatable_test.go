package disruption

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

var start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func TestConsolidateAfter(t *testing.T) {
	tests := []struct {
		name        string
		after       karpv1.NillableDuration
		initialized bool
		lastEvent   time.Duration // after start; 0 for none
		now         time.Duration
		quiet       bool
		wait        time.Duration
	}{
		{"last event now, one minute to go", karpv1.After(time.Minute), true, 5 * time.Minute, 5 * time.Minute, false, time.Minute},
		{"a minute later", karpv1.After(time.Minute), true, 5 * time.Minute, 6 * time.Minute, true, 0},
		{"no pod ever: from initialization", karpv1.After(time.Minute), true, 0, 30 * time.Second, false, 30 * time.Second},
		{"not initialized", karpv1.After(0), false, 0, time.Hour, false, 0},
		{"0s: as soon as initialized", karpv1.After(0), true, time.Second, time.Second, true, 0},
		{"Never", karpv1.Never(), true, 0, time.Hour, false, 0},
		{"unset is 0s", karpv1.NillableDuration{}, true, 0, 0, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim, pool := &karpv1.NodeClaim{}, &karpv1.NodePool{}
			pool.Spec.Disruption.ConsolidateAfter = tt.after
			if tt.initialized {
				condition.SetTrue(claim, karpv1.ConditionInitialized, start)
			}
			if tt.lastEvent > 0 {
				claim.Status.LastPodEventTime = metav1.Time{Time: start.Add(tt.lastEvent)}
			}
			quiet, wait := consolidatable(claim, pool, start.Add(tt.now))
			if quiet != tt.quiet || wait != tt.wait {
				t.Errorf("quiet %v, wait %v; want %v, %v", quiet, wait, tt.quiet, tt.wait)
			}
		})
	}
}

// Row 85: a claim of a pool of fixed size is never consolidatable, however long its node was left alone.
func TestStaticPoolIsNeverConsolidatable(t *testing.T) {
	replicas := int64(1)
	claim, pool := &karpv1.NodeClaim{}, &karpv1.NodePool{}
	pool.Spec.Replicas = &replicas
	condition.SetTrue(claim, karpv1.ConditionInitialized, start)
	if quiet, wait := consolidatable(claim, pool, start.Add(time.Hour)); quiet || wait != 0 {
		t.Errorf("quiet %v, wait %v", quiet, wait)
	}
}

// The condition follows what happens to the pods of the node, and is written only when it changes.
func TestConsolidatableFollowsPods(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Pool("general", func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute) }),
		controllertest.Claim("a", controllertest.Initialized),
	)
	r := &Consolidatable{Client: f.API, Log: f.Log, Now: f.Now}
	version := f.Claim("a").ResourceVersion
	for _, step := range []struct {
		name     string
		after    time.Duration
		podEvent bool
		want     bool
		writes   bool
	}{
		{"just initialized", 0, false, false, false},
		{"a minute later", time.Minute, false, true, true},
		{"nothing has changed", time.Hour, false, true, false},
		{"a pod comes", 0, true, false, true},
		{"nothing has changed again", time.Second, false, false, false},
		{"a minute after the pod", time.Minute, false, true, true},
	} {
		f.Clock = f.Clock.Add(step.after)
		if step.podEvent {
			claim := f.Claim("a")
			claim.Status.LastPodEventTime = metav1.NewTime(f.Clock)
			f.Do(f.API.Status().Update(t.Context(), claim))
			version = f.Claim("a").ResourceVersion
		}
		f.Reconcile(r, "a")
		got := f.Claim("a")
		if is := condition.IsTrue(got, karpv1.ConditionConsolidatable); is != step.want {
			t.Errorf("%s: consolidatable %v", step.name, is)
		}
		if written := got.ResourceVersion != version; written != step.writes {
			t.Errorf("%s: written %v", step.name, written)
		}
		version = got.ResourceVersion
	}
}
