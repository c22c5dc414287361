package liveness

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/fixture"
)

func TestLateClaims(t *testing.T) {
	tests := []struct {
		name   string
		claim  *karpv1.NodeClaim
		age    time.Duration
		wait   time.Duration
		reason string
	}{
		{"row 6: four minutes without instance", fixture.Claim("a"), 4 * time.Minute, time.Minute, ""},
		{"row 7: six minutes without instance", fixture.Claim("a"), 6 * time.Minute, 0, "launch_timeout"},
		{"row 9: the condition's time decides, not the claim's", fixture.Claim("a", func(c *karpv1.NodeClaim) {
			condition.SetFalse(c, karpv1.ConditionLaunched, "X", "", fixture.Start.Add(time.Hour))
		}), time.Hour, LaunchTimeout, ""},
		{"row 10: twenty minutes without Node", fixture.Claim("a", fixture.Launched), 20 * time.Minute, 0, "registration_timeout"},
		{"row 11: registered, never initialized", fixture.Claim("a", fixture.Registered), 20 * time.Minute, 0, ""},
		{"row 1: another provider's", fixture.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), time.Hour, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := fixture.New(t, tt.claim)
			f.Clock = f.Clock.Add(tt.age)
			result := f.Reconcile(&Reconciler{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now}, "a")
			if ended := f.Claim("a").DeletionTimestamp != nil; ended != (tt.reason != "") || result.RequeueAfter != tt.wait {
				t.Errorf("ended %v, comes back after %v; want %q, %v", ended, result.RequeueAfter, tt.reason, tt.wait)
			}
			if tt.reason != "" && f.Counted(tt.reason) != 1 {
				t.Errorf("not counted as %s", tt.reason)
			}
		})
	}
}

// The claim launched at the last moment, and the cache does not show it yet.
func TestLaunchedAtTheLastMoment(t *testing.T) {
	f := fixture.New(t, fixture.Claim("a"))
	stale := f.Claim("a")
	c := f.Claim("a")
	fixture.Launched(c)
	f.Do(f.API.Status().Update(f.Context(), c))
	f.Clock = f.Clock.Add(LaunchTimeout)
	r := &Reconciler{Client: interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*karpv1.NodeClaim))
			return nil
		},
	}), Metrics: f.Metrics, Log: f.Log, Now: f.Now}
	if _, err := f.Try(r, "a"); !apierrors.IsConflict(err) || f.Claim("a").DeletionTimestamp != nil {
		t.Errorf("error %v: a claim that has its instance was ended for having none", err)
	}
}
