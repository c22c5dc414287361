package disrupt

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
)

// RemainingBudgets describes what the disruption budgets of pools and the PodDisruptionBudgets have left, while commands are started one
// after another.
type RemainingBudgets struct {
	allowances []Allowance
	left       map[string]int
	pdbs       pdbIndex
}

// RemainingBudgets returns what the allowances and the PodDisruptionBudgets have left before any command is started.
func (v *View) RemainingBudgets(allowances []Allowance) *RemainingBudgets {
	r := &RemainingBudgets{
		allowances: allowances,
		left:       make(map[string]int, len(allowances)),
		pdbs:       pdbIndex{evicting: make(map[*policyv1.PodDisruptionBudget]int, len(v.pdbs.evicting))},
	}
	for i := range allowances {
		r.left[allowances[i].Pool.Name] = allowances[i].Available()
	}
	r.pdbs.add(v.pdbs.evicting)
	return r
}

// Remaining returns how many more nodes of the pool may be disrupted.
func (r *RemainingBudgets) Remaining(pool string) int { return max(r.left[pool], 0) }

// Allowances are the original allowances less what has been taken.
func (r *RemainingBudgets) Allowances() []Allowance {
	out := slices.Clone(r.allowances)
	for i := range out {
		out[i].Allowed = out[i].Disrupting + r.Remaining(out[i].Pool.Name)
	}
	return out
}

// Allow reports whether all of the candidates may be disrupted at once. A single node may have more pods of a
// PodDisruptionBudget than that allows to evict; a second one must wait then.
func (r *RemainingBudgets) Allow(candidates []*Candidate) bool {
	need := map[string]int{}
	for _, c := range candidates {
		if need[c.Node.Pool]++; need[c.Node.Pool] > r.Remaining(c.Node.Pool) || r.pdbs.exhausted(c.podsPerPDB) != nil {
			return false
		}
	}
	return true
}

// Use records that the candidates are being disrupted.
func (r *RemainingBudgets) Use(candidates []*Candidate) {
	for _, c := range candidates {
		r.left[c.Node.Pool]--
		r.pdbs.add(c.podsPerPDB)
	}
}

// Allowed returns how many nodes of the pool may be disrupted at once.
func (r *RemainingBudgets) Allowed(pool string) int {
	at := slices.IndexFunc(r.allowances, func(a Allowance) bool { return a.Pool.Name == pool })
	if at < 0 {
		return 0
	}
	return r.allowances[at].Allowed
}
