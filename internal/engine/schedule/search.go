package schedule

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Policies of snapshot.Settings.
const (
	preferIgnore = "Ignore"
	bestEffort   = "BestEffort"
)

// solver is the state of one Solve.
type solver struct {
	s                  *snapshot.Snapshot
	budget             Budget
	strategy           strategy
	respectPreferences bool // preferences count until no node satisfies them
	pricing            *pricing
	bestEffort         bool // minValues may be lowered
	softTaints         bool // some pool or open node has a taint of effect PreferNoSchedule

	axes       resources.Axes
	unusedAxes resources.Bitset   // axes on which only unplaceable pods request something
	pending    map[types.UID]bool // pods that this Solve schedules
	daemons    []*existing.Daemon
	pools      *nodepool.Models   // as models for new nodes
	volumes    *volume.Limits     // attach limits, and which pods share claims
	topology   *topology.Registry // the groups that count pods per domain
	nodes      *existing.Set
	bins       *bin.Set // the nodes to launch
	allClasses []*class // all classes, by number: in the order of the pods
	zoned      []*class // classes of divided pods, by number after those of allClasses
	classes    []*class // classes of this run, by their first pod in the queue
	// round is that of the run: classes of later ones wait. lastRound is the last that has classes. See placeLast.
	round, lastRound int
	// countForeign is true if spreads count the domains that only nodes for other pods make: see intrusions.
	countForeign bool
	shares       shares // the steps of pods with many terms

	prices prices

	sizer   *sizing.Sizer // what new bins become
	planned []plannedPods // what a new bin was sized for, in the order of placement
	slots   reservation.Slots

	steps     int
	abandoned bool // Budget.Stop has finished planning
	// costCeiling is the price of bins above which the run is given up.
	costCeiling float64
	// relaxedPreferences counts preferences that were dropped for scheduled pods.
	relaxedPreferences int
	// generation counts placements: a pod that failed is not tried again before another pod is placed.
	generation  int
	rejected    []Rejection
	invalidPods []Rejection // pods that cannot be parsed

	devices *devices.State
	groups  snapshot.Groups // the PodGroups
	domains domains         // where those of one domain are

	// apart are the host rules that decide how many nodes a plan has; keepApart is true in runs of apartFirst.
	apart     map[*topology.Group]bool
	keepApart bool

	// hostGroups are the groups over hostnames that matter to coverExactly.
	hostGroups map[*topology.Group]bool
	// wholeGroups are spread groups that are not divided over zones, since a run has left pods of them over; nil while no
	// group is divided.
	wholeGroups map[*topology.Group]bool

	run   int
	start baseline
}

// baseline is the state at the start of a run that later changes in place.
type baseline struct {
	free  []float64 // on existing nodes, per axis
	nodes int
}

func newSolver(s *snapshot.Snapshot) *solver {
	return &solver{
		s: s, pending: make(map[types.UID]bool, len(s.Pods)), generation: 1, devices: devices.New(s),
		respectPreferences: s.Settings.PreferencePolicy != preferIgnore, bestEffort: s.Settings.MinValuesPolicy == bestEffort,
		pricing: newPricing(s.Settings),
	}
}

// runStrategy plans the queue with one strategy and then undoes its changes. It returns nil if the plan would cost more
// than most, and adds the steps that it took to the count. A run that leaves divided pods over is repeated without
// dividing them, at most twice, and one in which nodes for other pods intrude, once. One that counts on more pods on each host than new
// nodes have, or to which nodes bring too many pods of DaemonSets, is repeated at most three times for each such spread.
func (sv *solver) runStrategy(queue []*queuedPod, how strategy, most float64, steps *int) *outcome {
	sv.countForeign = false
	for {
		if o, repeat := sv.tryStrategy(queue, how, most, steps); !repeat {
			return o
		}
	}
}

