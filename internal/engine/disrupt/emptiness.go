package disrupt

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Empty returns the candidates without pods that would have to move, consolidateAfter long, those first that save
// most; and the reasons of the others.
func (v *View) Empty() (empty []*Candidate, kept []Blocked) {
	for _, c := range v.Candidates {
		if reason, message := whyNotEmpty(c); reason != "" {
			kept = append(kept, Blocked{c.Node, reason, message})
			continue
		}
		empty = append(empty, c)
	}
	SortBySavings(empty)
	return empty, kept
}

// SortBySavings sorts candidates by price per disruption cost, highest first.
func SortBySavings(candidates []*Candidate) {
	slices.SortFunc(candidates, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Price/b.Cost, a.Price/a.Cost), cmp.Compare(a.Node.Name, b.Node.Name))
	})
}

func whyNotEmpty(c *Candidate) (Reason, string) {
	n := c.Node
	if at := slices.IndexFunc(n.Pods, PreventsEmptiness); at >= 0 {
		return NotEmpty, fmt.Sprintf("pod %s/%s would have to move", n.Pods[at].Namespace, n.Pods[at].Name)
	}
	switch {
	case n.Virtual > 0:
		return BufferPods, fmt.Sprintf("Node %q has buffer pods", n.Name)
	case c.Pool.Spec.Replicas != nil:
		return ConsolidationDisabled, fmt.Sprintf("NodePool %q keeps a fixed number of nodes", n.Pool)
	case c.Pool.Spec.Disruption.ConsolidateAfter.IsNever():
		return ConsolidationDisabled, fmt.Sprintf("NodePool %q has consolidation disabled", n.Pool)
	case !n.Consolidatable:
		return NotConsolidatable, fmt.Sprintf("consolidateAfter of NodePool %q has not passed since the last pod came or went", n.Pool)
	}
	return "", ""
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
