package disrupt

import (
	"cmp"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Drifted returns the drifted candidates, of static pools if static is true, or else of the others.
func (v *View) Drifted(static bool) []*Candidate {
	var out []*Candidate
	for _, list := range [][]*Candidate{v.Candidates, v.BoundedDrain} {
		for _, c := range list {
			if !c.Node.DriftedAt.IsZero() && (c.Pool.Spec.Replicas != nil) == static {
				out = append(out, c)
			}
		}
	}
	return out
}

// DriftOrder sorts drifted candidates into the order in which they are tried. Pools take turns, the one first that
// has waited longest. Within a pool nodes without pods come first, then those without failed attempts, then those
// that have been drifted longest. Pools that back off are left out.
func (a *DriftBackoff) DriftOrder(candidates []*Candidate, now time.Time) []*Candidate {
	return a.takeTurns(candidates, now, turn{
		since: func(c *Candidate) time.Time { return c.Node.DriftedAt },
		order: func(x, y *Candidate) int {
			return cmp.Or(
				cmp.Compare(oneIfAny(len(x.Pods)), oneIfAny(len(y.Pods))),
				cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
				ByMaintenance(x, y),
				x.Node.DriftedAt.Compare(y.Node.DriftedAt),
				cmp.Compare(x.Node.Name, y.Node.Name),
			)
		},
	})
}

// turn is how the nodes of pools that take turns are ordered.
type turn struct {
	// order sorts the nodes of a pool. since sorts pools that were never replaced in by their first nodes, the earliest first.
	order func(x, y *Candidate) int
	since func(*Candidate) time.Time
}

// takeTurns sorts candidates so that pools take turns, the one first that has waited longest. Pools that back off are left out.
func (a *DriftBackoff) takeTurns(candidates []*Candidate, now time.Time, of turn) []*Candidate {
	byPool := map[string][]*Candidate{}
	var pools []string
	for _, c := range candidates {
		name := c.Node.Pool
		if a.BacksOff(name, now) {
			continue
		}
		if byPool[name] == nil {
			pools = append(pools, name)
		}
		byPool[name] = append(byPool[name], c)
	}
	for _, list := range byPool {
		slices.SortFunc(list, of.order)
	}
	slices.SortFunc(pools, func(x, y string) int {
		return cmp.Or(
			a.pools[x].lastStarted.Compare(a.pools[y].lastStarted),
			of.since(byPool[x][0]).Compare(of.since(byPool[y][0])),
			cmp.Compare(x, y),
		)
	})
	var out []*Candidate
	for round := 0; len(out) < len(candidates); round++ {
		added := false
		for _, name := range pools {
			if list := byPool[name]; round < len(list) {
				out, added = append(out, list[round]), true
			}
		}
		if !added {
			break
		}
	}
	return out
}

func oneIfAny(n int) int { return min(n, 1) }

// StaticBatch is a set of nodes of a static pool to be replaced one for one.
type StaticBatch struct {
	Pool       *karpv1.NodePool
	Candidates []*Candidate
}

// StaticDrift returns, by static pool, the drifted nodes to replace, as many as the budgets allow: first those
// without failed attempts, then those that have been drifted longest. A pool with more nodes than its replicas is
// scaled down first. Pools that back off are left out.
func (a *DriftBackoff) StaticDrift(v *View, room *RemainingBudgets) []StaticBatch {
	return a.staticBatches(v, v.Drifted(true), room, func(x, y *Candidate) int {
		return cmp.Or(ByMaintenance(x, y), x.Node.DriftedAt.Compare(y.Node.DriftedAt), cmp.Compare(x.Node.Name, y.Node.Name))
	})
}

// StaticExpiring is StaticDrift for nodes with an expireAfter that comes near, those first that expire first.
func (a *DriftBackoff) StaticExpiring(v *View, room *RemainingBudgets) []StaticBatch {
	return a.staticBatches(v, v.Expiring(true), room, func(x, y *Candidate) int {
		return cmp.Or(ExpiresAt(x.Node).Compare(ExpiresAt(y.Node)), cmp.Compare(x.Node.Name, y.Node.Name))
	})
}

func (a *DriftBackoff) staticBatches(
	v *View, all []*Candidate, room *RemainingBudgets, order func(x, y *Candidate) int,
) []StaticBatch {
	candidates := slices.DeleteFunc(all, func(c *Candidate) bool { return a.BacksOff(c.Pool.Name, v.Snapshot.Now) })
	slices.SortFunc(candidates, func(x, y *Candidate) int {
		return cmp.Or(cmp.Compare(x.Pool.Name, y.Pool.Name), cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]), order(x, y))
	})
	var out []StaticBatch
	for _, c := range candidates {
		if len(out) == 0 || out[len(out)-1].Pool != c.Pool {
			if active, pending := CountNodes(v.Snapshot, c.Pool.Name); active+pending > *c.Pool.Spec.Replicas {
				continue
			}
			out = append(out, StaticBatch{Pool: c.Pool})
		}
		if turn := &out[len(out)-1]; len(turn.Candidates) < room.Remaining(c.Pool.Name) {
			turn.Candidates = append(turn.Candidates, c)
		}
	}
	return slices.DeleteFunc(out, func(t StaticBatch) bool { return len(t.Candidates) == 0 })
}
