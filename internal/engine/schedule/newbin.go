package schedule

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

// newBinOption is a new bin that takes a pod, before it is filled.
type newBinOption struct {
	b    *bin.Bin
	g    bin.Growth
	size sizing
}

// placeInNewBin opens a bin for the pod in the heaviest pool that takes it, and plans what else goes into it.
func (sv *solver) placeInNewBin(q *queuedPod, i int) bool {
	c := q.class
	try := &c.attempts[i]
	if try.noNewBin {
		return false
	}
	hopeless := true
	for from := 0; from < len(sv.pools.All()); {
		to := sv.equalWeight(from)
		best, final := sv.cheapestNewBin(c, c.Levels()[i], sv.pools.All()[from:to])
		if best == nil {
			hopeless, from = hopeless && final, to
			continue
		}
		sv.openBin(q, i, best)
		return true
	}
	try.noNewBin = hopeless
	return false
}

// equalWeight is the end of the templates with the weight of the first. Templates are sorted by poolOrder.
func (sv *solver) equalWeight(first int) int {
	to := first + 1
	for to < len(sv.pools.All()) && sv.pools.All()[to].Weight() == sv.pools.All()[first].Weight() {
		to++
	}
	return to
}

// cheapestNewBin chooses among pools of equal weight the one with the least price per value of what its node would hold:
// the score by which sizeBin chooses among types. Equal scores leave the first. Without a size, the price of the cheapest
// type that holds the pod decides. The second result reports, where no pool takes the pod, whether none ever will.
//
// Cost: one lookAhead and one chooseSize per pool that takes the pod, if there are several.
func (sv *solver) cheapestNewBin(c *class, level *podclass.Level, pools []*nodepool.Template) (best *newBinOption, final bool) {
	final = true
	for _, t := range pools {
		if t.Unusable().Code != "" {
			continue
		}
		o := &newBinOption{b: sv.bins.Fresh(t)}
		g, why := sv.bins.Grow(o.b, c.Class, level, bin.AnyPrice)
		if why != nil {
			final = final && why.Final()
			continue
		}
		o.g, o.size = g, sv.chooseSize(o.b, c, g)
		if best == nil || o.cheaperThan(best) {
			best = o
		}
	}
	return best, final
}

// cheaperThan compares by price per value, and by the price of the cheapest type where one of the two has no size.
func (o *newBinOption) cheaperThan(other *newBinOption) bool {
	if math.IsInf(o.size.score, 1) || math.IsInf(other.size.score, 1) {
		return o.g.Cheapest().Price < other.g.Cheapest().Price
	}
	return o.size.score < other.size.score
}

// openBin puts the pod into the new bin, or into a bin that can be enlarged instead.
func (sv *solver) openBin(q *queuedPod, i int, o *newBinOption) {
	c, b := q.class, o.b
	content := sv.sizeBin(b, c, o.g, o.size)
	total := slices.Clone(c.Requests())
	for _, p := range content {
		for axis, r := range p.class.classes[0].Requests() {
			total[axis] += r * int64(p.n)
		}
	}
	opening := bin.Opening{Bin: b, Growth: o.g, Class: c.Class, Level: c.Levels()[i]}
	into, g := sv.bins.Enlarge(opening, total)
	if into == nil {
		sv.planned = append(sv.planned, content...)
		sv.bins.Open(opening, q.pod)
		return
	}
	for k := range content {
		content[k].into = into
	}
	sv.planned = append(sv.planned, content...)
	sv.bins.Add(into, c.Class, q.pod, g)
}
