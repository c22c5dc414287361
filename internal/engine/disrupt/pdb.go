package disrupt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// pdbIndex holds the PodDisruptionBudgets of a snapshot, indexed by a label that they select, with the evictions that
// nodes being removed already need.
type pdbIndex struct {
	now time.Time
	// byLabel are the budgets with a label in their selector, by one such label; withoutLabel the others, by
	// namespace.
	byLabel      map[labelKey][]snapshot.Budget
	withoutLabel map[string][]snapshot.Budget
	evicting     map[*policyv1.PodDisruptionBudget]int
}

type labelKey struct{ namespace, key, value string }

func newPDBIndex(s *snapshot.Snapshot) *pdbIndex {
	g := &pdbIndex{
		now: s.Now, byLabel: map[labelKey][]snapshot.Budget{}, withoutLabel: map[string][]snapshot.Budget{},
		evicting: map[*policyv1.PodDisruptionBudget]int{},
	}
	for _, b := range snapshot.Budgets(s.PDBs) {
		if b.Spec.Selector == nil || len(b.Spec.Selector.MatchLabels) == 0 {
			g.withoutLabel[b.Namespace] = append(g.withoutLabel[b.Namespace], b)
			continue
		}
		key := slices.Min(slices.Collect(maps.Keys(b.Spec.Selector.MatchLabels)))
		at := labelKey{b.Namespace, key, b.Spec.Selector.MatchLabels[key]}
		g.byLabel[at] = append(g.byLabel[at], b)
	}
	if len(s.PDBs) == 0 {
		return g
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Deleting || n.Disrupting {
			g.add(g.podsPerPDB(n.Pods))
		}
	}
	return g
}

// selecting are the budgets that select the pod. It looks at the budgets that share a label with the pod, not at all.
func (g *pdbIndex) selecting(p *corev1.Pod) (out []snapshot.Budget) {
	take := func(list []snapshot.Budget) {
		for _, b := range list {
			if b.Selects(p) {
				out = append(out, b)
			}
		}
	}
	take(g.withoutLabel[p.Namespace])
	if len(g.byLabel) > 0 {
		for key, value := range p.Labels {
			take(g.byLabel[labelKey{p.Namespace, key, value}])
		}
	}
	if len(out) > 1 { // labels come in any order
		slices.SortFunc(out, func(a, b snapshot.Budget) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// podsPerPDB counts, by budget, the pods that are evicted when their node is removed. Daemon pods do not count: they
// have no other node to become ready on, and their budgets are not meant for one node at a time.
func (g *pdbIndex) podsPerPDB(pods []*corev1.Pod) map[*policyv1.PodDisruptionBudget]int {
	if len(g.byLabel)+len(g.withoutLabel) == 0 {
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

func (g *pdbIndex) add(pods map[*policyv1.PodDisruptionBudget]int) {
	for b, n := range pods {
		g.evicting[b] += n
	}
}

// blocks returns why the budgets block the eviction of pods; empty if they do not.
func (g *pdbIndex) blocks(pods []*corev1.Pod) Why {
	if len(g.byLabel)+len(g.withoutLabel) == 0 {
		return Why{}
	}
	for _, p := range pods {
		if !snapshot.Evictable(p, g.now) {
			continue
		}
		selecting := g.selecting(p)
		switch {
		case len(selecting) > 1:
			why := Because(PDB, "eviction does not support multiple PDBs (Pod=%s/%s)", p.Namespace, p.Name)
			why.Budgets = len(selecting)
			return why
		case len(selecting) == 1 && selecting[0].Blocks(p):
			why := Because(PDB, "pdb prevents pod evictions (Pod=%s/%s)", p.Namespace, p.Name)
			why.Budgets = 1
			return why
		}
	}
	return Why{}
}

// exhausted returns the budget of which nodes that are being removed already hold as many pods as it allows to evict
// now: another node with such pods would only be half drained for longer. The first by name; nil if there is none.
func (g *pdbIndex) exhausted(pods map[*policyv1.PodDisruptionBudget]int) *policyv1.PodDisruptionBudget {
	var first *policyv1.PodDisruptionBudget
	for b := range pods {
		if busy := g.evicting[b]; busy == 0 || busy < int(b.Status.DisruptionsAllowed) {
			continue
		}
		if first == nil || b.Namespace < first.Namespace || b.Namespace == first.Namespace && b.Name < first.Name {
			first = b
		}
	}
	return first
}
