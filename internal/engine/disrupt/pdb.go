package disrupt

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// guards are the PodDisruptionBudgets of a snapshot by namespace, with what the nodes that leave already ask of them.
type guards struct {
	now  time.Time
	all  map[string][]snapshot.Budget
	busy map[*policyv1.PodDisruptionBudget]int
}

func newGuards(s *snapshot.Snapshot) *guards {
	g := &guards{now: s.Now, all: map[string][]snapshot.Budget{}, busy: map[*policyv1.PodDisruptionBudget]int{}}
	for _, b := range snapshot.Budgets(s.PDBs) {
		g.all[b.Namespace] = append(g.all[b.Namespace], b)
	}
	if len(g.all) == 0 {
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
	for _, b := range g.all[p.Namespace] {
		if b.Selects(p) {
			out = append(out, b)
		}
	}
	return out
}

// asks counts, by budget, the pods that are driven off when their node leaves. Pods of daemons do not count: they have no
// other place to become ready on, and their budgets are not meant for one node at a time.
func (g *guards) asks(pods []*corev1.Pod) map[*policyv1.PodDisruptionBudget]int {
	var out map[*policyv1.PodDisruptionBudget]int
	for _, p := range pods {
		if len(g.all[p.Namespace]) == 0 || snapshot.DaemonOwned(p) || !snapshot.Evictable(p, g.now) {
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
	for _, p := range pods {
		if len(g.all[p.Namespace]) == 0 || !snapshot.Evictable(p, g.now) {
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
