package consolidate

import (
	"cmp"
	"math"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

const (
	// keepThreshold is the share of its price that the values of a node's pods and of its free room must reach for it
	// to be kept. The missing 3 % allow for the linear program's optimism: it packs fractions of pods, without
	// fragmentation.
	keepThreshold = 0.97
	// fillableShare is the share of all free room that pods can fill. The rest is lost to fragmentation, as pods come
	// in sizes.
	fillableShare = 0.9
	// minSplitSize is the size below which a rejected group is not halved: single-node consolidation costs no more
	// then.
	minSplitSize = 4
)

// groupSize returns how many of n nodes are simulated together, and the largest number of nodes that one command removes.
// It is large enough that the last, partly filled replacement of a group hardly matters, and grows with the square
// root, so that the number of commands and the size of each grow alike.
func groupSize(n int) int { return max(50, int(4*math.Sqrt(float64(n)))) }

// removalSet returns the candidates that should be removed by dual prices. It is the greedy solution of a knapsack:
// the nodes to keep, fullest first, until their free room and that of other nodes holds the pods of the rest. It
// costs O(n log n).
func (x *search) removalSet() []*node {
	freeValue, podValue := 0.0, 0.0
	for _, i := range x.destinations {
		if x.byIndex[i] == nil {
			freeValue += x.freeValue[i]
		}
	}
	var keep, out []*node
	for _, n := range x.nodes {
		podValue += n.podValue
		if n.podValue+n.freeValue >= keepThreshold*n.Price || x.deleteOnly(n) {
			keep = append(keep, n)
		} else {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(keep, func(a, b *node) int {
		return cmp.Or(disrupt.ByMaintenance(b.Candidate, a.Candidate), cmp.Compare(b.podValue*a.Price, a.podValue*b.Price))
	})
	for _, n := range keep {
		if freeValue*fillableShare < podValue {
			freeValue += n.freeValue
			podValue -= n.podValue
			continue
		}
		out = append(out, n)
	}
	return out
}

// deleteOnly reports whether the node can only be deleted, not replaced.
func (x *search) deleteOnly(n *node) bool {
	return n.CapacityType == karpv1.CapacityTypeSpot && !x.settings.SpotToSpot
}

// withinBudgets returns as many of the removal set as the budgets allow. Their order depends on whether the nodes
// that stay have room for their pods, which is free (then the price per pod counts), or new nodes have to be launched
// (then the reduced cost does).
func (x *search) withinBudgets(removal []*node) []*node {
	free := 0.0
	for _, i := range x.destinations {
		if n := x.byIndex[i]; n == nil {
			free += x.freeValue[i]
		} else {
			free += n.freeValue
		}
	}
	take := func(value func(*node) float64) (out []*node, podValue, freeValue float64) {
		order := slices.Clone(removal)
		slices.SortStableFunc(order, func(a, b *node) int {
			return cmp.Or(disrupt.ByMaintenance(a.Candidate, b.Candidate), cmp.Compare(value(b), value(a)))
		})
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
			podValue += n.podValue
			freeValue += n.freeValue
		}
		return out, podValue, freeValue
	}
	if out, podValue, freeValue := take((*node).pricePerDisruption); podValue <= fillableShare*(free-freeValue) {
		return out
	}
	out, _, _ := take((*node).reducedCost)
	return out
}

// multiNode removes the removal set in groups of one pool and capacity type.
func (x *search) multiNode(removal []*node) {
	closed := map[int]bool{}
	for _, n := range removal {
		closed[n.Index] = true
	}
	size := groupSize(len(x.nodes))
	for _, part := range byCapacityType(removal) {
		count := (len(part) + size - 1) / size
		for k := range count {
			x.removeGroup(part[k*len(part)/count:(k+1)*len(part)/count], closed)
		}
	}
	x.mixedCapacityTypes(size)
}

// mixedCapacityTypes simulates removing the remaining spot and on-demand nodes of a pool together: spot nodes alone
// may not be replaced by spot nodes, a mixed set may.
func (x *search) mixedCapacityTypes(size int) {
	if x.settings.SpotToSpot {
		return
	}
	byPool := map[string][]*node{}
	var pools []string
	for _, n := range x.nodes {
		if n.removed || n.destination || n.podValue+n.freeValue >= keepThreshold*n.Price {
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
		if parts := byCapacityType(list); len(parts) > 1 {
			x.removeGroup(list, map[int]bool{})
		}
	}
}

// byCapacityType groups nodes by pool and capacity type, in the order in which these come.
func byCapacityType(nodes []*node) [][]*node {
	at := map[[2]string]int{}
	var out [][]*node
	for _, n := range nodes {
		key := [2]string{n.Pool.Name, n.CapacityType}
		k, known := at[key]
		if !known {
			k = len(out)
			at[key] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], n)
	}
	return out
}

// maxGroupSimulations limits how many simulations one group takes, with the parts that it is split into. The full
// bisection of a group of 50 down to minSplitSize takes 15; the others are for simulations without the nodes that
// made one fail.
const maxGroupSimulations = 24

// removeGroup removes as many of the nodes as can be removed together. If a removal fails because of some nodes,
// these stay and may take pods of the others. If it fails because of none in particular, the half with the lower
// reduced costs stays open to the other half: a bisection.
//
// Invariant: a node of closed is in no plan as a destination, and every accepted move is applied to the problem
// before the next simulation, so all accepted moves hold at once. The cost is at most maxGroupSimulations
// simulations.
func (x *search) removeGroup(nodes []*node, closed map[int]bool) {
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
		g := slices.DeleteFunc(slices.Clone(todo[len(todo)-1]), func(n *node) bool { return n.destination || n.removed })
		todo = todo[:len(todo)-1]
		if tries >= maxGroupSimulations || x.limitReached(Multi) {
			for _, n := range g {
				delete(closed, n.Index)
			}
			continue
		}
		if len(g) == 0 {
			continue
		}
		q := x.removalQuestion(g, x.openDestinations(closed), false)
		plan := x.simulate(q)
		origins := x.origins(g)
		if blockers, why := x.unschedulable(&plan, origins); why.Reason != "" {
			x.setWhy(blockers, why)
			later(keepOpen(g, blockers, closed))
			continue
		}
		var good []*move
		refused := false
		for _, m := range splitIndependent(g, &plan, origins) {
			r := x.evaluate(m)
			if r == nil {
				good = append(good, m)
				continue
			}
			refused = true
			x.reject(m.removed, r)
			switch {
			case len(r.nodes) > 0:
				later(keepOpen(m.removed, r.nodes, closed))
			case len(m.removed) >= 2*minSplitSize:
				half := slices.Clone(m.removed)
				slices.SortStableFunc(half, func(a, b *node) int { return cmp.Compare(b.reducedCost(), a.reducedCost()) })
				worse := half[len(half)/2:]
				later(worse)
				later(keepOpen(half, worse, closed))
			default:
				keepOpen(m.removed, m.removed, closed)
			}
		}
		if !x.independent(good) {
			if refused {
				later(removedNodes(good)) // planned as if the rejected ones were removed as well
				continue
			}
			good = x.mergeAll(good)
		}
		for _, m := range good {
			x.apply(m)
		}
	}
}

// independent reports whether each move is valid whatever else of its plan is carried out: no rule of topology ties
// its pods to others.
func (x *search) independent(moves []*move) bool {
	return !slices.ContainsFunc(moves, func(m *move) bool {
		return slices.ContainsFunc(m.removed, func(n *node) bool { return !x.problem.TopologyNeutral(n.Pods) })
	})
}

// mergeAll merges moves that may be valid only together; it returns none if they cannot be merged.
func (x *search) mergeAll(moves []*move) []*move {
	for _, m := range moves[min(1, len(moves)):] {
		if !x.merge(moves[0], m) {
			return nil
		}
	}
	return moves[:min(1, len(moves))]
}

func removedNodes(moves []*move) []*node {
	var out []*node
	for _, m := range moves {
		out = append(out, m.removed...)
	}
	return out
}

func (x *search) setWhy(nodes []*node, why disrupt.Why) {
	for _, n := range nodes {
		n.why, n.until = why, time.Time{}
	}
}

// reject notes on nodes why a move of them was rejected.
func (x *search) reject(nodes []*node, r *rejection) {
	for _, n := range nodes {
		n.why, n.until = r.Why, r.until
	}
}

// keepOpen returns the nodes without some of them, which are open to the pods of the others from now on.
func keepOpen(nodes, some []*node, closed map[int]bool) []*node {
	for _, n := range some {
		delete(closed, n.Index)
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return slices.Contains(some, n) })
}
