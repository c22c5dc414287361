// Package garbagecollection clears away what has lost its other half: instances without a NodeClaim, and NodeClaims
// without an instance.
package garbagecollection

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
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

const (
	// minAge spares instances whose claim may not say yet that it has them.
	minAge = 30 * time.Second
	// early and later are the periods of collection: often after a start, when leftovers of the process
	// before are likely, seldom afterwards.
	early, later = 10 * time.Second, 2 * time.Minute
	earlyPasses  = 20
)

// lister lists the instances under this cluster's name, each with its owner.
type lister interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
}

// fleet lists instances, ends those that are ours, and knows of launches that are under way.
type fleet interface {
	lister
	Terminate(ctx context.Context, providerID string) error
	Launching(claimUID string) bool
}

// Instances ends instances of ours that no NodeClaim wants.
type Instances struct {
	Client client.Client
	// Live reads the API server itself: a claim that the cache misses must not cost an instance.
	Live    client.Reader
	Cloud   fleet
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// NeedLeaderElection makes sure that only one process collects.
func (c *Instances) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (c *Instances) Start(ctx context.Context) error {
	every(ctx, func(ctx context.Context) {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error("collecting instances", "error", err)
		}
	})
	return nil
}

// every runs pass often at first and seldom later, until ctx ends.
func every(ctx context.Context, pass func(context.Context)) {
	for n := 0; ; n++ {
		pass(ctx)
		wait := later
		if n < earlyPasses {
			wait = early
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// pass lists instances first and claims after: a claim launched in between is then never missed. The claims are
// read from the API server itself, whose answer is that of a quorum.
func (c *Instances) pass(ctx context.Context) error {
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return err
	}
	var claims karpv1.NodeClaimList
	if err := c.Live.List(ctx, &claims); err != nil {
		return fmt.Errorf("read node claims from the API server: %w", err)
	}
	strays := slices.DeleteFunc(strays(instances, claims.Items, c.Now()), func(i cloudprovider.Instance) bool {
		return i.NodeClaimUID != "" && c.Cloud.Launching(i.NodeClaimUID)
	})
	own := owned(instances)
	if limit := blastradius.Collectable(own); len(strays) > limit {
		c.Metrics.CollectionRefused.Set(float64(len(strays)))
		err := fmt.Errorf("%d of this cluster's %d instances have no NodeClaim, more than the %d that may be collected in one pass: "+
			"nothing was deleted; compare `kubectl get nodeclaims` with the instances tagged for this cluster", len(strays), own, limit)
		return errors.Join(err, c.warn(ctx, err.Error()))
	}
	c.Metrics.CollectionRefused.Set(0)
	var errs []error
	for _, i := range strays {
		errs = append(errs, c.end(ctx, i))
	}
	return errors.Join(errs...)
}

// owned counts the instances that are certainly ours and not terminating: those of others say nothing of how many of ours may
// go in one pass.
func owned(instances []cloudprovider.Instance) int {
	n := 0
	for i := range instances {
		if instances[i].Owner == cloudprovider.Ours && instances[i].State != cloudprovider.ShuttingDown {
			n++
		}
	}
	return n
}

// warn says on every NodePool that collection has stopped.
func (c *Instances) warn(ctx context.Context, message string) error {
	var pools karpv1.NodePoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		c.Events.Warn(&pools.Items[i], "CollectionStopped", "%s", message)
	}
	return nil
}

// strays are the instances that are ours, old enough, and wanted by no claim: neither by provider ID nor,
// while its launch is not written down, by the claim that they were launched for.
func strays(instances []cloudprovider.Instance, claims []karpv1.NodeClaim, now time.Time) []cloudprovider.Instance {
	byProvider, launchingUID, launchingName, launches := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range claims {
		claim := &claims[i]
		if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		byProvider[claim.Status.ProviderID] = true
		if claim.Status.ProviderID == "" {
			// UIDs do not come again, names may. An instance that does not say for which UID goes by its name.
			launchingUID[string(claim.UID)], launchingName[claim.Name] = true, true
			// One of several that were launched together may be this claim's.
			if ticket, ok := cloudprovider.ParseTicket(claim.Annotations[karpv1.AnnotationLaunch]); ok {
				launches[ticket.Launch] = true
			}
		}
	}
	var out []cloudprovider.Instance
	for _, i := range instances {
		if i.Owner != cloudprovider.Ours || i.State == cloudprovider.ShuttingDown || now.Sub(i.LaunchedAt) < minAge {
			continue
		}
		wanted := launchingUID[i.NodeClaimUID]
		if i.NodeClaimUID == "" {
			wanted = launchingName[i.NodeClaim] || launches[i.Launch]
		}
		if byProvider[i.ProviderID] || wanted {
			continue
		}
		out = append(out, i)
	}
	return out
}

// end terminates a stray instance and deletes the Node that it made, if any.
func (c *Instances) end(ctx context.Context, i cloudprovider.Instance) error {
	if err := c.Cloud.Terminate(ctx, i.ProviderID); err != nil && !errors.Is(err, cloudprovider.ErrNotFound) {
		return err
	}
	c.Log.Info("garbage collected cloudprovider instance", "provider-id", i.ProviderID)
	nodes, err := cluster.NodesOf(ctx, c.Client, i.ProviderID)
	if err != nil {
		return err
	}
	for n := range nodes {
		err = errors.Join(err, client.IgnoreNotFound(c.Client.Delete(ctx, &nodes[n], client.Preconditions{UID: &nodes[n].UID})))
	}
	return err
}
