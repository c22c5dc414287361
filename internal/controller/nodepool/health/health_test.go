package health

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

const unknown, healthy, unhealthy = metav1.ConditionUnknown, metav1.ConditionTrue, metav1.ConditionFalse

// of makes a claim the pool's of that UID.
func of(uid types.UID) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "NodePool", Name: "general", UID: uid}}
	}
}

// general is the pool, its condition set to a status for its present generation.
func general(status metav1.ConditionStatus, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	return controllertest.Pool("general", append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) {
		p.UID, p.Generation, p.Status.NodeClassObservedGeneration = "uid-pool", 2, 3
		for _, typ := range p.ConditionTypes().Dependents {
			condition.SetTrue(p, typ, controllertest.Start)
		}
		if status != "" {
			condition.Set(
				p,
				metav1.Condition{Type: karpv1.ConditionNodeRegistrationHealthy, Status: status, Reason: "Before"},
				controllertest.Start,
			)
		}
	}}, change...)...)
}

func class() *awsv1.EC2NodeClass {
	return controllertest.Class(func(c *awsv1.EC2NodeClass) { c.Generation = 3 })
}

func stateOf(f *controllertest.Fixture) metav1.Condition {
	pool := controllertest.Pool("general")
	f.Get(pool)
	c, _ := condition.Get(pool, karpv1.ConditionNodeRegistrationHealthy)
	return c
}

func TestHealth(t *testing.T) {
	const failed, registered = false, true
	for _, tt := range []struct {
		name   string
		status metav1.ConditionStatus
		events []bool
		want   metav1.ConditionStatus
	}{
		{"one failure decides nothing", unknown, []bool{failed}, unknown},
		{"two failures, from Unknown", unknown, []bool{failed, failed}, unhealthy},
		{"two failures, from True", healthy, []bool{failed, failed}, unhealthy},
		{"one success does not outweigh two failures", unknown, []bool{failed, failed, registered}, unhealthy},
		{"two successes do not, three do", unknown, []bool{failed, failed, registered, registered}, unhealthy},
		{"three successes push one failure out", unknown, []bool{failed, failed, registered, registered, registered}, healthy},
		{"False without memory, one success", unhealthy, []bool{registered}, healthy},
		{"a success", unknown, []bool{registered}, healthy},
		{"one failure among successes", unknown, []bool{registered, registered, failed, registered}, healthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, general(tt.status))
			tracker := NewTracker(f.API, f.Now)
			for n, ok := range tt.events {
				claim := controllertest.Claim(fmt.Sprint(n), of("uid-pool"), controllertest.Launched)
				count := tracker.Failed
				if ok {
					count = tracker.Registered
				}
				if err := count(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
			}
			if got := stateOf(f); got.Status != tt.want {
				t.Errorf("NodeRegistrationHealthy is %s, want %s", got.Status, tt.want)
			}
			pool := controllertest.Pool("general")
			f.Get(pool)
			if !condition.IsReady(pool) {
				t.Error("the pool is not ready for it")
			}
		})
	}
}

func TestCauseOfUnhealthiness(t *testing.T) {
	for _, tt := range []struct {
		name            string
		claim           *karpv1.NodeClaim
		reason, message string
	}{
		{"launched", controllertest.Claim("a", of("uid-pool"), controllertest.Launched), "RegistrationFailed", "Failed to register node"},
		{"not launched", controllertest.Claim("a", of("uid-pool"), func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionLaunched, condition.Because("Unauthorized", "may not ec2:CreateFleet"), controllertest.Start)
		}), "Unauthorized", "may not ec2:CreateFleet"},
	} {
		f := controllertest.New(t, general(healthy))
		tracker := NewTracker(f.API, f.Now)
		for range 2 {
			if err := tracker.Failed(t.Context(), tt.claim); err != nil {
				t.Fatal(err)
			}
		}
		if got := stateOf(f); got.Reason != tt.reason || got.Message != tt.message {
			t.Errorf("%s: %s: %s", tt.name, got.Reason, got.Message)
		}
	}
}