// tryStrategy is one run of runStrategy.
func (sv *solver) tryStrategy(queue []*queuedPod, how strategy, most float64, steps *int) (o *outcome, repeat bool) {
	defer func() {
		*steps += sv.steps + sv.shares.beside
		sv.mergeZones(queue)
		sv.undoRun()
	}()
	budget := sv.budget
	sv.strategy, sv.costCeiling = how, most
	if how == undivided || how == apartFirst {
		sv.strategy = balanced
	}
	left := sv.applyNominations(sv.startRun(queue))
	left, aside := sv.splitUnplaceable(left)
	hopeless := len(sv.rejected) + len(aside)
	sv.shares.begin(sv.classes)
	sv.sumFreeRoom()
	switch {
	case budget.FirstFitOnly:
	case sv.prices.market == nil:
		sv.priceQueue()
		if sv.apart = sv.overwhelmingHostRules(left); how == balanced && len(sv.apart) > 0 {
			how = apartFirst
		}
	case !how.plain(): // plain ones need no dual prices
		sv.resolveForStrategy()
	}
	if how != undivided && !how.plain() {
		left = sv.divideOverZones(left)
	}
	if sv.keepApart = how == apartFirst; sv.keepApart {
		left = sv.apartFirst(left)
	}
	divided := len(sv.zoned) > 0
	left = sv.placeAll(left)
	if sv.bins.Cost() > sv.costCeiling || sv.abandoned {
		return nil, false
	}
	if divided && sv.leavesDivided(left) {
		return nil, true
	}
	if !budget.FirstFitOnly {
		sv.coverExactly()
	}
	if sv.intrusions() || sv.hostsTooFull() || sv.daemonsTooMany() {
		return nil, true
	}
	bins := sv.bins.Len()
	p := sv.plan(append(left, aside...), len(queue))
	switch {
	case sv.abandoned:
		return nil, false
	case divided && sv.bins.Len() < bins: // a bin that cannot be launched may have held divided pods
		sv.wholeGroups = nil
		return nil, true
	}
	o = &outcome{p, how, p.Cost(), sv.relaxedPreferences, hopeless, divided}
	sv.weigh(o)
	return o, false
}

// sumFreeRoom sums the room that existing nodes have left after nominated pods.
func (sv *solver) sumFreeRoom() {
	for _, c := range sv.classes {
		c.onExisting = 0
	}
	sv.start.free, sv.start.nodes = make([]float64, sv.axes.Len()), 0
	for _, n := range sv.nodes.All() {
		sv.start.nodes += btoi(n.Exists())
		for i, x := range n.Free() {
			if n.Exists() && x > 0 {
				sv.start.free[i] += float64(x)
			}
		}
	}
}

// applyNominations schedules pods onto the claims that were launched for them. A claim without a ready node keeps its
// pods whatever else has changed, and so does a node that has just become ready; later it keeps those that still fit.
func (sv *solver) applyNominations(queue []*queuedPod) []*queuedPod {
	if !sv.nodes.AnyNominated() {
		return queue
	}
	byUID := make(map[types.UID]*queuedPod, len(queue))
	for _, q := range queue {
		byUID[q.pod.UID] = q
	}
	nodes := slices.Clone(sv.nodes.All()) // claims without a ready node first: they keep their pods in any case
	slices.SortStableFunc(nodes, func(a, b *existing.Node) int {
		return btoi(a.Source().Initialized && !a.Source().Settling) - btoi(b.Source().Initialized && !b.Source().Settling)
	})
	for _, n := range nodes {
		if n.Source().Deleting || !n.Exists() {
			continue
		}
		for _, uid := range slices.Sorted(slices.Values(n.Source().Nominated)) {
			q, ok := byUID[uid]
			if !ok || (!n.Source().KeepsNominated(uid) && !sv.stillFits(n, q.class)) {
				continue
			}
			delete(byUID, uid)
			sv.join(n, q.class, q.pod)
			q.placed = true
			q.class.Leave()
		}
	}
	return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
}

// join puts the pod on the node.
func (sv *solver) join(n *existing.Node, c *class, pod *corev1.Pod) {
	sv.nodes.Join(n, c.Class, pod)
	c.onExisting++
}

