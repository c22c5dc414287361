package collect

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metric"
)

// Claims deletes registered NodeClaims whose instance is gone.
type Claims struct {
	Client  client.Client
	Cloud   lister
	Metrics *metric.Metrics
	Log     *slog.Logger
}

// NeedLeaderElection makes sure that only one process collects.
func (c *Claims) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (c *Claims) Start(ctx context.Context) error {
	for {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error("collecting node claims", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(later):
		}
	}
}

// pass lists claims first and instances after, so that what was launched in between has its instance. A node
// whose kubelet still reports stays, whatever the cloud says.
func (c *Claims) pass(ctx context.Context) error {
	var claims karpv1.NodeClaimList
	if err := c.Client.List(ctx, &claims); err != nil {
		return err
	}
	instances, err := c.Cloud.List(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, i := range instances {
		there[i.ProviderID] = true
	}
	var errs []error
	for i := range claims.Items {
		claim := &claims.Items[i]
		if orphaned(claim, there) {
			errs = append(errs, c.end(ctx, claim))
		}
	}
	return errors.Join(errs...)
}

func (c *Claims) end(ctx context.Context, claim *karpv1.NodeClaim) error {
	nodes, err := cluster.NodesOf(ctx, c.Client, claim.Status.ProviderID)
	if err != nil {
		return err
	}
	if len(nodes) == 1 && cluster.NodeReady(&nodes[0]) {
		return nil
	}
	pods := cluster.Reschedulable(ctx, c.Client, claim.Status.NodeName)
	err = c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Log.Info("garbage collecting nodeclaim with no cloudprovider representation", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID)
	c.Metrics.Disrupted(claim, "garbage_collected")
	c.Metrics.PodsDisrupted(claim, "garbage_collected", pods)
	return nil
}

// orphaned reports whether a claim once had a node and its instance is not there any more.
func orphaned(claim *karpv1.NodeClaim, there map[string]bool) bool {
	return awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) && claim.DeletionTimestamp == nil &&
		condition.IsTrue(claim, karpv1.ConditionRegistered) && !there[claim.Status.ProviderID]
}