// Claims of a deleted pool with the same name, and claims of no pool, do not count.
func TestOnlyThePoolsOwnClaimsCount(t *testing.T) {
	for name, claim := range map[string]*karpv1.NodeClaim{
		"of a pool that had the name before": controllertest.Claim("a", of("uid-of-the-old-pool"), controllertest.Launched),
		"owned by nobody":                    controllertest.Claim("a", controllertest.Launched),
		"without the pool's label": controllertest.Claim("a", of("uid-pool"), controllertest.Launched,
			func(c *karpv1.NodeClaim) { c.Labels = nil }),
		"of a pool that has gone": controllertest.Claim("a", of("uid-pool"), controllertest.Launched,
			func(c *karpv1.NodeClaim) { c.Labels[karpv1.LabelNodePool] = "gone" }),
	} {
		f := controllertest.New(t, general(unknown))
		tracker := NewTracker(f.API, f.Now)
		for _, count := range []func(context.Context, *karpv1.NodeClaim) error{tracker.Failed, tracker.Failed, tracker.Registered} {
			if err := count(t.Context(), claim); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := stateOf(f); got.Status != unknown || got.Reason != "Before" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// Somebody else writes the pool's status at the same time: the outcome is not lost.
func TestConflict(t *testing.T) {
	f := controllertest.New(t, general(unknown))
	raced := false
	c := interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			if !raced {
				raced = true
				pool := controllertest.Pool("general")
				f.Get(pool)
				pool.Status.Nodes = new(int64)
				f.Do(f.API.Status().Update(ctx, pool))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	if err := NewTracker(c, f.Now).Registered(t.Context(), controllertest.Claim("a", of("uid-pool"), controllertest.Registered)); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(f); !raced || got.Status != healthy {
		t.Errorf("raced %v, %+v", raced, got)
	}
}

func TestChangesBeginAnew(t *testing.T) {
	for _, tt := range []struct {
		name string
		pool *karpv1.NodePool
		want metav1.ConditionStatus
		// next is the state after one more success, which shows what the window holds.
		next metav1.ConditionStatus
	}{
		{"the pool has changed", general(unhealthy, func(p *karpv1.NodePool) { p.Generation = 3 }), unknown, healthy},
		{
			"its node class has changed", general(unhealthy, func(p *karpv1.NodePool) { p.Status.NodeClassObservedGeneration = 2 }), unknown,
			healthy,
		},
		{"nothing has changed, unhealthy", general(unhealthy), unhealthy, unhealthy},
		{"nothing has changed, healthy", general(healthy), healthy, healthy},
		{"a new pool", general(""), unknown, healthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.pool, class())
			tracker := NewTracker(f.API, f.Now)
			for range 2 {
				f.Reconcile(&Reconciler{Client: f.API, Tracker: tracker, Log: f.Log}, "general")
			}
			pool := controllertest.Pool("general")
			f.Get(pool)
			if got := stateOf(f); got.Status != tt.want || pool.Status.NodeClassObservedGeneration != 3 {
				t.Errorf("NodeRegistrationHealthy is %s for generation %d of the node class", got.Status, pool.Status.NodeClassObservedGeneration)
			}
			if err := tracker.Registered(t.Context(), controllertest.Claim("a", of("uid-pool"), controllertest.Registered)); err != nil {
				t.Fatal(err)
			}
			if got := stateOf(f); got.Status != tt.next {
				t.Errorf("after a success: %s, want %s", got.Status, tt.next)
			}
		})
	}
	t.Run("without node class nothing is judged", func(t *testing.T) {
		f := controllertest.New(t, general(""))
		f.Reconcile(&Reconciler{Client: f.API, Tracker: NewTracker(f.API, f.Now), Log: f.Log}, "general")
		if got := stateOf(f); got.Type != "" {
			t.Errorf("%+v", got)
		}
	})
}
