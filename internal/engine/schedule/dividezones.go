package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/zonedivision"
)

// zonedClass identifies the pods of a class that were assigned to a zone.
type zonedClass struct {
	c    *class
	zone int
}

// zonedPacking is a packing class in a zone.
type zonedPacking struct {
	f    *sizing.PackingClass
	zone int
}

// divideOverZones divides the pods of the queue that spread over zones, after they have had their turn on existing
// nodes: see package zonedivision. It returns the pods that are left. The pods of a class in one zone are a class of their
// own until mergeZones, with a requirement on the zone in place of the spread. If one of them is left over, because a zone
// has no room for it, the run is repeated without the division of its groups.
//
// Cost: that of the division.
func (sv *solver) divideOverZones(queue []*queuedPod) []*queuedPod {
	if sv.prices.market == nil || sv.prices.market.Program() == nil || sv.wholeGroups == nil {
		return queue
	}
	d := sv.newDivision()
	if d == nil {
		return queue
	}
	queue = sv.placeFirstOnExisting(queue)
	classes := make([]*podclass.Class, len(queue))
	for i, q := range queue {
		classes[i] = q.class.Class
	}
	if zones, divided := d.Assign(classes); divided > 0 {
		sv.split(d, queue, zones)
		sv.solveDivided()
	}
	return queue
}

// newDivision is the division of the run's groups; nil if none can be divided.
func (sv *solver) newDivision() *zonedivision.Division {
	var classes []*podclass.Class
	for _, c := range sv.classes {
		if c.Left() > 0 {
			classes = append(classes, c.Class)
		}
	}
	return zonedivision.New(zonedivision.Problem{
		Classes: classes, Whole: sv.wholeGroups, LeastKept: sv.leastKept, Pools: sv.pools, Market: sv.prices.market,
		Candidates: sv.candidateLists, SimilarCost: similarCost,
	})
}

// placeFirstOnExisting schedules pods onto existing nodes, as far as they fit there with all their preferences: room
// that is paid for decides before the price of a zone does.
func (sv *solver) placeFirstOnExisting(queue []*queuedPod) []*queuedPod {
	if !sv.nodes.AnyOpen() {
		return queue
	}
	for _, q := range queue {
		if sv.stopRequested() || sv.outOfSteps() {
			break
		}
		if first := sv.leastLevel(q.class); sv.placeOnExisting(q, first) {
			sv.placed(q, first)
		}
	}
	return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
}

// split gives assigned pods the classes of their zones, and lists the classes of the run anew: by the first pod that is
// left, then those without any.
func (sv *solver) split(d *zonedivision.Division, queue []*queuedPod, zones []int) {
	zoned, packing := map[zonedClass]*class{}, map[zonedPacking]*sizing.PackingClass{}
	listed := make(map[*class]bool, len(sv.classes))
	classes := make([]*class, 0, len(sv.classes))
	for i, q := range queue {
		if zone := zones[i]; zone >= 0 {
			key := zonedClass{q.class, zone}
			c := zoned[key]
			if c == nil {
				of := zonedPacking{q.class.Packing(), zone}
				if packing[of] == nil {
					packing[of] = &sizing.PackingClass{}
				}
				c = sv.zonedClass(q.class, d.In(q.class.Class, zone), packing[of])
				zoned[key] = c
			}
			q.class.Leave()
			c.Join()
			c.pods = append(c.pods, q)
			q.class = c
		}
		if !listed[q.class] {
			listed[q.class] = true
			classes = append(classes, q.class)
		}
	}
	for _, c := range sv.classes {
		if !listed[c] {
			classes = append(classes, c)
		}
	}
	sv.classes = classes
}

// zonedClass makes a class of pods with the constraints of a zone, without pods.
func (sv *solver) zonedClass(whole *class, in *podclass.Constraints, f *sizing.PackingClass) *class {
	c := *whole
	c.whole = whole
	c.Pods = sizing.NewPods(whole.With(in, len(sv.allClasses)+len(sv.zoned)), f)
	sv.zoned = append(sv.zoned, &c)
	c.members, c.nextPod, c.onExisting, c.failedAt, c.pods = 0, 0, 0, 0, nil
	c.attempts = make([]attemptCache, len(c.Levels()))
	return &c
}

// solveDivided solves the linear program of the search for the divided pods. The lower bound stays what it is without
// the division.
func (sv *solver) solveDivided() {
	sv.prices.market, sv.prices.lastValue = sv.newMarket(price.Problem{RoomOf: sv.prices.whole}), 0
	for _, c := range sv.classes {
		sv.prices.lastValue += c.boundValue * float64(c.Left())
	}
}

// mergeZones gives all pods their own classes back.
func (sv *solver) mergeZones(queue []*queuedPod) {
	if len(sv.zoned) == 0 {
		return
	}
	sv.prices.market, sv.zoned = sv.prices.whole, nil
	sv.sizer.Reprice(sv.prices.whole)
	for _, c := range sv.classes {
		c.Enter(c.boundPods)
	}
	for _, q := range queue {
		if q.class.whole != nil {
			q.class = q.class.whole
		}
	}
}

// leavesDivided reports whether divided pods are among those that the run leaves over. It marks their groups as whole;
// where that has happened before, it stops all divisions.
func (sv *solver) leavesDivided(left []*queuedPod) bool {
	again, found := len(sv.wholeGroups) > 0, false
	for _, q := range left {
		if q.class.whole == nil {
			continue
		}
		found = true
		for _, g := range q.class.whole.Levels()[0].Groups() {
			if g.Spreads(corev1.LabelTopologyZone) {
				sv.wholeGroups[g] = true
			}
		}
	}
	if found && again {
		sv.wholeGroups = nil
	}
	return found
}
