package schedule

import (
	"math"
	"testing"
)

// Plans that leave fewer pods come first, whatever they cost. Costs that differ by rounding are equal, for which neither
// plan is better.
func TestMeritRelations(t *testing.T) {
	rounded := merit{cost: 1 + 1e-12}
	for _, c := range []struct {
		name          string
		a, b          merit
		fewer, better bool
		noWorse       bool
	}{
		{"fewer pods left at a higher price", merit{rejected: 1, cost: 9}, merit{rejected: 2, cost: 1}, true, true, true},
		{"more pods left at a lower price", merit{rejected: 2, cost: 1}, merit{rejected: 1, cost: 9}, false, false, false},
		{"a lower price", merit{cost: 1}, merit{cost: 1.001}, false, true, true},
		{"a higher price", merit{cost: 1.001}, merit{cost: 1}, false, false, false},
		{"rounding up", rounded, merit{cost: 1}, false, false, true},
		{"rounding down", merit{cost: 1}, rounded, false, false, true},
	} {
		if got := c.a.fewer(c.b); got != c.fewer {
			t.Errorf("%s: fewer is %v", c.name, got)
		}
		if got := c.a.better(c.b); got != c.better {
			t.Errorf("%s: better is %v", c.name, got)
		}
		if got := c.a.noWorse(c.b); got != c.noWorse {
			t.Errorf("%s: noWorse is %v", c.name, got)
		}
	}
}

// A portfolio prefers fewer nodes among plans within 1 %, but not to a plain plan that costs less.
func TestChoiceAmongOutcomes(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []merit
		want int
	}{
		{"the cheapest", []merit{{cost: 1.02, nodes: 1}, {cost: 1, nodes: 2}}, 1},
		{"fewer nodes within 1 %", []merit{{cost: 1, nodes: 2}, {cost: 1.009, nodes: 1}}, 1},
		{"fewer nodes above first fit", []merit{{cost: 1, nodes: 2}, {cost: 1.009, nodes: 1}, {cost: 1.005, nodes: 3, plain: true}}, 0},
		{"fewer pods left", []merit{{rejected: 1, cost: 1}, {cost: 2, nodes: 9}}, 1},
		{"fewer preferences dropped", []merit{{dropped: 1, cost: 1}, {cost: 2, nodes: 9}}, 1},
		{"no fewer nodes for a preference", []merit{{cost: 1, nodes: 2}, {dropped: 1, cost: 1, nodes: 1}}, 0},
	} {
		var all []*outcome
		for _, m := range c.all {
			all = append(all, &outcome{merit: m})
		}
		if got := choose(all); got != all[c.want] {
			t.Errorf("%s: chose %+v", c.name, got.merit)
		}
	}
}

// A later attempt is given up above 1 % more than the first plan, unless it may place more pods or keep more preferences.
func TestCeilingOfLaterAttempts(t *testing.T) {
	few, many := make([]*queuedPod, 10), make([]*queuedPod, maxPodsForAllStrategies+1)
	for _, c := range []struct {
		name  string
		queue []*queuedPod
		first outcome
		want  float64
	}{
		{"all pods", few, outcome{merit: merit{cost: 2}}, 2 * similarCost},
		{"all but unplaceable pods", few, outcome{merit: merit{cost: 2, rejected: 3}, unplaceable: 3}, 2 * similarCost},
		{"pods are left", few, outcome{merit: merit{cost: 2, rejected: 4}, unplaceable: 3}, math.Inf(1)},
		{"a preference is dropped", few, outcome{merit: merit{cost: 2, dropped: 1}}, math.Inf(1)},
		{"a preference is dropped among many pods", many, outcome{merit: merit{cost: 2, dropped: 1}}, 2 * similarCost},
	} {
		p := portfolio{current: attempt{queue: c.queue}, first: &c.first}
		if got := p.ceiling(); got != c.want {
			t.Errorf("%s: the ceiling is %v, want %v", c.name, got, c.want)
		}
	}
}
