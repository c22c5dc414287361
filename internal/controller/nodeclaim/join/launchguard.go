package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// provider is the cloud that a LaunchGuard wraps.
type provider interface {
	ResolveNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution
	NodeClassHash(class *awsv1.EC2NodeClass) (hash, version string, err error)
	DeleteNodeClassResources(ctx context.Context, class *awsv1.EC2NodeClass) error
	LaunchInBatch(
		ctx context.Context,
		claim *karpv1.NodeClaim,
		class *awsv1.EC2NodeClass,
		annotate func(ctx context.Context, mark string) error,
	) (cloudprovider.Launched, error)
	Terminate(ctx context.Context, permit destroy.Permit) error
	// JoinScopes returns what the instances of a class share with others.
	JoinScopes(class *awsv1.EC2NodeClass) []string
}

// LaunchGuard is a cloud that refuses launches which an open breaker holds back, and reports that on the node class.
type LaunchGuard struct {
	provider
	breakers *Breakers
	now      func() time.Time
}

// NewLaunchGuard returns a LaunchGuard around p.
func NewLaunchGuard(p provider, breakers *Breakers, now func() time.Time) *LaunchGuard {
	return &LaunchGuard{provider: p, breakers: breakers, now: now}
}

// ResolveNodeClass is the provider's, with the condition NodesCanJoin from the breakers.
func (g *LaunchGuard) ResolveNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution {
	out := g.provider.ResolveNodeClass(ctx, class)
	f, until, held := g.breakers.Held(classScopes(g, class))
	if !held {
		return out
	}
	for _, c := range out.Conditions {
		if c.Type == awsv1.ConditionNodesCanJoin && c.Status == metav1.ConditionFalse {
			return out // a standing fault is more specific
		}
	}
	others := out.Conditions[:0:0]
	for _, c := range out.Conditions {
		if c.Type != awsv1.ConditionNodesCanJoin {
			others = append(others, c)
		}
	}
	out.Conditions = append(others, cloudprovider.Condition{
		Type: awsv1.ConditionNodesCanJoin, Status: metav1.ConditionFalse, Reason: f.Cause, Message: f.Text(),
	})
	if !until.IsZero() {
		out.Next = min(out.Next, max(until.Sub(g.now()), time.Second))
	}
	return out
}

// PoolHeld returns why no instance may launch for this pool and class now, regardless of other pools of the class, and
// until when at least; the time is zero while a probe is in flight.
func (g *LaunchGuard) PoolHeld(pool, class string) (f cloudprovider.Finding, until time.Time, held bool) {
	return g.breakers.Held(poolScopes(pool, class))
}

// LaunchInBatch is the provider's, unless a breaker holds back the claim.
func (g *LaunchGuard) LaunchInBatch(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	class *awsv1.EC2NodeClass,
	annotate func(ctx context.Context, mark string) error,
) (cloudprovider.Launched, error) {
	if f, admitted := g.breakers.Admit(launchScopes(g, claim, class), claim.UID); !admitted {
		return cloudprovider.Launched{}, &cloudprovider.NodeClassNotReadyError{Err: fmt.Errorf("%s: %s", f.Cause, f.Message)}
	}
	out, err := g.provider.LaunchInBatch(ctx, claim, class, annotate)
	var scarce *cloudprovider.InsufficientCapacityError
	var notReady *cloudprovider.NodeClassNotReadyError
	if errors.As(err, &scarce) || errors.As(err, &notReady) {
		// The claim will be deleted, maybe before another reconciler has seen it.
		g.breakers.Gone(claim.UID)
	}
	return out, err
}
