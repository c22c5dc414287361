package disrupt

import (
	"cmp"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
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
		slices.SortFunc(list, func(x, y *Candidate) int {
			return cmp.Or(
				cmp.Compare(oneIfAny(len(x.Pods)), oneIfAny(len(y.Pods))),
				cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
				x.Node.DriftedAt.Compare(y.Node.DriftedAt),
				cmp.Compare(x.Node.Name, y.Node.Name),
			)
		})
	}
	slices.SortFunc(pools, func(x, y string) int {
		return cmp.Or(
			a.pools[x].lastStarted.Compare(a.pools[y].lastStarted),
			byPool[x][0].Node.DriftedAt.Compare(byPool[y][0].Node.DriftedAt),
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

// DriftSearch is what Drift searches, and how far.
type DriftSearch struct {
	// Order are the drifted nodes, the next to replace first.
	Order     []*Candidate
	Remaining *RemainingBudgets
	// MaxRejections is after how many nodes with pods that cannot be scheduled elsewhere the search stops.
	MaxRejections int
	Budget        schedule.Budget // of each simulation
	// Freed lets nodes in full capacity reservations be terminated first; nil if they may not.
	Freed *FreedSlots
}

// Drift finds the next drifted node to replace: the first in order that the budgets allow, and with pods that can all
// be scheduled elsewhere, if need be once it has freed its slot in a capacity reservation. Nil if there is none before
// MaxRejections of them, not counting those that the budgets block. Nodes with pods that cannot be scheduled are
// returned with the message. It costs one simulation per node that is tried, and a second one per node in a full
// reservation.
func Drift(p *schedule.Problem, v *View, search DriftSearch) (*Command, []Unconsolidatable) {
	var left []Unconsolidatable
	for _, c := range search.Order {
		if !search.Remaining.Allow([]*Candidate{c}) {
			continue
		}
		if len(left) == search.MaxRejections {
			break
		}
		o := EvaluateRemoval(v.Snapshot, []*Candidate{c}, p.WhatIf([]int{c.Index}, c.Pods, search.Budget))
		if why := o.Message(); why != "" {
			if len(o.Unschedulable) > 0 {
				cmd, waits := search.Freed.Command(c, karpv1.DisruptionDrifted)
				if cmd != nil {
					return cmd, left
				}
				why = cmp.Or(waits, why)
			}
			left = append(left, Unconsolidatable{Candidate: c, Message: why})
			continue
		}
		return &Command{
			Reason:     karpv1.DisruptionDrifted,
			Candidates: []*Candidate{c},
			Plan:       o.Plan,
			Savings:    c.Price - LaunchCost(o.Plan),
		}, left
	}
	return nil, left
}

// LaunchCost is what the launches of a plan cost in $/h, each at its cheapest offering.
func LaunchCost(plan schedule.Plan) (sum float64) {
	for i := range plan.Launches {
		sum += plan.Launches[i].Offering.Price
	}
	return sum
}

// StaticBatch is a set of nodes of a static pool to be replaced one for one.
type StaticBatch struct {
	Pool       *karpv1.NodePool
	Candidates []*Candidate
}

// StaticDrift returns, by static pool, the drifted nodes to replace, as many as the budgets allow: first those
// without failed attempts, then those that have been drifted longest. A pool with more nodes than its replicas is
// scaled down first. Pools that back off are left out.
func (a *DriftBackoff) StaticDrift(v *View, room *RemainingBudgets) []StaticBatch {
	candidates := slices.DeleteFunc(v.Drifted(true), func(c *Candidate) bool { return a.BacksOff(c.Pool.Name, v.Snapshot.Now) })
	slices.SortFunc(candidates, func(x, y *Candidate) int {
		return cmp.Or(cmp.Compare(x.Pool.Name, y.Pool.Name), cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
			x.Node.DriftedAt.Compare(y.Node.DriftedAt), cmp.Compare(x.Node.Name, y.Node.Name))
	})
	var out []StaticBatch
	for _, c := range candidates {
		if len(out) == 0 || out[len(out)-1].Pool != c.Pool {
			if active, pending := countNodes(v.Snapshot, c.Pool.Name); active+pending > *c.Pool.Spec.Replicas {
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
