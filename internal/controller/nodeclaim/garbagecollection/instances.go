// Package garbagecollection deletes objects that have lost their counterpart: instances without a NodeClaim, and
// NodeClaims without an instance.
package garbagecollection

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
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

const (
	// minAge protects new instances: the claim of one may not have its provider ID yet.
	minAge = 30 * time.Second
	// startupInterval is the time between the first passes, with up to perPage instances: leftovers of the previous process are likely
	// after a start. It grows with the number of instances, since a pass lists all of them, and their claims: a fifth of a second of CPU
	// for perPage. steadyInterval is the time between the passes after startupTime.
	startupInterval, steadyInterval = 10 * time.Second, 2 * time.Minute
	startupTime                     = 20 * startupInterval
	perPage                         = 1000
	// recently sets how old the listing may be in which a pass looks for leftovers first. Adoption lists the instances more often.
	recently = time.Minute
)

// lister lists the instances that have this cluster's name, each with its owner.
type lister interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
}

// fleet lists instances, terminates those that are ours, and knows the launches in progress.
type fleet interface {
	lister
	// Recent is List, or a listing that began at most maxAge ago. The instances are shared, and must not be changed.
	Recent(ctx context.Context, maxAge time.Duration) ([]cloudprovider.Instance, error)
	Terminate(ctx context.Context, permit destroy.Permit) error
	Launching(claimUID string) bool
}

// Instances terminates instances of ours that belong to no NodeClaim.
type Instances struct {
	Client client.Client
	Guard  *destroy.Guard
	// Live reads from the API server: a claim that the cache lacks must not cost an instance.
	Live    client.Reader
	Cloud   fleet
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// NeedLeaderElection makes sure that only one replica collects.
func (c *Instances) NeedLeaderElection() bool { return true }

// Start collects until ctx is canceled, often at first and less often later.
func (c *Instances) Start(ctx context.Context) error {
	begin, seen := c.Now(), 0
	interval := func() time.Duration {
		if c.Now().Sub(begin) < startupTime {
			return min(startupInterval*time.Duration(1+seen/perPage), steadyInterval)
		}
		return steadyInterval
	}
	_ = wait.DelayFunc(interval).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		if seen, err = c.pass(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error("collecting instances", "error", err)
		}
		return false, nil
	}) // returns only the context's error
	return nil
}

// pass looks for leftovers in what is in memory, and collects if there may be any. It returns the number of instances.
func (c *Instances) pass(ctx context.Context) (seen int, err error) {
	instances, err := c.Cloud.Recent(ctx, recently)
	if err != nil {
		return 0, err
	}
	var cached karpv1.NodeClaimList
	if err := c.Client.List(ctx, &cached, client.UnsafeDisableDeepCopy); err != nil {
		return len(instances), err
	}
	if len(orphaned(instances, cached.Items, c.Now())) == 0 {
		c.Metrics.CollectionRefused.Set(0)
		return len(instances), nil
	}
	return c.collect(ctx)
}

// collect lists instances before claims, so that it never misses a claim launched in between. It reads the claims from the
// API server, which answers with a quorum. It returns the number of instances.
func (c *Instances) collect(ctx context.Context) (seen int, err error) {
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return 0, err
	}
	var claims karpv1.NodeClaimList
	if err := c.Live.List(ctx, &claims); err != nil {
		return len(instances), fmt.Errorf("read node claims from the API server: %w", err)
	}
	orphans := slices.DeleteFunc(orphaned(instances, claims.Items, c.Now()), func(i cloudprovider.Instance) bool {
		return i.NodeClaimUID != "" && c.Cloud.Launching(i.NodeClaimUID)
	})
	own := owned(instances)
	if limit := blastradius.DeletableLimit(own); len(orphans) > limit {
		c.Metrics.CollectionRefused.Set(float64(len(orphans)))
		err := fmt.Errorf("%d of this cluster's %d instances have no NodeClaim, more than the %d that may be collected in one pass: "+
			"nothing was deleted; compare `kubectl get nodeclaims` with the instances tagged for this cluster", len(orphans), own, limit)
		return len(instances), errors.Join(err, c.warnPools(ctx, err.Error()))
	}
	c.Metrics.CollectionRefused.Set(0)
	var errs []error
	for _, i := range orphans {
		err := c.terminate(ctx, i)
		if destroy.IsPaused(err) { // which NodePools show
			continue
		}
		errs = append(errs, err)
	}
	return len(instances), errors.Join(errs...)
}

// owned counts the running instances that are certainly ours. Instances of others must not raise the limit on how many
// of ours are terminated in one pass.
func owned(instances []cloudprovider.Instance) int {
	n := 0
	for i := range instances {
		if instances[i].Owner == cloudprovider.Ours && instances[i].State != cloudprovider.ShuttingDown {
			n++
		}
	}
	return n
}

// warnPools records on every NodePool that collection has stopped.
func (c *Instances) warnPools(ctx context.Context, message string) error {
	var pools karpv1.NodePoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		c.Events.Warn(&pools.Items[i], "CollectionStopped", "%s", message)
	}
	return nil
}

// orphaned returns the instances that are ours, old enough, and belong to no claim: neither by provider ID nor, while
// their launch is not recorded, by the claim that they were launched for.
func orphaned(instances []cloudprovider.Instance, claims []karpv1.NodeClaim, now time.Time) []cloudprovider.Instance {
	byProviderID, launchingUID, launchingName, launches := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range claims {
		claim := &claims[i]
		if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		byProviderID[claim.Status.ProviderID] = true
		if claim.Status.ProviderID == "" {
			// UIDs are unique, names are reused. An instance without a UID is matched by name.
			launchingUID[string(claim.UID)], launchingName[claim.Name] = true, true
			// One instance of a batch launch may be this claim's.
			if slot, ok := cloudprovider.ParseBatchSlot(claim.Annotations[karpv1.AnnotationLaunch]); ok {
				launches[slot.Launch] = true
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
		if byProviderID[i.ProviderID] || wanted {
			continue
		}
		out = append(out, i)
	}
	return out
}

// terminate terminates an orphaned instance and deletes its Node, if it has one.
func (c *Instances) terminate(ctx context.Context, i cloudprovider.Instance) error {
	permit, err := c.Guard.OfNoClaim(ctx, i)
	if err != nil {
		return err
	}
	if err := c.Cloud.Terminate(ctx, permit); err != nil && !errors.Is(err, cloudprovider.ErrNotFound) {
		return err
	}
	c.Log.Info("garbage collected cloudprovider instance", "provider-id", i.ProviderID)
	nodes, err := cluster.NodesOf(ctx, c.Client, i.ProviderID)
	if err != nil {
		return err
	}
	for n := range nodes {
		err = errors.Join(err, c.Guard.Node(ctx, &nodes[n], destroy.Why{Kind: destroy.Fault, Reason: reasonCollected}))
	}
	return err
}
