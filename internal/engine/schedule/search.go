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

// solver is what all runs of a Solve, or of the simulations of a Problem, share.
type solver struct {
	s *snapshot.Snapshot
	policy
	meter
	podGroups

	axes        resources.Axes
	unusedAxes  resources.Bitset   // axes on which only unplaceable pods request something
	pending     map[types.UID]bool // pods that this Solve schedules
	daemons     []*existing.Daemon
	pools       *nodepool.Models   // as models for new nodes
	volumes     *volume.Limits     // attach limits, and which pods share claims
	topology    *topology.Registry // the groups that count pods per domain
	nodes       *existing.Set
	bins        *bin.Set      // the nodes to launch
	sizer       *sizing.Sizer // what new bins become
	slots       reservation.Slots
	devices     *devices.State
	allClasses  []*class    // all classes, by number: in the order of the pods
	lastRound   int         // the last round that has classes: see placeLast
	postponed   bool        // postpone has moved classes to a later round
	invalidPods []Rejection // pods that cannot be parsed

	pricing *pricing
	market  market
	running *run // the run in progress, or the last one
}

// policy holds the settings of the snapshot for the search.
type policy struct {
	respectPreferences bool // preferences count until no node satisfies them
	bestEffort         bool // minValues may be lowered
	softTaints         bool // some pool or open node has a taint of effect PreferNoSchedule
}

// meter counts the steps of the run in progress, and stops planning.
type meter struct {
	steps     int
	stop      func() bool // Budget.Stop
	abandoned bool        // stop has canceled planning
	// spentOnManyTerms is by namespace what its pods with very many terms have taken in all runs.
	spentOnManyTerms map[string]int
}

// podGroups are the PodGroups, and where those of one domain are.
type podGroups struct {
	groups  snapshot.Groups
	domains domains
}

func newSolver(s *snapshot.Snapshot) *solver {
	return &solver{
		s: s, pending: make(map[types.UID]bool, len(s.Pods)), devices: devices.New(s), running: &run{},
		policy: policy{
			respectPreferences: s.Settings.PreferencePolicy != preferIgnore, bestEffort: s.Settings.MinValuesPolicy == bestEffort,
		},
		pricing: newPricing(s.Settings),
	}
}

// plan plans the queue. The outcome is nil if the plan would cost too much, and if the run is to be repeated.
func (r *run) plan() (o *outcome, again bool) {
	left, aside := r.prepare()
	hopeless, divided := len(r.rejected)+len(aside), len(r.zoned) > 0
	left = r.placeAll(left)
	if r.bins.Cost() > r.ceiling || r.abandoned { // pods that are left then are not rejected, but were not tried
		return nil, false
	}
	if divided && r.leavesDivided(left) { // the repetition replaces all nodes: no use in covering these exactly
		return nil, true
	}
	if !r.budget.FirstFitOnly {
		r.coverExactly()
		r.decideAllDaemons() // of the nodes that it has made
	}
	// After the exact cover, which replaces nodes, since all of these count pods on nodes. The first that finds something is
	// enough: the run is repeated, and looks for the others again.
	if r.intrusions() || r.hostsTooFull() || r.foundersMisled() || r.daemonsTooMany() || r.postpone() || r.nominatedTooMany() {
		return nil, true
	}
	bins := r.bins.Len()
	p := r.result(append(left, aside...))
	switch {
	case r.abandoned:
		return nil, false
	case divided && r.bins.Len() < bins: // a bin that cannot be launched may have held divided pods
		r.whole = nil
		return nil, true
	}
	return &outcome{p, r.meritOf(&p), r.how, hopeless, divided}, false
}

// prepare finds out what pods are worth, and which zones and which places in the queue they get. It returns the queue to
// place, and aside the pods that no plan can schedule.
func (r *run) prepare() (left, aside []*queuedPod) {
	left = r.applyNominations(r.start()) // nodes launched for pods keep them before others take the room
	left, aside = r.splitUnplaceable(left)
	r.shares.begin(r.classes)
	r.sumFreeRoom()
	switch {
	case r.budget.FirstFitOnly:
	case r.prices.market == nil:
		// Once per queue: the bound must not depend on the strategy, and later attempts start from this basis.
		r.priceQueue()
		if apart := r.overwhelmingHostRules(left); r.how == balanced && len(apart) > 0 {
			r.how, r.apart = apartFirst, apart
		}
	case !r.how.plain(): // plain ones need no dual prices
		r.resolveForStrategy()
	}
	if r.how != undivided && !r.how.plain() { // before any node is sized, since sizing counts pods per zone
		left = r.divideOverZones(left)
	}
	if r.how == apartFirst {
		left = r.apartFirst(left)
	}
	return left, aside
}

