// Package collect clears away what has lost its other half: instances without a NodeClaim, and NodeClaims
// without an instance.
package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metric"
)

const (
	// minAge spares instances whose claim may not say yet that it has them.
	minAge = 30 * time.Second
	// early and later are the periods of collection: often after a start, when leftovers of the process
	// before are likely, seldom afterwards.
	early, later = 10 * time.Second, 2 * time.Minute
	earlyPasses  = 20
	// manyAtOnce instances without a claim, or manyShare of the fleet if that is more, are no accident but
	// a mistake in the books: nothing is deleted then.
	manyAtOnce, manyShare = 3, 0.05
)

// fleet lists the instances under this cluster's name, and ends those that are ours.
type fleet interface {
	List(ctx context.Context) ([]cloud.Instance, error)
	Terminate(ctx context.Context, providerID string) error
}

// Instances ends instances of ours that no NodeClaim wants.
type Instances struct {
	Client client.Client
	// Live reads the API server itself: a claim that the cache misses must not cost an instance.
	Live    client.Reader
	Cloud   fleet
	Metrics *metric.Metrics
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

// pass lists instances first and claims after: a claim launched in between is then never missed.
func (c *Instances) pass(ctx context.Context) error {
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return err
	}
	c.countForeign(instances)
	var claims karpv1.NodeClaimList
	if err := c.Live.List(ctx, &claims); err != nil {
		return fmt.Errorf("read node claims from the API server: %w", err)
	}
	strays := strays(instances, claims.Items, c.Now())
	if len(strays) == 0 {
		return nil
	}
	if limit := max(manyAtOnce, int(manyShare*float64(len(instances)))); len(strays) > limit {
		return fmt.Errorf("%d of %d instances have no node claim, more than the %d that may be collected in one pass: nothing was deleted; compare `kubectl get nodeclaims` with the instances tagged for this cluster", len(strays), len(instances), limit)
	}
	var errs []error
	for _, i := range strays {
		errs = append(errs, c.end(ctx, i))
	}
	return errors.Join(errs...)
}

// strays are the instances that are ours, old enough, and wanted by no claim: neither by provider ID nor,
// while a launch is in progress, by name.
func strays(instances []cloud.Instance, claims []karpv1.NodeClaim, now time.Time) []cloud.Instance {
	byProvider, byName := map[string]bool{}, map[string]bool{}
	for i := range claims {
		if awsv1.IsEC2NodeClass(claims[i].Spec.NodeClassRef) {
			byProvider[claims[i].Status.ProviderID] = true
			byName[claims[i].Name] = byName[claims[i].Name] || claims[i].Status.ProviderID == ""
		}
	}
	var out []cloud.Instance
	for _, i := range instances {
		if i.Owner != cloud.Ours || i.State == cloud.ShuttingDown || now.Sub(i.LaunchedAt) < minAge {
			continue
		}
		if byProvider[i.ProviderID] || byName[i.NodeClaim] {
			continue
		}
		out = append(out, i)
	}
	return out
}

// end terminates a stray instance and deletes the Node that it made, if any.
func (c *Instances) end(ctx context.Context, i cloud.Instance) error {
	if err := c.Cloud.Terminate(ctx, i.ProviderID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
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

func (c *Instances) countForeign(instances []cloud.Instance) {
	c.Metrics.ForeignInstances.Reset()
	for _, i := range instances {
		if i.Owner == cloud.Foreign {
			c.Metrics.ForeignInstances.WithLabelValues(i.Tags[awsv1.TagClusterUID]).Inc()
		}
	}
}
