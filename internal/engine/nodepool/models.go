package nodepool

import (
	"encoding/binary"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Config describes what models need to know of the cluster.
type Config struct {
	Labels requirement.Labels
	// JoinValues are known values of the labels that nodes get while they join: see requirement.Labels.OfNewNode.
	JoinValues map[string]string
	// Axes are the resources that pods request.
	Axes resources.Axes
	// NodeCost holds what each node costs in addition to its instance, in $/h.
	NodeCost float64
	Daemons  []*Daemon
	// Slots counts the capacity reservations of all pools.
	Slots *reservation.Slots
	// LimitVolumes writes the attach limits of a type into a room over Axes, less the volumes that daemons attach, both by
	// CSI driver.
	LimitVolumes func(room resources.Vec, limits, attached map[string]int)
	// StoreVolumes writes the storage for volumes on the type's own disks into a room over Axes; nil if no volume is made of such disks.
	StoreVolumes func(room resources.Vec, it *catalog.InstanceType)
	// Steps counts the work: each new list of candidates adds the types of its pool.
	Steps *int
}

// Models are the NodePools of a plan as models for new nodes: Templates in the order in which they are tried, with what
// they share. Results for sets of requirements are computed once and kept as long as the Models.
type Models struct {
	config    Config
	newNode   requirement.NewNode
	interner  requirement.Interner
	templates []*Template
	hidden    bool // see hide
	// offerings is the number of offerings of all types; zones are their zones, by number of the offering, as numbers from 1.
	offerings   int
	zones       []int
	zoneNumbers map[string]int
	lists       int // candidates made so far
	admitted    map[admittedKey]*Candidates
	rooms       map[string]resources.Vec // by what they have: see shared
	equivalents []knownEquivalents       // the last ones
	keyBuf      []byte                   // buffer of Template.Candidates, and of shared
}

// admittedKey is a template under the requirements of pods and of their volumes, by the sets' IDs.
type admittedKey struct {
	t           *Template
	pod, volume int
}

// NewModels models pools. Pools with replicas are not among them, since their nodes are not launched for pods.
func NewModels(c Config, pools []snapshot.Pool) *Models {
	m := &Models{
		config: c, newNode: c.Labels.OfNewNode(c.JoinValues), zoneNumbers: map[string]int{}, admitted: map[admittedKey]*Candidates{},
		rooms: map[string]resources.Vec{},
	}
	sorted := make([]*snapshot.Pool, 0, len(pools))
	for i := range pools {
		if pools[i].NodePool.Spec.Replicas == nil {
			sorted = append(sorted, &pools[i])
		}
	}
	slices.SortFunc(sorted, poolOrder)
	for i, p := range sorted {
		t := m.model(p)
		t.index = i
		for k := range t.types {
			t.types[k].offering = m.offerings
			m.offerings += len(t.types[k].Offerings)
			m.numberZones(t.types[k].Offerings)
		}
		t.limitLeftAtStart = t.limitLeft
		m.templates = append(m.templates, t)
	}
	return m
}

// numberZones records the zones of offerings, which have the next numbers.
func (m *Models) numberZones(offerings []catalog.Offering) {
	for i := range offerings {
		zone := offerings[i].Zone
		n, known := m.zoneNumbers[zone]
		if !known && zone != "" {
			n = len(m.zoneNumbers) + 1
			m.zoneNumbers[zone] = n
		}
		m.zones = append(m.zones, n)
	}
}

// All are the templates, heaviest first.
func (m *Models) All() []*Template {
	if m.hidden {
		return nil
	}
	return m.templates
}

// Hide leaves no templates until the returned function is called: for a plan on existing nodes only.
func (m *Models) Hide() (show func()) {
	m.hidden = true
	return func() { m.hidden = false }
}

// Intern returns the interned form of a set, as narrow and admit need it.
func (m *Models) Intern(set requirement.Set) requirement.Interned { return m.interner.Intern(set) }

// RequiresAbsent reports whether some pod or pool requires nodes to lack the label.
func (m *Models) RequiresAbsent(key string) bool { return m.interner.RequiresAbsent(key) }

// ZoneOf is the number of the zone of the candidate's offering; 0 if it is not known.
func (m *Models) ZoneOf(cand Candidate) int {
	if cand.Offering < 0 {
		return 0
	}
	return m.zones[cand.Offering]
}

// NodePrice returns what a node of an offering adds to the cost of the plan, in $/h.
func (m *Models) NodePrice(price float64) float64 { return price + m.config.NodeCost }

// Admit returns the candidates of a template under the requirements of pods and of their volumes; nil if the pool's
// requirements exclude the pods'. Each pair is computed once.
func (m *Models) Admit(t *Template, pod, volume requirement.Interned) *Candidates {
	key := admittedKey{t, pod.ID, volume.ID}
	l, known := m.admitted[key]
	if !known {
		if t.reqs.Compatible(pod.Set, m.config.Labels.WellKnown) {
			l = t.Candidates(
				t.reqs.Intersect(pod.Set.Without(corev1.LabelHostname)).Intersect(volume.Set.Without(corev1.LabelHostname)),
			)
		}
		m.admitted[key] = l
	}
	return l
}

// OfferingsOf are the numbers of the available offerings, outside reservations, that any of the lists admits.
//
// Cost: a word per 64 offerings of the pools of the lists, after the first time.
func (m *Models) OfferingsOf(lists []*Candidates) resources.Bitset {
	out := make(resources.Bitset, (m.offerings+63)/64)
	for _, l := range lists {
		words, first := l.offeringWords()
		for i, word := range words {
			out[first+i] |= word
		}
	}
	return out
}

// shared is one Vec for all equal rooms, so that types of other pools with as much room are known by it.
func (m *Models) shared(room resources.Vec) resources.Vec {
	m.keyBuf = m.keyBuf[:0]
	for _, x := range room {
		m.keyBuf = binary.LittleEndian.AppendUint64(m.keyBuf, uint64(x))
	}
	known, ok := m.rooms[string(m.keyBuf)]
	if !ok {
		known = room
		m.rooms[string(m.keyBuf)] = room
	}
	return known
}

// OfferingCount is the number of offerings of all types.
func (m *Models) OfferingCount() int { return m.offerings }

// TypeCount is the number of types of all templates.
func (m *Models) TypeCount() int {
	n := 0
	for _, t := range m.All() {
		n += len(t.types)
	}
	return n
}
