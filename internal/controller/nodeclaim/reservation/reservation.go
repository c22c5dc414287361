// Package reservation follows capacity reservations to their end: the nodes of a capacity block leave while there is time to drain
// them, and an instance that has outlived its reservation is called what it is then billed as.
package reservation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// every is how often claims are compared with their reservations.
const every = time.Minute

// reasonExpiring is the reason, in metrics, of a claim that leaves with its capacity block.
const reasonExpiring = "capacity_reservation_expiring"

// expiring is the state of a capacity block whose nodes are to leave, in a node class's status.
const expiring = "expiring"

// lister lists the instances of this cluster, and maybe of others.
type lister interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
}

// Loop looks at all claims in reservations.
type Loop struct {
	Client  client.Client
	Cloud   lister
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// NeedLeaderElection makes sure that only one process deletes and relabels.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start looks every minute until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for {
		if err := l.pass(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error("following capacity reservations", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (l *Loop) pass(ctx context.Context) error {
	var claims karpv1.NodeClaimList
	if err := l.Client.List(ctx, &claims); err != nil {
		return err
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool { return !reserved(&c) })
	if len(claims.Items) == 0 {
		return nil
	}
	ending, err := l.ending(ctx)
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
		claim := &claims.Items[i]
		if ending[claim.Labels[awsv1.LabelReservationID]] {
			errs = append(errs, l.leave(ctx, claim))
		} else if outlived(claim, byID[claim.Status.ProviderID]) {
			errs = append(errs, l.demote(ctx, claim))
		}
	}
	return errors.Join(errs...)
}

// reserved reports whether a claim is in a reservation as far as is known, and there to stay.
func reserved(c *karpv1.NodeClaim) bool {
	return awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) && c.DeletionTimestamp == nil && c.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeReserved
}

// ending are the reservations whose nodes are to leave, by ID.
func (l *Loop) ending(ctx context.Context) (map[string]bool, error) {
	var classes awsv1.EC2NodeClassList
	if err := l.Client.List(ctx, &classes); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range classes.Items {
		for _, r := range classes.Items[i].Status.CapacityReservations {
			if r.State == expiring {
				out[r.ID] = true
			}
		}
	}
	return out, nil
}

// outlived reports whether a reserved claim's instance is one of ours that is in no reservation any more. The reverse
// does not happen: what was bought on demand stays so.
func outlived(claim *karpv1.NodeClaim, i cloudprovider.Instance) bool {
	return i.ProviderID != "" && i.ProviderID == claim.Status.ProviderID && i.Owner == cloudprovider.Ours && i.CapacityType == karpv1.CapacityTypeOnDemand
}

func (l *Loop) leave(ctx context.Context, claim *karpv1.NodeClaim) error {
	if err := l.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil {
		return client.IgnoreNotFound(err)
	}
	l.Log.Info("deleting nodeclaim, its capacity block ends soon", "NodeClaim", claim.Name, "reservation", claim.Labels[awsv1.LabelReservationID])
	l.Metrics.Disrupted(claim, reasonExpiring)
	return nil
}

// demote relabels the Node first: the claim's label is what tells a later pass that there is something left to do.
func (l *Loop) demote(ctx context.Context, claim *karpv1.NodeClaim) error {
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
	l.Log.Info("the capacity reservation has ended, the instance is on-demand now", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID)
	return nil
}

// relabel makes an object on-demand, if it is as it was read.
func (l *Loop) relabel(ctx context.Context, o client.Object) error {
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no API object", o)
	}
	labels := o.GetLabels()
	labels[karpv1.LabelCapacityType] = karpv1.CapacityTypeOnDemand
	for _, key := range []string{awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible} {
		delete(labels, key)
	}
	o.SetLabels(labels)
	return client.IgnoreNotFound(l.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}