// stillFits reports whether the node takes a pod of the class, at any level.
func (sv *solver) stillFits(n *existing.Node, c *class) bool {
	return slices.ContainsFunc(c.Levels(), func(level *podclass.Level) bool {
		ok, _ := sv.nodes.CanJoin(n, c.Class, level)
		return ok
	})
}

// placeAll goes through the queue until a whole pass places nothing, since placing one pod can make room for another
// (pod affinity). It returns the pods that are left. The planned content of a new bin comes before the rest of the
// queue.
//
// Invariant: every pass but the last places a pod, so it finishes. Deferred and last classes are skipped in the first passes
// only.
func (sv *solver) placeAll(queue []*queuedPod) []*queuedPod {
	sv.startSizing()
	for deferring := sv.prices.market != nil && !sv.strategy.plain() && len(sv.pools.All()) > 1; ; deferring = false {
		before := sv.generation
		for _, q := range queue {
			if q.class.round > sv.round {
				continue
			}
			if sv.stopRequested() || sv.outOfSteps() {
				return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
			}
			if !q.placed && !(deferring && q.class.deferred) && sv.placePod(q) {
				sv.decideDaemons()
				sv.placePlanned()
				if sv.bins.Cost() > sv.costCeiling {
					return queue
				}
			}
		}
		queue = slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
		if len(queue) == 0 {
			return queue
		}
		if sv.generation == before && !deferring && !sv.commit(queue) && !sv.decide(queue) {
			switch {
			case sv.round < sv.lastRound:
				sv.round++
				sv.decideAllDaemons()
			case !sv.release(queue) && !sv.forgetForesight():
				return queue
			}
		}
	}
}

// placePlanned places what new bins were sized for.
func (sv *solver) placePlanned() {
	for k := 0; k < len(sv.planned); k++ {
		p := sv.planned[k]
		for range p.Pods {
			c := p.Class.First()
			if c == nil {
				break
			}
			q := sv.classOf(c.Class).first()
			if q == nil || !(p.into != nil && sv.placePlannedIn(q, p.into) || sv.placePod(q)) {
				break
			}
		}
	}
	sv.planned = sv.planned[:0]
}

// first is the first pod of the class that is not scheduled; nil if all are.
func (c *class) first() *queuedPod {
	for ; c.nextPod < len(c.pods); c.nextPod++ {
		if q := c.pods[c.nextPod]; !q.placed {
			return q
		}
	}
	return nil
}

// placePod schedules one pod, dropping its preferences one by one.
func (sv *solver) placePod(q *queuedPod) bool {
	c := q.class
	if c.failedAt == sv.generation {
		return false
	}
	if c.ManyTerms() {
		began := sv.steps
		defer func() { sv.chargeSteps(c, sv.steps-began) }()
		return sv.placePodFrom(q, began)
	}
	return sv.placePodFrom(q, sv.steps)
}

// placePodFrom is placePod, begun at a number of steps. At each relaxation level, an existing node comes before a bin,
// a bin before a new bin, and a new bin before exceeding the ceiling of a bin.
func (sv *solver) placePodFrom(q *queuedPod, began int) bool {
	if sv.weighs(q.class) {
		return sv.placePriced(q, began)
	}
	return sv.placeFrom(q, sv.leastLevel(q.class), began)
}

// placeFrom is placePodFrom for the relaxation levels from the first one on.
func (sv *solver) placeFrom(q *queuedPod, first, began int) bool {
	c := q.class
	for i := first; i < len(c.Levels()); i++ {
		if c.ManyTerms() {
			if i = sv.nextLevel(c, i, began); i < 0 {
				break
			}
		}
		if sv.placeOnExisting(q, i) ||
			!sv.topology.NoDomainLeft(c.Views(c.Levels()[i]), c.Levels()[i].Full(), sv.pools.RequiresAbsent) &&
				(sv.placeInBin(q, i, bin.BelowCeiling) || sv.placeInNewBin(q, i) || sv.placeAboveCeiling(q, i)) {
			sv.placed(q, i)
			return true
		}
	}
	c.failedAt = sv.generation
	return false
}

