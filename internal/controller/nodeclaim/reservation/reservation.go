// Package reservation handles the expiration of capacity reservations: it deletes the NodeClaims of a capacity block
// while there is time to drain them, and relabels an instance that has outlived its reservation as on-demand, as EC2
// bills it.
package reservation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// interval is the time between two comparisons of claims with their reservations. EC2 terminates the instances of a
// capacity block half an hour before its end, so a minute is precise enough.
const interval = time.Minute

// reasonExpiring is the reason, in metrics, of a claim that is deleted with its capacity block.
const reasonExpiring = "capacity_reservation_expiring"

// expiring is the state, in a node class's status, of a capacity block with nodes that must drain.
const stateExpiring = "expiring"

// lister lists the instances of this cluster, and maybe of others.
type lister interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
}

// Loop checks all claims in reservations.
type Loop struct {
	Client  client.Client
	Guard   *destroy.Guard
	Cloud   lister
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// NeedLeaderElection makes sure that only one replica deletes and relabels.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start checks once per interval until ctx is canceled.
func (l *Loop) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := l.pass(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error("checking capacity reservations", "error", err)
		}
	}, interval)
	return nil
}

func (l *Loop) pass(ctx context.Context) error {
	var claims karpv1.NodeClaimList
	if err := l.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil { // few are reserved, and only they are copied
		return err
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool { return !reserved(&c) })
	if len(claims.Items) == 0 {
		return nil
	}
	expiring, err := l.expiringReservations(ctx)
	if err != nil {
		return err
	}
	instances, err := l.Cloud.List(ctx)
	if err != nil {
		return err
	}
	byID := make(map[string]cloudprovider.Instance, len(instances))
	for _, i := range instances {
		byID[i.ProviderID] = i
	}
	var errs []error
	for i := range claims.Items {
		claim := claims.Items[i].DeepCopy()
		if expiring[claim.Labels[awsv1.LabelReservationID]] {
			errs = append(errs, l.delete(ctx, claim))
		} else if outlivesReservation(claim, byID[claim.Status.ProviderID]) {
			errs = append(errs, l.relabelOnDemand(ctx, claim))
		}
	}
	return errors.Join(errs...)
}

// reserved reports whether a claim is labeled as in a reservation, and not being deleted.
func reserved(c *karpv1.NodeClaim) bool {
	return awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) && c.DeletionTimestamp == nil &&
		c.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeReserved
}

// expiringReservations returns the reservations with nodes that must drain, by ID.
func (l *Loop) expiringReservations(ctx context.Context) (map[string]bool, error) {
	var classes awsv1.EC2NodeClassList
	if err := l.Client.List(ctx, &classes); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range classes.Items {
		for _, r := range classes.Items[i].Status.CapacityReservations {
			if r.State == stateExpiring {
				out[r.ID] = true
			}
		}
	}
	return out, nil
}

// outlivesReservation reports whether a reserved claim's instance is one of ours that is in no reservation any more.
// The reverse does not happen: an on-demand instance stays on-demand.
func outlivesReservation(claim *karpv1.NodeClaim, i cloudprovider.Instance) bool {
	return i.ProviderID != "" && i.ProviderID == claim.Status.ProviderID && i.Owner == cloudprovider.Ours &&
		i.CapacityType == karpv1.CapacityTypeOnDemand
}

func (l *Loop) delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	if err := l.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Interrupted, Reason: reasonExpiring}); err != nil {
		return client.IgnoreNotFound(err)
	}
	l.Log.Info(
		"deleting nodeclaim, its capacity block expires soon",
		"NodeClaim",
		claim.Name,
		"reservation",
		claim.Labels[awsv1.LabelReservationID],
	)
	l.Metrics.Disrupted(claim, reasonExpiring)
	return nil
}

// relabelOnDemand relabels the Node first: by the claim's label a later pass finds that work is left.
func (l *Loop) relabelOnDemand(ctx context.Context, claim *karpv1.NodeClaim) error {
	nodes, err := cluster.NodesOf(ctx, l.Client, claim.Status.ProviderID)
	if err != nil {
		return err
	}
	for i := range nodes {
		if nodes[i].Labels[karpv1.LabelRegistered] != "true" {
			continue // it gets the claim's labels when it registers
		}
		if err := l.relabel(ctx, &nodes[i]); err != nil {
			return fmt.Errorf("relabel node %s: %w", nodes[i].Name, err)
		}
	}
	if err := l.relabel(ctx, claim); err != nil {
		return fmt.Errorf("relabel claim %s: %w", claim.Name, err)
	}
	l.Log.Info(
		"the capacity reservation has expired, the instance is on-demand now",
		"NodeClaim",
		claim.Name,
		"provider-id",
		claim.Status.ProviderID,
	)
	return nil
}

// relabel makes an object on-demand, if it is unchanged since it was read.
func (l *Loop) relabel(ctx context.Context, o client.Object) error {
	_, err := patch.Object(ctx, l.Client, o, func() {
		labels := o.GetLabels()
		labels[karpv1.LabelCapacityType] = karpv1.CapacityTypeOnDemand
		for _, key := range []string{awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible} {
			delete(labels, key)
		}
		o.SetLabels(labels)
	})
	return client.IgnoreNotFound(err)
}
