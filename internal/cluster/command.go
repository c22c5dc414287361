package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// CommandOf is the ID of the disruption that is to end the claim, or that it was bought for; empty if there is none. A claim
// that was bought for one may be ended by another: then it is the latter's.
func CommandOf(claim *karpv1.NodeClaim) string {
	if d, ok, err := claim.DisruptionCommand(); ok && err == nil {
		return d.ID
	}
	return claim.Annotations[karpv1.AnnotationReplacementOf]
}

// ClaimsOfCommand returns the claims that have to do with a disruption, those that it ends and those that it bought.
func ClaimsOfCommand(ctx context.Context, r client.Reader, id string) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	err := r.List(ctx, &list, client.MatchingFields{claimCommand: id})
	return list.Items, err
}

// cutDisruptions says which nodes a command is to end. Their pods want another place once all replacements have been bought:
// before, nothing is bought for them by anybody else, nor after one has been lost, when the command will be taken back.
func (w *world) cutDisruptions() {
	awaited := make(map[types.UID][]string, len(w.facts.Disrupting))
	stay := make(map[string]bool, len(w.NodeClaims))
	for _, claim := range w.NodeClaims {
		stay[claim.Name] = claim.DeletionTimestamp == nil && !w.facts.Condemned[claim.UID]
		if names, ok := w.facts.Disrupting[claim.UID]; ok {
			awaited[claim.UID] = names
		} else if d, ok, err := claim.DisruptionCommand(); ok && err == nil {
			awaited[claim.UID] = d.Replacements
		}
	}
	if len(awaited) == 0 {
		return
	}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		names, ok := awaited[n.ClaimUID]
		if !ok || n.Claim == "" || n.Deleting {
			continue
		}
		n.Disrupting, n.Deleting = true, len(names) > 0
		for _, name := range names {
			n.Deleting = n.Deleting && stay[name]
		}
	}
}
