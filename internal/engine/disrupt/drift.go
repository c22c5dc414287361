package disrupt

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Attempts remembers what has become of replacing nodes, so that a pool whose replacements do not come up neither wastes
// launches nor keeps others waiting. It is plain data; the zero value remembers nothing.
type Attempts struct {
	pools map[string]attempt
	// failed are claims whose replacement did not come up, and how often.
	failed map[types.UID]int
}

// attempt is what a pool has been through.
type attempt struct {
	// last is when a command of the pool was last started, after which others go first.
	last time.Time
	// fails in a row, and until when the pool pauses for it.
	fails int
	until time.Time
}

const (
	leastPause = time.Minute
	mostPause  = 10 * time.Minute
)

// Started notes that nodes of the pool are being replaced.
func (a *Attempts) Started(pool string, now time.Time) {
	a.change(pool, func(p *attempt) { p.last = now })
}

// Succeeded notes that a replacement of the pool came up.
func (a *Attempts) Succeeded(pool string) {
	a.change(pool, func(p *attempt) { p.fails, p.until = 0, time.Time{} })
}

// Failed notes that claims of the pool were not replaced after all. The pool pauses for a minute, twice as long each time, ten
// minutes at most, and up to a quarter more by jitter, which is in [0, 1).
func (a *Attempts) Failed(pool string, claims []types.UID, now time.Time, jitter float64) {
	a.change(pool, func(p *attempt) {
		pause := mostPause
		if p.fails < 4 {
			pause = min(mostPause, leastPause<<p.fails)
		}
		p.fails++
		p.until = now.Add(pause + time.Duration(jitter*float64(pause)/4))
	})
	a.vain(claims)
}

// Refused notes that replacing claims of the pool could not be begun. Once that may be by chance, and the claims go last; from
// then on it counts as a failure.
func (a *Attempts) Refused(pool string, claims []types.UID, now time.Time, jitter float64) {
	if slices.ContainsFunc(claims, func(uid types.UID) bool { return a.failed[uid] > 0 }) {
		a.Failed(pool, claims, now, jitter)
		return
	}
	a.vain(claims)
}

// vain notes that claims were tried in vain.
func (a *Attempts) vain(claims []types.UID) {
	if a.failed == nil {
		a.failed = map[types.UID]int{}
	}
	for _, uid := range claims {
		a.failed[uid]++
	}
}

func (a *Attempts) change(pool string, f func(*attempt)) {
	if a.pools == nil {
		a.pools = map[string]attempt{}
	}
	p := a.pools[pool]
	f(&p)
	a.pools[pool] = p
}

// Pauses tells whether nodes of the pool are not to be replaced yet.
func (a *Attempts) Pauses(pool string, now time.Time) bool { return now.Before(a.pools[pool].until) }

// Forget drops claims that are gone.
func (a *Attempts) Forget(v *View) {
	there := make(map[types.UID]bool, len(v.Snapshot.Nodes))
	for i := range v.Snapshot.Nodes {
		there[v.Snapshot.Nodes[i].ClaimUID] = true
	}
	for uid := range a.failed {
		if !there[uid] {
			delete(a.failed, uid)
		}
	}
}

// Drifted returns the candidates that are out of date, of pools of a fixed size or of the others.
func (v *View) Drifted(fixed bool) []*Candidate {
	var out []*Candidate
	for _, list := range [][]*Candidate{v.Candidates, v.Bounded} {
		for _, c := range list {
			if !c.Node.DriftedAt.IsZero() && (c.Pool.Spec.Replicas != nil) == fixed {
				out = append(out, c)
			}
		}
	}
	return out
}

// DriftOrder sorts drifted candidates into the order in which they are tried. Pools take turns: that which waits longest for
// one goes first. Within a pool nodes without pods come first, then those that were not tried in vain, then those
// that have been out of date for longest. Pools that pause are left out.
func (a *Attempts) DriftOrder(candidates []*Candidate, now time.Time) []*Candidate {
	byPool := map[string][]*Candidate{}
	var pools []string
	for _, c := range candidates {
		name := c.Node.Pool
		if a.Pauses(name, now) {
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
				cmp.Compare(sign(len(x.Pods)), sign(len(y.Pods))),
				cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
				x.Node.DriftedAt.Compare(y.Node.DriftedAt),
				cmp.Compare(x.Node.Name, y.Node.Name),
			)
		})
	}
	slices.SortFunc(pools, func(x, y string) int {
		return cmp.Or(a.pools[x].last.Compare(a.pools[y].last), byPool[x][0].Node.DriftedAt.Compare(byPool[y][0].Node.DriftedAt), cmp.Compare(x, y))
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

func sign(n int) int { return min(n, 1) }

// Drift finds the next node to replace because it is out of date: the first in order that the room admits, and whose pods all
// have a place to go. Nil if there is none among the first most of them, not counting those that have no room. Those whose pods have
// no place to go are left, with why.
func Drift(p *schedule.Problem, v *View, order []*Candidate, room *Room, most int, budget schedule.Budget) (*Command, []Left) {
	var left []Left
	for _, c := range order {
		if !room.Holds([]*Candidate{c}) {
			continue
		}
		if len(left) == most {
			break
		}
		o := Judge(v.Snapshot, []*Candidate{c}, p.WhatIf([]int{c.Index}, c.Pods, budget))
		if why := o.Refuses(); why != "" {
			left = append(left, Left{Candidate: c, Why: why})
			continue
		}
		return &Command{Reason: karpv1.DisruptionDrifted, Candidates: []*Candidate{c}, Plan: o.Plan, Savings: c.Price - Cost(o.Plan)}, left
	}
	return nil, left
}

// Cost of the launches of a plan, in $/h, each at its cheapest offering.
func Cost(plan schedule.Plan) (sum float64) {
	for i := range plan.Launches {
		sum += plan.Launches[i].Offering.Price
	}
	return sum
}

// Turn is nodes of a pool of a fixed size to be replaced one for one.
type Turn struct {
	Pool       *karpv1.NodePool
	Candidates []*Candidate
}

// StaticDrift returns, by pool of a fixed size, the nodes to replace because they are out of date, as many as the room
// admits: first those that were not tried in vain, then those that have been so for longest. A pool that has more nodes than it
// is to have shrinks first. Pools that pause are left out.
func (a *Attempts) StaticDrift(v *View, room *Room) []Turn {
	candidates := slices.DeleteFunc(v.Drifted(true), func(c *Candidate) bool { return a.Pauses(c.Pool.Name, v.Snapshot.Now) })
	slices.SortFunc(candidates, func(x, y *Candidate) int {
		return cmp.Or(cmp.Compare(x.Pool.Name, y.Pool.Name), cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
			x.Node.DriftedAt.Compare(y.Node.DriftedAt), cmp.Compare(x.Node.Name, y.Node.Name))
	})
	var out []Turn
	for _, c := range candidates {
		if len(out) == 0 || out[len(out)-1].Pool != c.Pool {
			if active, pending := fleet(v.Snapshot, c.Pool.Name); active+pending > *c.Pool.Spec.Replicas {
				continue
			}
			out = append(out, Turn{Pool: c.Pool})
		}
		if turn := &out[len(out)-1]; len(turn.Candidates) < room.Left(c.Pool.Name) {
			turn.Candidates = append(turn.Candidates, c)
		}
	}
	return slices.DeleteFunc(out, func(t Turn) bool { return len(t.Candidates) == 0 })
}
