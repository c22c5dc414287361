package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// CommandOf is the ID of the disruption command that the claim is a candidate or a replacement of; empty if there is
// none. A replacement that has become a candidate of another command belongs to the latter.
func CommandOf(claim *karpv1.NodeClaim) string {
	if d, ok, err := claim.DisruptionCommand(); ok && err == nil {
		return d.ID
	}
	return claim.Annotations[karpv1.AnnotationReplacementOf]
}

// ClaimsOfCommand returns the candidates and the replacements of a disruption command.
func ClaimsOfCommand(ctx context.Context, r client.Reader, id string) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	err := r.List(ctx, &list, client.MatchingFields{claimCommand: id})
	return list.Items, err
}

// markDisrupting marks the nodes that are candidates of a command. They count as deleting, so that their pods are
// planned elsewhere, while all replacements exist. Before that the command itself provides for the pods; after a
// replacement was lost the command is rolled back.
func (w *snapshotBuilder) markDisrupting() {
	replacements := make(map[types.UID][]string, len(w.facts.Disrupting))
	staying := make(map[string]bool, len(w.NodeClaims))
	for _, claim := range w.NodeClaims {
		staying[claim.Name] = claim.DeletionTimestamp == nil && !w.facts.MarkedForDeletion[claim.UID]
		if names, ok := w.facts.Disrupting[claim.UID]; ok {
			replacements[claim.UID] = names
		} else if d, ok, err := claim.DisruptionCommand(); ok && err == nil {
			replacements[claim.UID] = d.Replacements
		}
	}
	if len(replacements) == 0 {
		return
	}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		names, ok := replacements[n.ClaimUID]
		if !ok || n.Claim == "" || n.Deleting {
			continue
		}
		n.Disrupting, n.Deleting = true, len(names) > 0
		for _, name := range names {
			n.Deleting = n.Deleting && staying[name]
		}
	}
}
