package lp

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A master LP that starts from the last basis finishes at the same cost as one that starts from the first, whatever pods are
// left: the way to the optimum differs, the optimum does not.
func TestLastBasisLeadsToTheSameCost(t *testing.T) {
	kept := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := benchInput(1 + r.IntN(5))
		in.Offerings, in.Pods = in.Offerings[:40+r.IntN(80)], in.Pods[:100+r.IntN(200)]
		p := New(in)
		counts := make([]int, len(in.Pods))
		for k := range counts {
			counts[k] = in.Pods[k].Count
		}
		for round := range 8 {
			var left []Left
			for k := range counts {
				counts[k] = r.IntN(counts[k] + 1)
				if round == 5 {
					counts[k] = 3 // more is left than before: the way back must be right, too
				}
				left = append(left, Left{k, counts[k]})
			}
			p.Resolve(left)
			if !p.master.restart() {
				p.master.reset()
			} else {
				kept++
			}
			optimizeFully(&p.master)
			got := p.master.total(t)
			p.master.reset()
			optimizeFully(&p.master)
			if want := p.master.total(t); math.Abs(got-want) > 1e-6*(1+want) {
				t.Fatalf("seed %d, round %d: the mix costs %v from the last basis, %v from the first", seed, round, got, want)
			}
		}
	}
	if kept < 200 {
		t.Errorf("only %d of 320 solves started from the last basis", kept)
	}
}

// optimizeFully goes on where maxPivots stops.
func optimizeFully(m *masterLP) {
	for range 50 {
		m.optimize()
	}
}

// total is the cost of the mix, which must cover the demand of each row.
func (m *masterLP) total(t *testing.T) (cost float64) {
	t.Helper()
	covered := make([]float64, len(m.demand))
	for i, j := range m.basis {
		if m.level[i] < 0 {
			t.Fatalf("row %d has level %v", i, m.level[i])
		}
		if j < 0 {
			covered[^j] -= m.level[i]
			continue
		}
		cost += m.level[i] * m.cost[j]
		for _, e := range m.patterns[j].entries {
			covered[e.row] += m.level[i] * e.amount
		}
	}
	for row, d := range m.demand {
		if math.Abs(covered[row]-d) > 1e-6*(1+d) {
			t.Fatalf("row %d has %v of %v", row, covered[row], d)
		}
	}
	return cost
}
