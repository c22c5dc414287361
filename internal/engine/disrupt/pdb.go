package disrupt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// guards are the PodDisruptionBudgets of a snapshot, with what the nodes that leave already ask of them.
type guards struct {
	now time.Time
	// labelled are the budgets that ask for a label, by one such, others the rest by namespace.
	labelled map[pair][]snapshot.Budget
	others   map[string][]snapshot.Budget
	busy     map[*policyv1.PodDisruptionBudget]int
}

type pair struct{ namespace, key, value string }

func newGuards(s *snapshot.Snapshot) *guards {
	g := &guards{
		now: s.Now, labelled: map[pair][]snapshot.Budget{}, others: map[string][]snapshot.Budget{}, busy: map[*policyv1.PodDisruptionBudget]int{},
	}
	for _, b := range snapshot.Budgets(s.PDBs) {
		if b.Spec.Selector == nil || len(b.Spec.Selector.MatchLabels) == 0 {
			g.others[b.Namespace] = append(g.others[b.Namespace], b)
			continue
		}
		key := slices.Min(slices.Collect(maps.Keys(b.Spec.Selector.MatchLabels)))
		at := pair{b.Namespace, key, b.Spec.Selector.MatchLabels[key]}
		g.labelled[at] = append(g.labelled[at], b)
	}
	if len(s.PDBs) == 0 {
		return g
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Deleting || n.Disrupting {
			g.add(g.asks(n.Pods))
		}
	}
	return g
}

// selecting are the budgets that speak about the pod.
func (g *guards) selecting(p *corev1.Pod) (out []snapshot.Budget) {
	take := func(list []snapshot.Budget) {
		for _, b := range list {
			if b.Selects(p) {
				out = append(out, b)
			}
		}
	}
	take(g.others[p.Namespace])
	if len(g.labelled) > 0 {
		for key, value := range p.Labels {
			take(g.labelled[pair{p.Namespace, key, value}])
		}
	}
	if len(out) > 1 { // labels come in any order
		slices.SortFunc(out, func(a, b snapshot.Budget) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// asks counts, by budget, the pods that are driven off when their node leaves. Pods of daemons do not count: they have no
// other place to become ready on, and their budgets are not meant for one node at a time.
func (g *guards) asks(pods []*corev1.Pod) map[*policyv1.PodDisruptionBudget]int {
	if len(g.labelled)+len(g.others) == 0 {
		return nil
	}
	var out map[*policyv1.PodDisruptionBudget]int
	for _, p := range pods {
		if snapshot.DaemonOwned(p) || !snapshot.Evictable(p, g.now) {
			continue
		}
		for _, b := range g.selecting(p) {
			if out == nil {
				out = map[*policyv1.PodDisruptionBudget]int{}
			}
			out[b.PodDisruptionBudget]++
		}
	}
	return out
}

func (g *guards) add(asks map[*policyv1.PodDisruptionBudget]int) {
	for b, n := range asks {
		g.busy[b] += n
	}
}

// forbid returns why the budgets keep pods from being driven off; empty if they do not.
func (g *guards) forbid(pods []*corev1.Pod) (Reason, string) {
	if len(g.labelled)+len(g.others) == 0 {
		return "", ""
	}
	for _, p := range pods {
		if !snapshot.Evictable(p, g.now) {
			continue
		}
		selecting := g.selecting(p)
		switch {
		case len(selecting) > 1:
			return PDB, fmt.Sprintf("eviction does not support multiple PDBs (Pod=%s/%s)", p.Namespace, p.Name)
		case len(selecting) == 1 && selecting[0].Blocks(p):
			return PDB, fmt.Sprintf("pdb prevents pod evictions (Pod=%s/%s)", p.Namespace, p.Name)
		}
	}
	return "", ""
}

// crowded returns the budget of which nodes that are leaving already hold as many pods as it lets go now: another node with
// such pods would only be half drained for longer. The first by name, nil if there is none.
func (g *guards) crowded(asks map[*policyv1.PodDisruptionBudget]int) *policyv1.PodDisruptionBudget {
	var first *policyv1.PodDisruptionBudget
	for b := range asks {
		if busy := g.busy[b]; busy == 0 || busy < int(b.Status.DisruptionsAllowed) {
			continue
		}
		if first == nil || b.Namespace < first.Namespace || b.Namespace == first.Namespace && b.Name < first.Name {
			first = b
		}
	}
	return first
}
