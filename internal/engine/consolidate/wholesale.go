package consolidate

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

const (
	// fair is the share of its price that a node's pods, and what else it could hold, must be worth for it to be kept.
	fair = 0.97
	// filled is the share of all free room that can be filled, pods being of a size.
	filled = 0.9
	// fewest is how many nodes a group is not divided below.
	fewest = 4
)

// groupSize is how many of n doomed nodes are asked about together, and how many nodes one command ends at most: more than the
// few after which the last replacement of a group still matters, and so many that the number of commands and the size of each
// grow alike.
func groupSize(n int) int { return max(50, int(4*math.Sqrt(float64(n)))) }

// doomed are the candidates that should go by what prices say.
func (x *search) doomed() []*node {
	supply, wanting := 0.0, 0.0
	for _, i := range x.open {
		if x.byIndex[i] == nil {
			supply += x.spare[i]
		}
	}
	var keep, out []*node
	for _, n := range x.nodes {
		wanting += n.worth
		if n.worth+n.room >= fair*n.Price || x.irreplaceable(n) {
			keep = append(keep, n)
		} else {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(keep, func(a, b *node) int { return cmp.Compare(b.worth*a.Price, a.worth*b.Price) })
	for _, n := range keep {
		if supply*filled < wanting {
			supply += n.room
			wanting -= n.worth
			continue
		}
		out = append(out, n)
	}
	return out
}

// irreplaceable tells whether the node can only be ended, not replaced.
func (x *search) irreplaceable(n *node) bool {
	return n.CapacityType == karpv1.CapacityTypeSpot && !x.st.SpotToSpot
}

// affordable takes of the doomed as many as the budgets let go. What they are worth to end depends on whether those that
// stay have room for their pods, which is free, or room must be bought.
func (x *search) affordable(doomed []*node) []*node {
	free := 0.0
	for _, i := range x.open {
		if n := x.byIndex[i]; n == nil {
			free += x.spare[i]
		} else {
			free += n.room
		}
	}
	take := func(value func(*node) float64) (out []*node, worth, room float64) {
		order := slices.Clone(doomed)
		slices.SortStableFunc(order, func(a, b *node) int { return cmp.Compare(value(b), value(a)) })
		left := map[string]int{}
		for name, n := range x.budget {
			left[name] = n
		}
		for _, n := range order {
			if left[n.Pool.Name] <= 0 {
				x.result.OverBudget = true
				continue
			}
			left[n.Pool.Name]--
			out = append(out, n)
			worth += n.worth
			room += n.room
		}
		return out, worth, room
	}
	if out, worth, room := take((*node).ratio); worth <= filled*(free-room) {
		return out
	}
	out, _, _ := take((*node).merit)
	return out
}

// wholesale ends the doomed in groups.
func (x *search) wholesale(doomed []*node) {
	closed := map[int]bool{}
	for _, n := range doomed {
		closed[n.Index] = true
	}
	size := groupSize(len(x.nodes))
	for _, of := range alike(doomed) {
		count := (len(of) + size - 1) / size
		for k := range count {
			x.group(of[k*len(of)/count:(k+1)*len(of)/count], closed)
		}
	}
	x.mixed(size)
}

// mixed merges what is left of pools with both spot and on-demand nodes: what spot nodes alone may not be replaced by, they
// may together with others.
func (x *search) mixed(size int) {
	if x.st.SpotToSpot {
		return
	}
	byPool := map[string][]*node{}
	var pools []string
	for _, n := range x.nodes {
		if n.ends || n.host || n.worth+n.room >= fair*n.Price {
			continue
		}
		if byPool[n.Pool.Name] == nil {
			pools = append(pools, n.Pool.Name)
		}
		byPool[n.Pool.Name] = append(byPool[n.Pool.Name], n)
	}
	for _, name := range pools {
		list := byPool[name]
		list = list[:min(len(list), size, max(0, x.budget[name]))]
		if kinds := alike(list); len(kinds) > 1 {
			x.group(list, map[int]bool{})
		}
	}
}

// alike sorts nodes by pool and capacity type, in the order in which these come.
func alike(nodes []*node) [][]*node {
	type sort struct{ pool, capacityType string }
	at := map[sort]int{}
	var out [][]*node
	for _, n := range nodes {
		s := sort{n.Pool.Name, n.CapacityType}
		k, known := at[s]
		if !known {
			k = len(out)
			at[s] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], n)
	}
	return out
}

// attempts bounds how often one group is asked about, in parts.
const attempts = 24

// group ends as many of the nodes as can be ended together. A node that is at fault when they cannot stays, and may take pods
// of the others; where nobody is, the half that would save least stays open to the other.
func (x *search) group(nodes []*node, closed map[int]bool) {
	todo := [][]*node{nodes}
	later := func(list []*node) {
		if len(list) > 1 {
			todo = append(todo, list)
		}
		if len(list) == 1 {
			delete(closed, list[0].Index)
		}
	}
	for tries := 0; len(todo) > 0; tries++ {
		g := slices.DeleteFunc(slices.Clone(todo[len(todo)-1]), func(n *node) bool { return n.host || n.ends })
		todo = todo[:len(todo)-1]
		if tries >= attempts || x.spent() {
			for _, n := range g {
				delete(closed, n.Index)
			}
			continue
		}
		if len(g) == 0 {
			continue
		}
		q := x.question(g, x.into(closed), false)
		plan := x.ask(q)
		homes := x.homes(g)
		if fault, why := x.homeless(&plan, homes); why != "" {
			x.blame(fault, why, false)
			later(without(g, fault, closed))
			continue
		}
		var good []*move
		refused := false
		for _, m := range split(g, &plan, homes) {
			r := x.judge(m)
			if r == nil {
				good = append(good, m)
				continue
			}
			refused = true
			x.blame(m.gone, r.why, r.quiet)
			switch {
			case len(r.fault) > 0:
				later(without(m.gone, r.fault, closed))
			case len(m.gone) >= 2*fewest:
				half := slices.Clone(m.gone)
				slices.SortStableFunc(half, func(a, b *node) int { return cmp.Compare(b.merit(), a.merit()) })
				worse := half[len(half)/2:]
				later(worse)
				later(without(half, worse, closed))
			default:
				without(m.gone, m.gone, closed)
			}
		}
		if !x.apart(good) {
			if refused {
				later(union(good)) // was planned for a world in which the others are gone as well
				continue
			}
			good = x.tied(good)
		}
		for _, m := range good {
			x.accept(m)
		}
	}
}

// apart tells whether the moves are right whatever else of their plan is carried out.
func (x *search) apart(moves []*move) bool {
	return !slices.ContainsFunc(moves, func(m *move) bool {
		return slices.ContainsFunc(m.gone, func(n *node) bool { return !x.p.Indifferent(n.Pods) })
	})
}

// tied makes one of moves that may be right only together; none, if they cannot be one.
func (x *search) tied(moves []*move) []*move {
	for _, m := range moves[min(1, len(moves)):] {
		if !x.join(moves[0], m) {
			return nil
		}
	}
	return moves[:min(1, len(moves))]
}

func union(moves []*move) []*node {
	var out []*node
	for _, m := range moves {
		out = append(out, m.gone...)
	}
	return out
}

func (x *search) blame(nodes []*node, why string, quiet bool) {
	for _, n := range nodes {
		n.why, n.quiet = why, quiet
	}
}

// without leaves some of the nodes, which are open from then on.
func without(nodes, some []*node, closed map[int]bool) []*node {
	for _, n := range some {
		delete(closed, n.Index)
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return slices.Contains(some, n) })
}

