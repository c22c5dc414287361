package bin

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/roomtree"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Config describes what the bins of a plan depend on. A Set changes what topology counts, the free slots of reservations, the
// free devices, and what the pools' limits leave.
type Config struct {
	Axes     resources.Axes
	Topology *topology.Registry
	Volumes  *volume.Limits
	Devices  *devices.State
	Slots    *reservation.Slots
	// ReservationLabel is the label with the capacity reservation of a node; empty if the cloud has none.
	ReservationLabel string
	// BestEffort lowers minValues that no choice of types meets.
	BestEffort bool
	// Steps counts checks of instance types, of bins for a pod, and of topology rules there.
	Steps *int
}

// Set is the bins of a run, in the order in which they were opened. No two goroutines may use it at the same time.
type Set struct {
	axes             resources.Axes
	cpu, memory      int // indexes into axes
	podAxis          int
	topology         *topology.Registry
	volumes          *volume.Limits
	devices          *devices.State
	slots            *reservation.Slots
	reservationLabel string
	bestEffort       bool
	steps            *int

	all   []*Bin
	rooms roomtree.Tree // of all
	// cost is the price of the bins as they are, a lower bound on their final price.
	cost float64
	// last is the bin that got a pod last.
	last *Bin

	refusals    refusals
	choiceCache choiceCache
	fittingBuf  []nodepool.Candidate // buffer of launch
	launchBuf   []nodepool.Candidate // buffer of launch
	walks       []walk               // buffer of putWaiting
	moved       []movedBin           // buffer of putWaiting
	viewBuf     []topology.View      // buffer of viewsWithUndecided
}

// NewSet has no bins.
func NewSet(c Config) *Set {
	return &Set{
		axes: c.Axes, cpu: c.Axes.IndexOf(corev1.ResourceCPU), memory: c.Axes.IndexOf(corev1.ResourceMemory),
		podAxis: c.Axes.IndexOf(corev1.ResourcePods), topology: c.Topology, volumes: c.Volumes, devices: c.Devices, slots: c.Slots,
		reservationLabel: c.ReservationLabel, bestEffort: c.BestEffort, steps: c.Steps, refusals: newRefusals(),
	}
}

// Clear removes all bins. The owners of counts, slots, limits and devices take back what the bins have taken.
func (s *Set) Clear() {
	s.all, s.cost, s.last = nil, 0, nil
	s.rooms.Clear()
	s.choiceCache.level = nil
}

// All are the bins, in the order in which they were opened. The caller must not modify them.
func (s *Set) All() []*Bin { return s.all }

// Len is the number of bins.
func (s *Set) Len() int { return len(s.all) }

// Cost is the price of the bins as they are, in $/h: a lower bound on their final price.
func (s *Set) Cost() float64 { return s.cost }

// Last is the bin that got a pod last; nil if there is none.
func (s *Set) Last() *Bin { return s.last }

// Fresh is a bin without pods, which is not one of the set before Open.
func (s *Set) Fresh(t *nodepool.Template) *Bin { return s.fresh(t, t.Candidates(t.Requirements())) }

// fresh is Fresh for some of the candidates. Explanations have templates that share the candidates of others.
func (s *Set) fresh(t *nodepool.Template, cands *nodepool.Candidates) *Bin {
	*s.steps += len(t.Types())
	return &Bin{
		index: len(s.all), t: t, cands: cands, total: make(resources.Vec, s.axes.Len()),
		target: nodepool.Candidate{Type: -1}, ceiling: math.Inf(1), reservedLimits: t.NoLimits(), roomVersion: -1,
	}
}

// Opening is a fresh bin, and the pod that it is opened for.
type Opening struct {
	Bin    *Bin
	Growth Growth
	Class  *podclass.Class
	Level  *podclass.Level
}

// Open adds the fresh bin to the set, with a first pod.
func (s *Set) Open(o Opening, pod *corev1.Pod) {
	s.all = append(s.all, o.Bin)
	s.rooms.Add(roomtree.AnyRoom)
	s.Add(o.Bin, o.Class, pod, o.Growth)
	s.measureRoom(o.Bin)
}

// Cover is a bin that holds these pods of one class, as the cheapest candidate that does. It takes the place of one of the
// set: see Replace.
func (s *Set) Cover(old *Bin, c *podclass.Class, pods []*corev1.Pod) *Bin {
	b := s.fresh(old.t, old.cands)
	b.index, b.pods, b.contents = old.index, pods, []classCount{{c, len(pods)}}
	for axis, r := range c.Requests() {
		b.total[axis] = r * int64(len(pods))
	}
	for b.first = 0; !b.total.Fits(b.cands.TypeOf(b.cands.List()[b.first]).Room()); b.first++ {
	}
	b.cost = b.cands.List()[b.first].Price
	return b
}

// Replace removes bins and appends others that hold the same pods. Afterwards no pod may be added: it is the last step
// before the bins are launched.
func (s *Set) Replace(old map[*Bin]bool, fresh []*Bin) {
	kept := make([]*Bin, 0, len(s.all)+len(fresh)-len(old))
	for _, b := range s.all {
		if !old[b] {
			kept = append(kept, b)
		}
	}
	s.all = append(kept, fresh...)
}
