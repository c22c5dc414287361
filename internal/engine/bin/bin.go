package bin

import (
	"iter"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Bin is a planned NodeClaim.
//
// Invariant: cands.list[first] is the cheapest type that holds all pods within limits. reservedLimits covers at least
// that type and has been subtracted from the template's limitLeft.
type Bin struct {
	index int
	t     *nodepool.Template
	cands *nodepool.Candidates // what the bin can become under the requirements of its pods
	first int                  // index into cands.list
	total resources.Vec
	pods  []*corev1.Pod
	// contents counts the pods by class, in the order in which the classes came.
	contents []classCount
	ports    []resources.HostPort
	// room is an upper bound, per axis, on the room of any type that the bin can become below its ceiling.
	room resources.Vec
	// cost is the price of the cheapest type.
	cost float64
	// target is the type that the bin was sized for. Below the ceiling it becomes nothing that costs more.
	target  nodepool.Candidate
	ceiling float64
	// reservation is the capacity reservation that the bin is to be launched into: see package reservation.
	reservation int
	// sharedVolumes are the attached volumes that several pods use.
	sharedVolumes map[volume.Attachment]bool
	// version counts the bin's changes; roomVersion is the version at which room was exact.
	version, roomVersion int
	reservedLimits       resources.Vec
	// deviceOptions states how the pods with resource claims get their devices, one by one; devices is what they get.
	deviceOptions []*devices.Option
	devices       []plan.DeviceUse
	// relaxed is true if minValues were lowered.
	relaxed bool
	// avoided are the DaemonSets that the pods keep apart from, by number; counted are the groups that count the DaemonSets' pods that
	// come with the node.
	avoided resources.Bitset
	counted []topology.CountedDaemon
}

type classCount struct {
	class *podclass.Class
	n     int
}

// Template is the pool that the bin is in.
func (b *Bin) Template() *nodepool.Template { return b.t }

// Candidates returns what the bin can become.
func (b *Bin) Candidates() *nodepool.Candidates { return b.cands }

// Contents are the classes of the bin's pods, in the order in which they came, each with the number of its pods.
func (b *Bin) Contents() iter.Seq2[*podclass.Class, int] {
	return func(yield func(*podclass.Class, int) bool) {
		for _, h := range b.contents {
			if !yield(h.class, h.n) {
				return
			}
		}
	}
}

// Pods are the pods in the bin, in the order in which they came. The caller must not modify them.
func (b *Bin) Pods() []*corev1.Pod { return b.pods }

// Cost is the price of the cheapest type that holds the pods, in $/h.
func (b *Bin) Cost() float64 { return b.cost }

// Rise is by how much the growth raises the price of the bin, in $/h.
func (b *Bin) Rise(g Growth) float64 { return max(0, g.Cheapest().Price-b.cost) }

// Size makes the bin one for a type: it becomes nothing that costs more, unless it is raised.
func (b *Bin) Size(target nodepool.Candidate) { b.target, b.ceiling = target, target.Price }

// Narrow restricts a fresh bin to these candidates.
func (b *Bin) Narrow(cands *nodepool.Candidates) { b.cands = cands }

// Target is the type that the bin was sized for; its Type is -1 if it was not.
func (b *Bin) Target() nodepool.Candidate { return b.target }

// OnlyClass is the class of the bin's pods, if it makes no difference, except to the price and to rules over hosts, which of
// them share a node; else nil.
func (b *Bin) OnlyClass() *podclass.Class {
	if len(b.contents) != 1 || len(b.avoided) > 0 || b.bringsSpread() || b.cands.HasMinValues() || b.relaxed || b.t.HasLimits() {
		return nil
	}
	if c := b.contents[0].class; c.Ports().Len() == 0 && len(c.Shared()) == 0 {
		return c
	}
	return nil
}

// Growth describes what a bin becomes with one more pod.
type Growth struct {
	cands          *nodepool.Candidates
	first          int
	reservedLimits resources.Vec // nil if the pool has no limits
	relaxed        bool
	reservation    int
	// devices states how the pod gets its devices; nil if it requests none.
	devices *devices.Option
	// avoided are the DaemonSets that the pod keeps apart from, by number.
	avoided resources.Bitset
}

// Candidates returns what the bin can become with the pod.
func (g *Growth) Candidates() *nodepool.Candidates { return g.cands }

// First is the index of the cheapest candidate that holds all pods.
func (g *Growth) First() int { return g.first }

// Cheapest is the cheapest candidate that holds all pods.
func (g *Growth) Cheapest() nodepool.Candidate { return g.cands.List()[g.first] }

// Reservation is the capacity reservation that the bin is in with the pod: see package reservation.
func (g *Growth) Reservation() int { return g.reservation }

// Mode decides whether a bin may become a type above its price ceiling.
type Mode int

const (
	// BelowCeiling: only types that cost no more than the one that the bin was sized for.
	BelowCeiling Mode = iota
	// AtItsPrice is BelowCeiling, where a bin that was not sized keeps its price.
	AtItsPrice
	// AnyPrice: any type, since the pod fits nowhere else.
	AnyPrice
	// Explained is AnyPrice where the refusal names the exact rule, which plain planning does not need.
	Explained
)

// bounded reports whether the ceiling counts.
func (m Mode) bounded() bool { return m <= AtItsPrice }

// ceilingIn is the most that the bin may cost.
func (b *Bin) ceilingIn(m Mode) float64 {
	switch {
	case !m.bounded():
		return math.Inf(1)
	case m == AtItsPrice && b.target.Type < 0:
		return b.cost * (1 + 1e-9)
	}
	return b.ceiling
}

// undecidedOf returns how many pods of the bin the group counts without knowing their domain.
func (b *Bin) undecidedOf(g *topology.Group) int {
	if g.Undecided() == 0 {
		return 0
	}
	n := 0
	for _, h := range b.contents {
		if slices.Contains(h.class.Matches(), g) {
			n += h.n
		}
	}
	for _, counted := range b.counted {
		n += btoi(counted.Group == g)
	}
	return n
}

// undecidedBefore is how many of those pods kube-scheduler may have to place before a pod of the class: they have rules that count it, or
// it follows them. It can place the others after it.
func (b *Bin) undecidedBefore(g *topology.Group, c *podclass.Class) int {
	n := 0
	for _, h := range b.contents {
		if slices.Contains(h.class.Matches(), g) && (b.leads(h.class, c) ||
			slices.ContainsFunc(requiredGroups(h.class), func(own *topology.Group) bool { return slices.Contains(c.Matches(), own) })) {
			n += h.n
		}
	}
	return n
}

// requiredGroups are the groups of the class's rules that no level drops.
func requiredGroups(c *podclass.Class) []*topology.Group {
	levels := c.Levels()
	return levels[len(levels)-1].Groups()
}

// leads reports whether pods of the class c have to follow those of a class in the bin, since no others are in its domain.
func (b *Bin) leads(first, c *podclass.Class) bool {
	return slices.ContainsFunc(requiredGroups(c), func(g *topology.Group) bool {
		if g.Type() != topology.Affinity || !slices.Contains(first.Matches(), g) {
			return false
		}
		domain, single := b.cands.Domain(g.Key())
		return g.OverHosts() || !single || g.CountBefore(domain) == 0
	})
}

// fitQuery selects the types from the growth's first on that hold the total within the limits, in the growth's reservation
// or outside of all. Blocked are the daemon groups with a conflicting host port; nil if there are none.
func (b *Bin) fitQuery(g Growth, total resources.Vec, blocked []bool) nodepool.FitQuery {
	return nodepool.FitQuery{
		Candidates: g.cands, First: g.first, Reservation: g.reservation,
		Total: total, Reserved: b.reservedLimits, Blocked: blocked,
	}
}
