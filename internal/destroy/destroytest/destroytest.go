// Package destroytest has Guards and permits for tests of those who delete: EC2 describes each instance as ours, and nothing is limited, or
// deletions are paused.
package destroytest

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// Guard returns a Guard that deletes through c.
func Guard(c client.Client, now func() time.Time) *destroy.Guard {
	return &destroy.Guard{Client: c, Live: c, Cloud: ours{}, Budget: Budget(now), Log: slog.New(slog.DiscardHandler), Now: now}
}

// Budget returns a Budget without limits.
func Budget(now func() time.Time) *destroy.Budget {
	return destroy.NewBudget(destroy.BudgetConfig{
		Limits: destroy.Limits{}, Store: &destroy.Memory{}, Now: now,
		Fleet: func(context.Context) (destroy.Fleet, map[string]*karpv1.NodePool, error) { return nil, nil, nil },
	})
}

// Paused returns a Guard that deletes through c, while deletions of a NodePool are paused. No other NodePool exists.
func Paused(c client.Client, now func() time.Time, pool string) *destroy.Guard {
	store := &destroy.Memory{}
	pauses := map[string]destroy.Pause{pool: {Since: now(), Kind: destroy.Planned, Message: "too many"}}
	if err := store.Save(context.Background(), destroy.Ledger{Pauses: pauses}); err != nil {
		panic(err) // only an error of this package
	}
	existing := &karpv1.NodePool{}
	existing.Name = pool
	guard := Guard(c, now)
	guard.Budget = destroy.NewBudget(destroy.BudgetConfig{
		Limits: destroy.Limits{}, Store: store, Now: now,
		Fleet: func(context.Context) (destroy.Fleet, map[string]*karpv1.NodePool, error) {
			return nil, map[string]*karpv1.NodePool{pool: existing}, nil
		},
	})
	return guard
}

// Permit returns a permit for an instance without a claim.
func Permit(providerID string) destroy.Permit {
	permit, err := Guard(nil, time.Now).OfNoClaim(context.Background(), cloudprovider.Instance{ProviderID: providerID})
	if err != nil {
		panic(err) // only an error of this package
	}
	return permit
}

// PermitFor returns a permit for an instance of a claim that is being deleted.
func PermitFor(claim *karpv1.NodeClaim, providerID string) destroy.Permit {
	live := claim.DeepCopy()
	live.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	guard := Guard(nil, time.Now)
	guard.Live = onlyClaim{live}
	permit, err := guard.OfClaim(context.Background(), claim, providerID)
	if err != nil {
		panic(err) // only an error of this package
	}
	return permit
}

// onlyClaim is an API server with one claim.
type onlyClaim struct{ claim *karpv1.NodeClaim }

func (c onlyClaim) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.claim.DeepCopyInto(o.(*karpv1.NodeClaim))
	return nil
}

func (onlyClaim) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// ours describes any instance as ours.
type ours struct{}

// Get implements destroy.Cloud.
func (ours) Get(_ context.Context, providerID string) (cloudprovider.Instance, error) {
	return cloudprovider.Instance{ProviderID: providerID, Owner: cloudprovider.Ours, State: cloudprovider.Running}, nil
}
