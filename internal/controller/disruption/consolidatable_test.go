package disruption

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
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
