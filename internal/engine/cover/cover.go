// Package cover finds how many nodes of which type hold n equal pods at the least price: an unbounded covering knapsack,
// which dynamic programming solves exactly. It is the common case of a single workload that scales up, where few nodes are
// launched and the last one matters. It has no state.
package cover

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Node is a node with how many of the pods it holds.
type Node struct {
	Pods int
	// Candidate is the index of its type in the list of candidates.
	Candidate int
}

// Holders are the types that hold pods with these requests, each more of them, up to most, than any
// cheaper type: the Pareto front.
func Holders(cands *nodepool.Candidates, requests resources.Vec, most int) []Node {
	var out []Node
	best := 0
	for k, cand := range cands.List() {
		room := cands.TypeOf(cand).Room()
		n := int64(most)
		for i, r := range requests {
			switch {
			case room[i] < 0:
				n = 0
			case r > 0:
				n = min(n, room[i]/r)
			}
		}
		if int(n) > best {
			best = int(n)
			out = append(out, Node{best, k})
		}
	}
	return out
}

// Cheapest is the cheapest choice of nodes that together hold n pods, largest first, with its price. Each node is
// charged extra.
//
// Invariant: cost[k] is the least cost of holding k pods. Cost: n times the types on the Pareto front.
func Cheapest(cands *nodepool.Candidates, holders []Node, n int, extra float64) ([]Node, float64) {
	cost, by := make([]float64, n+1), make([]Node, n+1)
	for left := 1; left <= n; left++ {
		cost[left] = math.Inf(1)
		for _, h := range holders {
			if x := cands.List()[h.Candidate].Price + extra + cost[max(0, left-h.Pods)]; x < cost[left]-1e-12 {
				cost[left], by[left] = x, h
			}
		}
	}
	var out []Node
	price := 0.0
	for left := n; left > 0; left -= by[left].Pods {
		if by[left].Pods == 0 {
			return nil, math.Inf(1)
		}
		out = append(out, by[left])
		price += cands.List()[by[left].Candidate].Price
	}
	slices.SortStableFunc(out, func(a, b Node) int { return b.Pods - a.Pods })
	return out, price
}