// placePlannedIn puts the pod in a bin that was enlarged for it.
func (sv *solver) placePlannedIn(q *queuedPod, b *bin.Bin) bool {
	if sv.weighs(q.class) {
		return sv.placePlannedAtAnyLevel(q, b)
	}
	level := sv.firstOpenLevel(q.class)
	if level < 0 {
		return false
	}
	g, why := sv.bins.Grow(b, q.class.Class, q.class.Levels()[level], bin.BelowCeiling)
	if why != nil {
		return false
	}
	sv.bins.Add(b, q.class.Class, q.pod, g)
	sv.placed(q, level)
	return true
}

// placed records that the pod is placed, at a relaxation level.
func (sv *solver) placed(q *queuedPod, level int) {
	q.placed = true
	q.class.attempts[level].placed++
	sv.relaxedPreferences += q.class.Levels()[level].Dropped()
	q.class.Place()
	sv.prices.valueLeft -= q.class.boundValue
	sv.generation++
	sv.decideCrossed(q)
}

// placeOnExisting puts the pod on the first existing node that takes it.
func (sv *solver) placeOnExisting(q *queuedPod, i int) bool {
	c := q.class
	if !sv.nodes.Put(c.Class, c.Levels()[i], q.pod, &c.attempts[i].nodes) {
		return false
	}
	c.onExisting++
	return true
}

// placeInBin puts the pod into a bin that takes it: the first one, or for leastPods the one with the fewest pods.
func (sv *solver) placeInBin(q *queuedPod, i int, mode bin.Mode) bool {
	list := &q.class.attempts[i].bins
	if sv.strategy == leastPods {
		return sv.bins.PutWhereFewest(q.at(i, mode), list)
	}
	return sv.bins.Put(q.at(i, mode), list, q.class.Left() == 1)
}

// at is the search for a bin at a relaxation level.
func (q *queuedPod) at(i int, mode bin.Mode) bin.Search {
	return bin.Search{Class: q.class.Class, Level: q.class.Levels()[i], Pod: q.pod, Mode: mode}
}

// placeAboveCeiling puts the pod into any bin that holds it at any price, since no new bin is possible.
func (sv *solver) placeAboveCeiling(q *queuedPod, i int) bool {
	return sv.bins.PutAtAnyPrice(q.at(i, bin.AnyPrice), &q.class.attempts[i].aboveCeiling)
}

// compareRejections orders rejected pods by namespace and name.
func compareRejections(a, b Rejection) int {
	return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
}

// plan turns the state of the solver into the Plan.
func (sv *solver) plan(left []*queuedPod, pods int) Plan {
	p := Plan{Rejected: append(sv.rejected, sv.explain(left)...)}
	if sv.abandoned {
		return Plan{}
	}
	for _, n := range sv.nodes.All() {
		if on := n.Placement(); len(on.Pods) > 0 {
			p.Placements = append(p.Placements, on)
		}
	}
	launches, failed := sv.bins.Launch()
	for _, f := range failed {
		for _, pod := range f.Pods {
			p.Rejected = append(p.Rejected, Rejection{Pod: pod, Reasons: []Reason{f.Why}})
		}
	}
	p.Launches = launches
	for i := range launches {
		p.Stats.HourlyCost += launches[i].Offering.Price
		p.Stats.NodeCost += sv.s.Settings.NodeCost
	}
	slices.SortStableFunc(p.Rejected, compareRejections)
	p.Stats.Pods, p.Stats.Classes, p.Stats.Steps = pods+len(sv.invalidPods), len(sv.classes)-len(sv.zoned), sv.steps+sv.shares.beside
	p.Stats.RelaxedPreferences = sv.relaxedPreferences
	p.Stats.LowerBound = sv.lowerBound(&p)
	p.Preferences, p.DroppedWorth = sv.preferenceCosts(), sv.droppedWorth()
	p.Stats.InstanceTypes = sv.pools.TypeCount()
	return p
}
