package garbagecollection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// heldBackInterval is the time until the next pass after one that held claims back: long enough for a person to notice
// the event, short enough that a large loss of instances is cleaned up within minutes.
const heldBackInterval = 30 * time.Second

// maxDescribes limits how many instances a pass reads from EC2 one by one: a listing that lacks a whole fleet must not use
// up the account's rate of DescribeInstances.
const maxDescribes = 200

// heldBackEventWindow is the dedupe window of the event about a claim that is held back.
const heldBackEventWindow = 15 * time.Minute

// describer lists instances and reads single ones. It returns cloudprovider.ErrNotFound for an instance that is gone
// for good.
type describer interface {
	lister
	Get(ctx context.Context, providerID string) (cloudprovider.Instance, error)
}

// reasonCollected is the reason on metrics and in the audit.
const reasonCollected = "garbage_collected"

// Claims deletes registered NodeClaims without an instance.
type Claims struct {
	Client  client.Client
	Guard   *destroy.Guard
	Cloud   describer
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// last is the name of the last claim that the previous pass checked. The next pass begins after it: instances that EC2
	// describes but never lists must not block the claims behind them.
	last string
}

// NeedLeaderElection makes sure that only one replica collects.
func (c *Claims) NeedLeaderElection() bool { return true }

// Start collects until ctx is canceled.
func (c *Claims) Start(ctx context.Context) error {
	interval := steadyInterval
	_ = wait.DelayFunc(func() time.Duration { return interval }).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		held, err := c.pass(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.Error("collecting node claims", "error", err)
		}
		interval = steadyInterval
		if held > 0 {
			interval = heldBackInterval
		}
		return false, nil
	}) // returns only the context's error
	return nil
}

// pass deletes claims that have no instance, and returns how many it holds back for a later pass. It lists claims
// before instances, so that a claim launched in between finds its instance. Three rules protect claims:
//   - A claim with a node that is Ready stays, whatever the cloud reports.
//   - A listing that lacks an instance proves nothing: EC2 must confirm for that instance ID that it is gone.
//   - Only a few claims are deleted in one pass.
func (c *Claims) pass(ctx context.Context) (held int, err error) {
	var claims karpv1.NodeClaimList
	if err := c.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return 0, err
	}
	listed := map[string]bool{}
	for _, i := range instances {
		listed[i.ProviderID] = true
	}
	candidates, total, err := c.candidates(ctx, claims.Items, listed)
	if err != nil {
		return 0, err
	}
	limit, deleted := blastradius.DeletableLimit(total), 0
	var errs []error
	for n, claim := range candidates {
		if deleted == limit || n == maxDescribes {
			c.last = candidates[n-1].Name
			c.reportHeldBack(candidates[n:], total)
			return len(candidates) - n, errors.Join(errs...)
		}
		if destroy.IsPaused(c.Guard.MayDelete(ctx, claim, destroy.Fault)) { // which the NodePool shows
			continue
		}
		gone, err := c.confirmGone(ctx, claim)
		if err == nil && gone {
			deleted++
			if err = c.delete(ctx, claim); destroy.IsPaused(err) {
				err = nil
			}
		}
		errs = append(errs, err)
	}
	c.last = ""
	return 0, errors.Join(errs...)
}

// candidates returns the claims that have no listed instance and no Ready node, by name from where the last pass
// stopped, and the number of claims that count for the limit.
func (c *Claims) candidates(
	ctx context.Context, claims []karpv1.NodeClaim, listed map[string]bool,
) (out []*karpv1.NodeClaim, total int, err error) {
	for i := range claims {
		claim := &claims[i]
		if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) || claim.DeletionTimestamp != nil ||
			!condition.IsTrue(claim, karpv1.ConditionRegistered) {
			continue
		}
		total++
		if listed[claim.Status.ProviderID] {
			continue
		}
		nodes, err := cluster.NodesOf(ctx, c.Client, claim.Status.ProviderID)
		if err != nil {
			return nil, 0, err
		}
		if len(nodes) != 1 || !cluster.NodeReady(&nodes[0]) {
			out = append(out, claim.DeepCopy()) // those of the list are the cache's
		}
	}
	slices.SortFunc(out, func(a, b *karpv1.NodeClaim) int { return strings.Compare(a.Name, b.Name) })
	next := slices.IndexFunc(out, func(claim *karpv1.NodeClaim) bool { return claim.Name > c.last })
	if next > 0 {
		out = slices.Concat(out[next:], out[:next])
	}
	return out, total, nil
}

// reportHeldBack records events for the claims that this pass does not delete.
func (c *Claims) reportHeldBack(claims []*karpv1.NodeClaim, total int) {
	names := make([]string, 0, len(claims))
	for _, claim := range claims {
		names = append(names, claim.Name)
		c.Events.WarnEvery(heldBackEventWindow, claim, "CollectionHeldBack",
			"EC2 lists no instance for this NodeClaim, and for too many others at once. "+
				"NodeClaims without an instance are deleted a few at a time, "+
				"this one in a later pass if EC2 confirms that its instance is gone; find out who terminated the instances")
	}
	c.Log.Warn(
		"too many nodeclaims have no instance, some are held back until a later pass",
		"held-back",
		len(claims),
		"nodeclaims",
		total,
		"limit",
		blastradius.DeletableLimit(total),
		"names",
		names,
	)
}

// confirmGone reports whether EC2 confirms, for the ID of a claim's instance, that it is gone.
func (c *Claims) confirmGone(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	i, err := c.Cloud.Get(ctx, claim.Status.ProviderID)
	switch {
	case errors.Is(err, cloudprovider.ErrNotFound):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("confirm that the instance of node claim %q is gone, the claim stays until then: %w", claim.Name, err)
	}
	c.Log.Warn("a listing of EC2 lacks an instance that EC2 describes, the nodeclaim stays; "+
		"check the instance's tags for the names of cluster, nodepool and nodeclass",
		"NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID, "state", string(i.State))
	return false, nil
}

func (c *Claims) delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	pods := cluster.Reschedulable(ctx, c.Client, claim.Status.NodeName)
	err := c.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Fault, Reason: reasonCollected})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Log.Info(
		"garbage collecting nodeclaim with no cloudprovider representation",
		"NodeClaim",
		claim.Name,
		"provider-id",
		claim.Status.ProviderID,
	)
	c.Metrics.Disrupted(claim, reasonCollected)
	c.Metrics.PodsDisrupted(claim, reasonCollected, pods)
	return nil
}
