package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
)

// newBinOption is a new bin that takes a pod, before it is filled.
type newBinOption struct {
	sizing.Opening
	size sizing.Size
}

// size puts a pod into the bin at a level, on paper, and chooses what the bin becomes, by the value of what waits. It
// becomes nothing once the lookahead budget is spent, and for pods without a value. The result is why the bin does not take
// the pod.
func (r *run) size(o *newBinOption, level *podclass.Level) (why *bin.Refusal) {
	o.Growth, why = r.bins.Grow(o.Bin, o.First.Class, level, bin.AnyPrice)
	if why != nil || r.budget.LookaheadSteps > 0 && r.steps >= r.budget.LookaheadSteps || o.First.Value() <= 0 || r.how.plain() {
		return why
	}
	r.resolveForRest()
	switch { // new prices may leave the pod without a value
	case o.First.Value() <= 0:
	case r.how == apartFirst && r.sizedAlone(r.classOf(o.First.Class)):
		o.size = r.sizer.Alone(&o.Opening)
	default:
		o.size = r.sizer.Choose(&o.Opening)
	}
	return nil
}

// placeInNewBin opens a bin for the pod in the heaviest pool that takes it, and plans what else goes into it.
func (r *run) placeInNewBin(q *queuedPod, i int) bool {
	c := q.class
	try := &c.attempts[i]
	if try.noNewBin {
		return false
	}
	hopeless := true
	for from := 0; from < len(r.pools.All()); {
		to := r.equalWeight(from)
		best, final := r.cheapestNewBin(c, c.Levels()[i], r.pools.All()[from:to])
		if best == nil {
			hopeless, from = hopeless && final, to
			continue
		}
		r.openBin(q, i, best)
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
// the score by which types are chosen, too. Equal scores leave the first. Without a size, the price of the cheapest
// type that holds the pod decides. The second result reports, where no pool takes the pod, whether none ever will.
//
// Cost: one sizing.Sizer.Choose per pool that takes the pod, if there are several.
func (r *run) cheapestNewBin(c *class, level *podclass.Level, pools []*nodepool.Template) (best *newBinOption, final bool) {
	final = true
	for _, t := range pools {
		if t.Unusable().Code != "" {
			continue
		}
		if r.topology.HoldsBack(t.ForTopology(), level.Groups(), func(of resources.Bitset) bool { return len(t.DaemonsOn(of)) > 0 }) {
			final = false
			continue
		}
		o := &newBinOption{Opening: sizing.Opening{Bin: r.bins.Fresh(t), First: &c.Pods}}
		if why := r.size(o, level); why != nil {
			final = final && why.Final()
			continue
		}
		if best == nil || o.cheaperThan(best) {
			best = o
		}
	}
	return best, final
}

// cheaperThan compares by price per value, and by the price of the cheapest type where one of the two has no size.
func (o *newBinOption) cheaperThan(other *newBinOption) bool {
	if math.IsInf(o.size.PricePerValue(), 1) || math.IsInf(other.size.PricePerValue(), 1) {
		return o.Growth.Cheapest().Price < other.Growth.Cheapest().Price
	}
	return o.size.PricePerValue() < other.size.PricePerValue()
}

// openBin puts the pod into the new bin, or into a bin that can be enlarged instead.
func (r *run) openBin(q *queuedPod, i int, o *newBinOption) {
	c := q.class
	content := r.sizer.Fill(&o.Opening, o.size)
	total := slices.Clone(c.Requests())
	for k := range content {
		content[k].AddTo(total)
	}
	opening := bin.Opening{Bin: o.Bin, Growth: o.Growth, Class: c.Class, Level: c.Levels()[i]}
	into, g := r.bins.Enlarge(opening, total)
	for _, p := range content {
		r.planned = append(r.planned, plannedPods{p, into})
	}
	if into == nil {
		r.bins.Open(opening, q.pod)
		return
	}
	r.bins.Add(into, c.Class, q.pod, g)
}

// plannedPods is pods of a packing class that a bin was sized for. With a nil into they may go wherever there is room.
type plannedPods struct {
	sizing.Content
	into *bin.Bin
}

// newSizer sizes the bins of the solver.
func (sv *solver) newSizer() *sizing.Sizer {
	return sizing.NewSizer(sizing.Config{
		Pools: sv.pools, Bins: sv.bins, Slots: &sv.slots,
		CPU: sv.axes.IndexOf(corev1.ResourceCPU), Memory: sv.axes.IndexOf(corev1.ResourceMemory), Steps: &sv.steps,
		Level: func(p *sizing.Pods) *podclass.Level {
			r := sv.running
			c := r.classOf(p.Class)
			if c.round > r.round {
				return nil
			}
			if open := r.firstOpenLevel(c); open >= 0 && (r.weighing.scope != fillPreferring || c.Prefers()) {
				return c.Levels()[open]
			}
			return nil
		},
	})
}

// startSizing makes all pods of the run's classes wait for nodes.
func (r *run) startSizing() {
	r.prices.valueLeft = 0
	r.sizer.Start(r.how.keepsBalance())
	for _, c := range r.classes {
		r.sizer.Add(&c.Pods)
		r.prices.valueLeft += c.boundValue * float64(c.Left())
	}
}

// groupForPacking sorts classes into packing classes.
func (sv *solver) groupForPacking() {
	x := sizing.NewGrouper(sv.topology.Groups())
	for _, c := range sv.allClasses {
		if len(c.Invalid()) == 0 {
			x.Join(&c.Pods)
		}
	}
}