// retail asks about each of the candidates that are left, alone.
func (x *search) retail(nodes []*node) {
	for _, n := range nodes {
		switch {
		case n.ends || n.host:
			continue
		case x.spent():
			return
		case x.budget[n.Pool.Name] <= 0:
			x.result.OverBudget = true
			x.blame([]*node{n}, "The budgets of its NodePool allow no further disruption now", true)
			continue
		case !x.hopeful(n):
			n.examined = true
			x.blame([]*node{n}, "It would disturb more than it saves", true)
			continue
		}
		g := []*node{n}
		plan := x.ask(x.question(g, x.into(nil), true))
		homes := x.homes(g)
		if _, why := x.homeless(&plan, homes); why != "" {
			x.blame(g, why, false)
			continue
		}
		m := &move{gone: g, plan: plan}
		if r := x.judge(m); r != nil {
			x.blame(g, r.why, r.quiet)
			continue
		}
		x.accept(m)
	}
}

// interleaved are the candidates, the first of each pool, then the second of each, and so on.
func (x *search) interleaved() []*node {
	var pools []string
	lists := map[string][]*node{}
	for _, n := range x.nodes {
		if lists[n.Pool.Name] == nil {
			pools = append(pools, n.Pool.Name)
		}
		lists[n.Pool.Name] = append(lists[n.Pool.Name], n)
	}
	out := make([]*node, 0, len(x.nodes))
	for k := 0; len(out) < len(x.nodes); k++ {
		for _, name := range pools {
			if k < len(lists[name]) {
				out = append(out, lists[name][k])
			}
		}
	}
	return out
}

// hopeful tells whether the pool would approve if the node could be ended for nothing.
func (x *search) hopeful(n *node) bool {
	t, ok := x.totals[n.Pool.Name]
	if n.Pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationBalanced || !ok || t.Cost <= 0 {
		return true
	}
	return Score(t, n.Price, n.Cost).Approved
}
