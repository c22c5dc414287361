package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// attempt defines how a run plans.
type attempt struct {
	queue  []*queuedPod
	mode   preferenceMode
	how    strategy
	budget Budget
	// ceiling is the price of bins above which the run is given up.
	ceiling float64
	// whole are spread groups that are not divided over zones, since a run has left pods of them over; nil if no group is
	// divided any more.
	whole map[*topology.Group]bool
	// apart are the host rules that decide how many nodes a plan has, for apartFirst.
	apart map[*topology.Group]bool
	// countForeign is true if spreads count the domains that only nodes for other pods make: see intrusions.
	countForeign bool
	// besideNominated is true if spreads of nominated pods count no domain without nodes: see nominatedTooMany.
	besideNominated bool
	// later is true in all runs but the first of a plan: the pods with very many terms have fewer steps there.
	later bool
}

// run is an attempt in progress. What it changes in the solver, undo restores. There is one at a time, since all of them
// change the same nodes, bins and counts in place.
type run struct {
	*solver
	attempt
	number int // of the run: classes know by it whether they have pods in this one
	// classes are those of the run, by their first pod in the queue; zoned are those of divided pods, by number after
	// allClasses.
	classes, zoned []*class
	round          int           // classes of later rounds wait: see placeLast
	planned        []plannedPods // what a new bin was sized for, in the order of placement
	nominated      []*class      // of the pods on nodes that were launched for them
	rejected       []Rejection
	shares         shares // the steps of pods with many terms
	prices         prices
	before         baseline
	weighing       weighing
	// relaxed counts preferences that were dropped for scheduled pods.
	relaxed int
	// generation counts placements: a pod that failed is not tried again before another pod is placed.
	generation int
}

// baseline is the state at the start of a run that later changes in place.
type baseline struct {
	free  []float64 // on existing nodes, per axis
	nodes int
}

// weighing is the state of the policy Priced in a run.
type weighing struct {
	// scope is which pods a new node is sized for.
	scope fillScope
	// first is the packing class that the node is sized for at the moment, at level.
	first *sizing.PackingClass
	level int
	// rates are what a node costs for the preferences of its pods, as a share of their own prices; records is what has
	// become of preferences.
	rates   map[*bin.Bin]float64
	records map[*podclass.Constraints]*preferenceRecord
}

// begin starts a run without pods. Buffers of the run before are used again: simulations begin thousands.
func (sv *solver) begin(a attempt) *run {
	r := sv.running
	*r = run{
		solver: sv, attempt: a, number: r.number + 1, round: firstRound, generation: 1,
		classes: r.classes[:0], planned: r.planned[:0], prices: prices{market: sv.market.whole, left: r.prices.left},
	}
	sv.stop = a.budget.Stop
	if sv.pricing != nil {
		r.weighing.rates, r.weighing.records = map[*bin.Bin]float64{}, map[*podclass.Constraints]*preferenceRecord{}
	}
	return r
}
