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
func (r *run) divideOverZones(queue []*queuedPod) []*queuedPod {
	if r.prices.market == nil || r.prices.market.Program() == nil || r.whole == nil {
		return queue
	}
	d := r.newDivision()
	if d == nil {
		return queue
	}
	queue = r.placeFirstOnExisting(queue)
	classes := make([]*podclass.Class, len(queue))
	for i, q := range queue {
		classes[i] = q.class.Class
	}
	if zones, divided := d.Assign(classes); divided > 0 {
		r.split(d, queue, zones)
		r.solveDivided()
	}
	return queue
}

// newDivision is the division of the run's groups; nil if none can be divided.
func (r *run) newDivision() *zonedivision.Division {
	var classes []*podclass.Class
	for _, c := range r.classes {
		if c.Left() > 0 {
			classes = append(classes, c.Class)
		}
	}
	return zonedivision.New(zonedivision.Problem{
		Classes: classes, Whole: r.whole, LeastKept: r.leastKept, Pools: r.pools, Market: r.prices.market,
		Candidates: r.candidateLists, SimilarCost: similarCost,
	})
}

// placeFirstOnExisting schedules pods onto existing nodes, as far as they fit there with all their preferences: room
// that is paid for decides before the price of a zone does.
func (r *run) placeFirstOnExisting(queue []*queuedPod) []*queuedPod {
	if !r.nodes.AnyOpen() {
		return queue
	}
	for _, q := range queue {
		if r.stopRequested() || r.outOfSteps() {
			break
		}
		if first := r.leastLevel(q.class); r.placeOnExisting(q, first) {
			r.placed(q, first)
		}
	}
	return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
}

// split gives assigned pods the classes of their zones, and lists the classes of the run anew: by the first pod that is
// left, then those without any.
func (r *run) split(d *zonedivision.Division, queue []*queuedPod, zones []int) {
	zoned, packing := map[zonedClass]*class{}, map[zonedPacking]*sizing.PackingClass{}
	listed := make(map[*class]bool, len(r.classes))
	classes := make([]*class, 0, len(r.classes))
	for i, q := range queue {
		if zone := zones[i]; zone >= 0 {
			key := zonedClass{q.class, zone}
			c := zoned[key]
			if c == nil {
				of := zonedPacking{q.class.Packing(), zone}
				if packing[of] == nil {
					packing[of] = &sizing.PackingClass{}
				}
				c = r.zonedClass(q.class, d.In(q.class.Class, zone), packing[of])
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
	for _, c := range r.classes {
		if !listed[c] {
			classes = append(classes, c)
		}
	}
	r.classes = classes
}

// zonedClass makes a class of pods with the constraints of a zone, without pods.
func (r *run) zonedClass(whole *class, in *podclass.Constraints, f *sizing.PackingClass) *class {
	c := *whole
	c.whole = whole
	c.Pods = sizing.NewPods(whole.With(in, len(r.allClasses)+len(r.zoned)), f)
	r.zoned = append(r.zoned, &c)
	c.members, c.nextPod, c.onExisting, c.failedAt, c.pods = 0, 0, 0, 0, nil
	c.attempts = make([]attemptCache, len(c.Levels()))
	return &c
}

// solveDivided solves the linear program of the search for the divided pods. The lower bound stays what it is without
// the division.
func (r *run) solveDivided() {
	r.prices.market, r.prices.lastValue = r.newMarket(price.Problem{RoomOf: r.market.whole}), 0
	for _, c := range r.classes {
		r.prices.lastValue += c.boundValue * float64(c.Left())
	}
}

// mergeZones gives all pods their own classes back.
func (r *run) mergeZones() {
	if len(r.zoned) == 0 {
		return
	}
	r.sizer.Reprice(r.market.whole)
	for _, c := range r.classes {
		c.Enter(c.boundPods)
	}
	for _, q := range r.queue {
		if q.class.whole != nil {
			q.class = q.class.whole
		}
	}
}

// leavesDivided reports whether divided pods are among those that the run leaves over. It marks their groups as whole;
// where that has happened before, it stops all divisions.
func (r *run) leavesDivided(left []*queuedPod) bool {
	again, found := len(r.whole) > 0, false
	for _, q := range left {
		if q.class.whole == nil {
			continue
		}
		found = true
		for _, g := range q.class.whole.Levels()[0].Groups() {
			if g.Spreads(corev1.LabelTopologyZone) {
				r.whole[g] = true
			}
		}
	}
	if found && again {
		r.whole = nil
	}
	return found
}
