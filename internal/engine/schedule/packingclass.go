package schedule

import (
	"encoding/binary"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// packingClass joins classes that new nodes need not tell apart: equal requests, equal candidates, equal topology. Pods
// with a volume each mostly fall into a few of them.
type packingClass struct {
	// run is the last run with pods of this packing class. classes are its members in queue order; those before next
	// are scheduled. unplaced counts their pods that are not.
	run            int
	classes        []*class
	next, unplaced int
	number         int // of rankings
}

// first is the first class with pods left; nil if there is none.
func (f *packingClass) first() *class {
	for ; f.next < len(f.classes); f.next++ {
		if c := f.classes[f.next]; c.count > 0 {
			return c
		}
	}
	return nil
}

// groupForPacking sorts classes into packing classes.
func (sv *solver) groupForPacking(classes []*class) {
	numbers := make(map[*topology.Group]uint64, len(sv.topology.Groups()))
	for i, g := range sv.topology.Groups() {
		numbers[g] = uint64(i)
	}
	families := map[string]*packingClass{}
	described := map[*podclass.Constraints]string{}
	var key []byte
	for _, c := range classes {
		if len(c.Invalid()) > 0 {
			continue
		}
		if key = key[:0]; c.Ports().Len() > 0 {
			c.packingClass = &packingClass{}
			continue
		}
		for _, r := range c.Requests() {
			key = binary.AppendVarint(key, r)
		}
		text, known := described[c.Constraints]
		if !known {
			start := len(key)
			key = c.Constraints.AppendPackingKey(key, numbers)
			text = string(key[start:])
			described[c.Constraints] = text
		} else {
			key = append(key, text...)
		}
		f := families[string(key)]
		if f == nil {
			f = &packingClass{}
			families[string(key)] = f
		}
		c.packingClass = f
	}
}

// resetWaiting marks all pods of the run's classes as waiting.
func (sv *solver) resetWaiting() {
	sv.waiting, sv.prices.valueLeft = sv.waiting[:0], 0
	sv.demands, sv.demandsFor = sv.demands[:0], nil
	sv.rankings.reset()
	for _, c := range sv.classes {
		f := c.packingClass
		if f.run != sv.run {
			f.run, f.classes, f.next, f.unplaced = sv.run, f.classes[:0], 0, 0
			sv.waiting = append(sv.waiting, f)
			sv.rankings.add(f)
		}
		f.classes = append(f.classes, c)
		f.unplaced += c.count
		sv.prices.valueLeft += c.boundValue * float64(c.count)
	}
}

// waitingClasses are the classes with pods left, by packing class. It drops packing classes without any.
func (sv *solver) waitingClasses() []*class {
	var out []*class
	sv.waiting = slices.DeleteFunc(sv.waiting, func(f *packingClass) bool { return f.unplaced == 0 })
	for _, f := range sv.waiting {
		for _, c := range f.classes[f.next:] {
			if c.count > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}
