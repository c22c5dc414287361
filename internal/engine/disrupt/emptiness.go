package disrupt

import (
	"cmp"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Empty returns the candidates without pods that would have to move, consolidateAfter long, those first that save
// most; and the reasons of the others.
func (v *View) Empty() (empty []*Candidate, kept []Blocked) {
	for _, c := range v.Candidates {
		if why := whyNotEmpty(c); why.Reason != "" {
			kept = append(kept, Blocked{c.Node, why})
			continue
		}
		empty = append(empty, c)
	}
	SortBySavings(empty)
	return empty, kept
}

// SortBySavings sorts candidates by price per disruption cost, highest first, after those with a planned maintenance.
func SortBySavings(candidates []*Candidate) {
	slices.SortFunc(candidates, func(a, b *Candidate) int {
		return cmp.Or(ByMaintenance(a, b), cmp.Compare(b.Price/b.Cost, a.Price/a.Cost), cmp.Compare(a.Node.Name, b.Node.Name))
	})
}

// ByMaintenance orders candidates with a planned maintenance before others: their pods have to move anyway.
func ByMaintenance(a, b *Candidate) int {
	if a.Node.MaintenancePlanned == b.Node.MaintenancePlanned {
		return 0
	}
	if a.Node.MaintenancePlanned {
		return -1
	}
	return 1
}

func whyNotEmpty(c *Candidate) Why {
	n := c.Node
	if at := slices.IndexFunc(n.Pods, PreventsEmptiness); at >= 0 {
		return Because(NotEmpty, "pod %s/%s would have to move", n.Pods[at].Namespace, n.Pods[at].Name)
	}
	switch {
	case n.Virtual > 0:
		return Because(BufferPods, "Node %q has buffer pods", n.Name)
	case c.Pool.Spec.Replicas != nil:
		return Because(ConsolidationDisabled, "NodePool %q keeps a fixed number of nodes", n.Pool)
	case c.Pool.Spec.Disruption.ConsolidateAfter.IsNever():
		return Because(ConsolidationDisabled, "NodePool %q has consolidation disabled", n.Pool)
	case !n.Consolidatable:
		return Because(NotConsolidatable, "consolidateAfter of NodePool %q has not passed since the last pod came or went", n.Pool)
	}
	return Why{}
}

// CountNodes counts the nodes of a pool that stay, and those that wait for their replacement.
func CountNodes(s *snapshot.Snapshot, pool string) (active, pending int64) {
	for i := range s.Nodes {
		switch n := &s.Nodes[i]; {
		case n.Pool != pool || n.Claim == "":
		case n.Disrupting:
			pending++
		case !n.Deleting:
			active++
		}
	}
	return active, pending
}
