package liveness

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestNextDeadline(t *testing.T) {
	created := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		claim  func(c *karpv1.NodeClaim)
		at     time.Duration // after creation
		reason string
	}{
		{"new claim: five minutes to launch", func(*karpv1.NodeClaim) {}, 5 * time.Minute, "launch_timeout"},
		{
			"a failing launch counts from creation, not from its last failure",
			func(c *karpv1.NodeClaim) {
				condition.SetUnknown(c, karpv1.ConditionLaunched, condition.Because("LaunchFailed", "boom"), created.Add(4*time.Minute))
			},
			5 * time.Minute, "launch_timeout",
		},
		{
			"launched: fifteen minutes since creation to register",
			func(c *karpv1.NodeClaim) {
				condition.SetTrue(c, karpv1.ConditionLaunched, created.Add(time.Minute))
			},
			15 * time.Minute, "registration_timeout",
		},
		{
			"several nodes matched: fifteen minutes since that was found",
			func(c *karpv1.NodeClaim) {
				condition.SetTrue(c, karpv1.ConditionLaunched, created.Add(time.Minute))
				condition.SetFalse(c, karpv1.ConditionRegistered, condition.Because("MultipleNodesFound", ""), created.Add(2*time.Minute))
			},
			17 * time.Minute, "registration_timeout",
		},
		{
			"registered and never initialized: no deadline",
			func(c *karpv1.NodeClaim) {
				condition.SetTrue(c, karpv1.ConditionLaunched, created)
				condition.SetTrue(c, karpv1.ConditionRegistered, created)
			},
			0, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: created}}}
			tt.claim(claim)
			got, ok := nextDeadline(claim, LaunchTimeout)
			if ok != (tt.reason != "") || got.reason != tt.reason {
				t.Fatalf("deadline for %q (%v), want %q", got.reason, ok, tt.reason)
			}
			if ok && !got.at.Equal(created.Add(tt.at)) {
				t.Errorf("deadline %v after creation, want %v", got.at.Sub(created), tt.at)
			}
		})
	}
}