// sumFreeRoom sums the room that existing nodes have left after nominated pods.
func (r *run) sumFreeRoom() {
	for _, c := range r.classes {
		c.onExisting = 0 // the bound subtracts free room: pods that had their places before must not count against it
	}
	r.before = baseline{free: make([]float64, r.axes.Len())}
	for _, n := range r.nodes.All() {
		r.before.nodes += btoi(n.Exists())
		for i, x := range n.Free() {
			if n.Exists() && x > 0 {
				r.before.free[i] += float64(x)
			}
		}
	}
}

// applyNominations schedules pods onto the claims that were launched for them. A claim without a ready node keeps its
// pods whatever else has changed, and so does a node that has just become ready; later it keeps those that still fit.
func (r *run) applyNominations(queue []*queuedPod) []*queuedPod {
	if !r.nodes.AnyNominated() {
		return queue
	}
	byUID := make(map[types.UID]*queuedPod, len(queue))
	for _, q := range queue {
		byUID[q.pod.UID] = q
	}
	nodes := slices.Clone(r.nodes.All()) // claims without a ready node first: they keep their pods in any case
	slices.SortStableFunc(nodes, func(a, b *existing.Node) int {
		return btoi(a.Source().Initialized && !a.Source().Settling) - btoi(b.Source().Initialized && !b.Source().Settling)
	})
	for _, n := range nodes {
		if n.Source().Deleting || !n.Exists() {
			continue
		}
		for _, uid := range slices.Sorted(slices.Values(n.Source().Nominated)) {
			q, ok := byUID[uid]
			if !ok || (!n.Source().KeepsNominated(uid) && !r.stillFits(n, q.class)) {
				continue
			}
			delete(byUID, uid)
			r.join(n, q.class, q.pod)
			q.placed = true
			q.class.Leave()
			r.nominated = append(r.nominated, q.class)
		}
	}
	r.releaseForNominated()
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
func (r *run) placeAll(queue []*queuedPod) []*queuedPod {
	r.startSizing()
	for deferring := r.prices.market != nil && !r.how.plain() && len(r.pools.All()) > 1; ; deferring = false {
		before := r.generation
		for _, q := range queue {
			if q.class.round > r.round {
				continue
			}
			if r.stopRequested() || r.outOfSteps() {
				return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
			}
			if !q.placed && !(deferring && q.class.deferred) && r.placePod(q) {
				r.decideDaemons()
				// At once: the node was chosen for these pods, and the next pod of the queue could take their room.
				r.placePlanned()
				if r.bins.Cost() > r.ceiling {
					return queue
				}
			}
		}
		queue = slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
		if len(queue) == 0 {
			return queue
		}
		// From what costs nothing to what gives something up: commit states what is certain by now, decide takes the choice of
		// a domain from a node, a new round lets last classes take room, and release lets spreads ignore domains.
		if r.generation == before && !deferring && !r.commit(queue) && !r.decide(queue) {
			switch {
			case r.round < r.lastRound:
				r.round++
				r.decideAllDaemons()
			case !r.release(queue) && !r.forgetForesight():
				return queue
			}
		}
	}
}

// placePlanned places what new bins were sized for.
func (r *run) placePlanned() {
	for k := 0; k < len(r.planned); k++ {
		p := r.planned[k]
		for range p.Pods {
			c := p.Class.First()
			if c == nil {
				break
			}
			q := r.classOf(c.Class).first()
			if q == nil || !(p.into != nil && r.placePlannedIn(q, p.into) || r.placePod(q)) {
				break
			}
		}
	}
	r.planned = r.planned[:0]
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
func (r *run) placePod(q *queuedPod) (placed bool) {
	c, began := q.class, r.steps
	if c.failedAt == r.generation {
		return false
	}
	if r.weighs(c) {
		placed = r.placePriced(q, began)
	} else {
		placed = r.placeFrom(q, r.leastLevel(c), began)
	}
	if c.ManyTerms() {
		r.chargeSteps(c, r.steps-began)
	}
	return placed
}

// placeFrom places the pod at the first relaxation level, from a given one on, that can be met. The attempt has begun at a
// number of steps. At each level, an existing node comes before a bin, a bin before a new bin, and a new bin before
// exceeding the ceiling of a bin.
func (r *run) placeFrom(q *queuedPod, first, began int) bool {
	c := q.class
	for i := first; i < len(c.Levels()); i++ {
		if c.ManyTerms() {
			if i = r.nextLevel(c, i, began); i < 0 {
				break
			}
		}
		if r.placeOnExisting(q, i) ||
			r.hasDomain(c, i) && (r.placeInBin(q, i, bin.BelowCeiling) || r.placeInNewBin(q, i) || r.placeAboveCeiling(q, i)) {
			r.placed(q, i)
			return true
		}
	}
	c.failedAt = r.generation
	return false
}

// placePlannedIn puts the pod in a bin that was enlarged for it.
func (r *run) placePlannedIn(q *queuedPod, b *bin.Bin) bool {
	if r.weighs(q.class) {
		return r.placePlannedAtAnyLevel(q, b)
	}
	level := r.firstOpenLevel(q.class)
	if level < 0 {
		return false
	}
	g, why := r.bins.Grow(b, q.class.Class, q.class.Levels()[level], bin.BelowCeiling)
	if why != nil {
		return false
	}
	r.bins.Add(b, q.class.Class, q.pod, g)
	r.placed(q, level)
	return true
}

// placed records that the pod is placed, at a relaxation level.
func (r *run) placed(q *queuedPod, level int) {
	q.placed = true
	q.class.attempts[level].placed++
	r.relaxed += q.class.Levels()[level].Dropped()
	q.class.Place()
	r.prices.valueLeft -= q.class.boundValue
	r.generation++
	r.decideCrossed(q)
}

// placeOnExisting puts the pod on the first existing node that takes it.
func (r *run) placeOnExisting(q *queuedPod, i int) bool {
	c := q.class
	if !r.nodes.Put(c.Class, c.Levels()[i], q.pod, &c.attempts[i].nodes) {
		return false
	}
	c.onExisting++
	return true
}

// placeInBin puts the pod into a bin that takes it: the first one, or for leastPods the one with the fewest pods.
func (r *run) placeInBin(q *queuedPod, i int, mode bin.Mode) bool {
	list := &q.class.attempts[i].bins
	if r.how == leastPods {
		return r.bins.PutWhereFewest(q.at(i, mode), list)
	}
	return r.bins.Put(q.at(i, mode), list, q.class.Left() == 1)
}

// at is the search for a bin at a relaxation level.
func (q *queuedPod) at(i int, mode bin.Mode) bin.Search {
	return bin.Search{Class: q.class.Class, Level: q.class.Levels()[i], Pod: q.pod, Mode: mode}
}

// placeAboveCeiling puts the pod into any bin that holds it at any price, since no new bin is possible.
func (r *run) placeAboveCeiling(q *queuedPod, i int) bool {
	return r.bins.PutAtAnyPrice(q.at(i, bin.AnyPrice), &q.class.attempts[i].aboveCeiling)
}

// compareRejections orders rejected pods by namespace and name.
func compareRejections(a, b Rejection) int {
	return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
}

// result turns the state of the run into the Plan.
func (r *run) result(left []*queuedPod) Plan {
	p := Plan{Rejected: append(r.rejected, r.explain(left)...)}
	if r.abandoned {
		return Plan{}
	}
	for _, n := range r.nodes.All() {
		if on := n.Placement(); len(on.Pods) > 0 {
			p.Placements = append(p.Placements, on)
		}
	}
	launches, failed := r.bins.Launch()
	for _, f := range failed {
		for _, pod := range f.Pods {
			p.Rejected = append(p.Rejected, Rejection{Pod: pod, Reasons: []Reason{f.Why}})
		}
	}
	p.Launches = launches
	for i := range launches {
		p.Stats.HourlyCost += launches[i].Offering.Price
		p.Stats.NodeCost += r.s.Settings.NodeCost
	}
	slices.SortStableFunc(p.Rejected, compareRejections)
	p.Stats.Pods, p.Stats.Classes, p.Stats.Steps = len(r.queue)+len(r.invalidPods), len(r.classes)-len(r.zoned), r.steps+r.shares.beside
	p.Stats.RelaxedPreferences = r.relaxed
	p.Stats.LowerBound = r.lowerBound(&p)
	p.Preferences, p.DroppedWorth = r.preferenceCosts(), r.droppedWorth()
	p.Stats.InstanceTypes = r.pools.TypeCount()
	return p
}
