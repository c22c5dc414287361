package destroy

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Permit is the API server's proof that an instance may be terminated: its claim is being deleted, or it has none; or that it may be
// rebooted. Only a Guard makes one; the zero value permits nothing. The cloud adapter adds EC2's proof.
type Permit struct {
	providerID string
	// claim and uid are those of the claim that the instance was launched for; empty for one without a claim.
	claim, uid string
	// used records that the instance was terminated.
	used func(cloudprovider.Instance)
}

// ProviderID is the instance's. The error is ErrNotProven for the zero value.
func (p Permit) ProviderID() (string, error) {
	if p.providerID == "" {
		return "", fmt.Errorf("terminate an instance without a permit: %w", ErrNotProven)
	}
	return p.providerID, nil
}

// Covers returns nil if the permit is for the instance as EC2 describes it.
func (p Permit) Covers(i cloudprovider.Instance) error {
	if i.ID == "" || !strings.HasSuffix(p.providerID, "/"+i.ID) {
		return fmt.Errorf("the permit is for %q, not for instance %s: %w", p.providerID, i.ID, ErrNotProven)
	}
	if p.claim == "" {
		return nil
	}
	return launchedFor(i, p.uid, p.claim)
}

// Used records that the instance was terminated with the permit, as EC2 described it before.
func (p Permit) Used(i cloudprovider.Instance) {
	if p.used != nil {
		p.used(i)
	}
}

// permit makes a permit that is recorded once it is used.
func (g *Guard) permit(r Record, providerID string, why Why) Permit {
	return Permit{providerID, r.Object.Name, string(r.Object.UID), func(i cloudprovider.Instance) {
		r.Instance = Instance{i.ProviderID, string(i.State), string(i.Owner), i.NodeClaimUID}
		g.record(r, why)
	}}
}

// OfClaim permits the termination of an instance of a claim that is being deleted. The error is NotFound if the claim is gone.
func (g *Guard) OfClaim(ctx context.Context, claim *karpv1.NodeClaim, providerID string) (Permit, error) {
	live := &karpv1.NodeClaim{}
	if err := g.Live.Get(ctx, client.ObjectKeyFromObject(claim), live); err != nil {
		return Permit{}, fmt.Errorf("read node claim %q before the termination of its instance: %w", claim.Name, err)
	}
	if live.UID != claim.UID || live.DeletionTimestamp == nil {
		return Permit{}, fmt.Errorf("node claim %q is not being deleted: %w", claim.Name, ErrNotProven)
	}
	if live.Status.ProviderID != "" && live.Status.ProviderID != providerID {
		return Permit{}, fmt.Errorf("node claim %q has instance %s, not %s: %w", claim.Name, live.Status.ProviderID, providerID, ErrNotProven)
	}
	if err := g.MayDrain(ctx, live); err != nil {
		return Permit{}, err
	}
	r := Record{Verb: TerminateInstance, NodePool: live.Labels[karpv1.LabelNodePool], Object: objectOf("NodeClaim", live)}
	return g.permit(r, providerID, WhyOf(live)), nil
}

// ForReboot permits the reboot of a claim's instance, unless deletions are paused. The budget does not count it: nothing is deleted, and
// the budgets of node repair limit how many nodes reboot at once.
func (g *Guard) ForReboot(ctx context.Context, claim *karpv1.NodeClaim) (Permit, error) {
	live := &karpv1.NodeClaim{}
	if err := g.Live.Get(ctx, client.ObjectKeyFromObject(claim), live); err != nil {
		return Permit{}, fmt.Errorf("read node claim %q before its instance reboots: %w", claim.Name, err)
	}
	if live.UID != claim.UID || live.DeletionTimestamp != nil || live.Status.ProviderID == "" {
		return Permit{}, fmt.Errorf("node claim %q has changed, and its instance is not rebooted: %w", claim.Name, ErrNotProven)
	}
	pool := live.Labels[karpv1.LabelNodePool]
	if err := g.Budget.Paused(ctx, pool); err != nil {
		return Permit{}, err
	}
	why := Why{Kind: Fault, Reason: "reboot"}
	return g.permit(Record{Verb: RebootInstance, NodePool: pool, Object: objectOf("NodeClaim", live)}, live.Status.ProviderID, why), nil
}

// OfLaunch permits the termination of an instance that was launched for a claim which cannot use it: the launch is not recorded on the
// claim, or the claim is gone.
func (g *Guard) OfLaunch(ctx context.Context, claim *karpv1.NodeClaim, providerID string) (Permit, error) {
	live := &karpv1.NodeClaim{}
	switch err := g.Live.Get(ctx, client.ObjectKeyFromObject(claim), live); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return Permit{}, fmt.Errorf("read node claim %q before the termination of an instance: %w", claim.Name, err)
	case live.DeletionTimestamp == nil && live.Status.ProviderID == providerID: // also one that was restored with another UID
		return Permit{}, fmt.Errorf("node claim %q uses instance %s: %w", claim.Name, providerID, ErrNotProven)
	}
	why := Why{Kind: Fault, Reason: "launch not used"}
	r := Record{Verb: TerminateInstance, NodePool: claim.Labels[karpv1.LabelNodePool], Object: objectOf("NodeClaim", claim)}
	return g.permit(r, providerID, why), nil
}

// OfNoClaim permits the termination of an instance without a claim, within the budget for faults. The caller has compared the instance with
// all claims of the API server; the one that its tags name is read once more.
func (g *Guard) OfNoClaim(ctx context.Context, i cloudprovider.Instance) (Permit, error) {
	why := Why{Kind: Fault, Reason: "garbage_collected"}
	if i.NodeClaim != "" {
		live := &karpv1.NodeClaim{}
		err := g.Live.Get(ctx, client.ObjectKey{Name: i.NodeClaim}, live)
		if err == nil && (live.Status.ProviderID == i.ProviderID || string(live.UID) == i.NodeClaimUID && live.Status.ProviderID == "") {
			return Permit{}, fmt.Errorf("instance %s belongs to node claim %q: %w", i.ID, i.NodeClaim, ErrNotProven)
		}
		if client.IgnoreNotFound(err) != nil {
			return Permit{}, fmt.Errorf("read node claim %q before the termination of an instance that names it: %w", i.NodeClaim, err)
		}
	}
	pool := i.Tags[karpv1.LabelNodePool]
	if err := g.Budget.take(ctx, charge{pool: pool, kind: why.Kind, size: Size{Nodes: 1}, id: i.ProviderID}); err != nil {
		return Permit{}, err
	}
	return g.permit(Record{Verb: TerminateInstance, NodePool: pool, Object: Object{Kind: "NodeClaim"}}, i.ProviderID, why), nil
}
