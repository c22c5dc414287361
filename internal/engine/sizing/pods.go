package sizing

import (
	"encoding/binary"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Pods are the pods of a class that wait for a node. The search counts them, and gives them their value.
type Pods struct {
	*podclass.Class
	packing *PackingClass
	left    int
	// value holds what one of them is worth, in $/h; number is theirs in the market, -1 if they are not in it.
	value  float64
	number int
}

// NewPods returns those of a class, none of which waits, of a packing class.
func NewPods(c *podclass.Class, f *PackingClass) Pods { return Pods{Class: c, packing: f, number: -1} }

// Left returns how many wait.
func (p *Pods) Left() int { return p.left }

// Clear states that none waits.
func (p *Pods) Clear() { p.left = 0 }

// Join adds one to those that wait, before a run of the Sizer starts.
func (p *Pods) Join() { p.left++ }

// Leave is the reverse of Join.
func (p *Pods) Leave() { p.left-- }

// Place states that one of them waits no longer.
func (p *Pods) Place() {
	p.left--
	p.packing.left--
}

// Value returns what one of them is worth, in $/h.
func (p *Pods) Value() float64 { return p.value }

// InMarket is their number in the market; -1 if they are not in it.
func (p *Pods) InMarket() int { return p.number }

// Enter gives the pods their number in the market.
func (p *Pods) Enter(number int) { p.number = number }

// Appraise sets the value of one of them, in $/h.
func (p *Pods) Appraise(value float64) { p.value = value }

// Packing is the packing class of the pods.
func (p *Pods) Packing() *PackingClass { return p.packing }

// PackingClass joins classes that new nodes need not distinguish : equal requests, equal candidates, equal topology. Pods
// with a volume each mostly fall into a few of them.
type PackingClass struct {
	// members are its classes in queue order; those before next have no pods left. left counts the pods of all.
	members    []*Pods
	next, left int
	// run is the last run with pods of this packing class, number its index in the rankings of that run.
	run, number int
}

// First is the first class with pods left; nil if there is none.
func (f *PackingClass) First() *Pods {
	for ; f.next < len(f.members); f.next++ { // in a run pods only leave: a class without any stays so
		if p := f.members[f.next]; p.left > 0 {
			return p
		}
	}
	return nil
}

// requests returns those of one pod.
func (f *PackingClass) requests() resources.Vec { return f.members[0].Requests() }

// Grouper sorts classes into packing classes.
type Grouper struct {
	numbers   map[*topology.Group]uint64
	known     map[string]*PackingClass
	described map[*podclass.Constraints]string
	key       []byte
}

// NewGrouper has no packing classes. Constraints refer to the groups.
func NewGrouper(groups []*topology.Group) *Grouper {
	x := &Grouper{
		numbers: make(map[*topology.Group]uint64, len(groups)), known: map[string]*PackingClass{},
		described: map[*podclass.Constraints]string{},
	}
	for i, g := range groups {
		x.numbers[g] = uint64(i)
	}
	return x
}

// Join gives pods their packing class. Pods with host ports have one of their own.
//
// Cost: constraints are described once.
func (x *Grouper) Join(p *Pods) {
	if p.Ports().Len() > 0 {
		p.packing = &PackingClass{}
		return
	}
	x.key = x.key[:0]
	for _, r := range p.Requests() {
		x.key = binary.AppendVarint(x.key, r)
	}
	text, known := x.described[p.Constraints]
	if !known {
		start := len(x.key)
		x.key = p.Constraints.AppendPackingKey(x.key, x.numbers)
		x.described[p.Constraints] = string(x.key[start:])
	} else {
		x.key = append(x.key, text...)
	}
	f := x.known[string(x.key)]
	if f == nil {
		f = &PackingClass{}
		x.known[string(x.key)] = f
	}
	p.packing = f
}
