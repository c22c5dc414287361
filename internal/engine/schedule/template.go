package schedule

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// template is a pool as the shape of the claims that it could make.
type template struct {
	index        int
	pool         *karpv1.NodePool
	reqs         requirement.Set
	taints       []corev1.Taint
	types        []typeInfo
	daemonGroups []daemonGroup
	// limit, used and left are over the axes of the pool's limits; left shrinks as bins reserve.
	limits    axes
	limit     vec
	used      vec
	limitLeft vec
	// memo of candidates by requirements.
	candidatesByReqs map[string]*candidates
	// keys are the labels that types give nodes, domains the values of some; made when first asked for.
	keys    map[string]bool
	domains map[string][]string
	// varied tells that some of the types are variants of one.
	hasVariants bool
	// splitByDaemons tells that they differ in the daemons that come with them.
	splitByDaemons bool
	// broken says why the pool cannot launch anything; empty if it can.
	unusable Reason
}

// typeInfo is an instance type as the template sees it.
type typeInfo struct {
	*catalog.InstanceType
	// open has the offerings that everybody can buy, reserved are the others.
	unreserved *catalog.InstanceType
	reserved   []reservedOffering
	// room is what is left for pods after the daemons that come with the node.
	room        vec
	daemonGroup int
	offering    int // number of offerings of all types before
	capacity    vec // over the axes of the pool's limits
}

// daemonGroup is what daemons take on all types that run the same ones.
type daemonGroup struct {
	requests corev1.ResourceList
	ports    []hostPort
}

// candidate is a type that requirements admit, with its cheapest available offering's price. A type is listed once for
// what everybody can buy of it, and once for each reservation.
type candidate struct {
	t     int
	price float64
	// offer is the number of that offering; of a reservation's, it is -1.
	offering int
	// seat is the reservation that the type is taken from: see seats.
	reservation int
}

type candidates struct {
	id   int
	t    *template
	reqs requirement.Set
	// hasMin tells whether reqs has minValues.
	hasMin bool
	// price by typeInfo index without reservations; +Inf where there is none.
	price []float64
	// slots are the prices in reservations.
	reservedPrices map[reservedType]float64
	// narrowed is what the candidates become under wishes, by their ids; settled remembers domains.
	narrowedBySet []narrowResult
	domains       []knownDomain
	// looks are what devices see of them; made when first asked for.
	deviceViews []deviceView
	list        []candidate // cheapest first, then by name
}

// poolOrder puts heavier pools first, and among equals the name that sorts last.
func poolOrder(a, b *snapshot.Pool) int {
	return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(b.NodePool.Name, a.NodePool.Name))
}

func weight(p *snapshot.Pool) int32 {
	if p.NodePool.Spec.Weight == nil {
		return 0
	}
	return *p.NodePool.Spec.Weight
}

func (sv *solver) template(p *snapshot.Pool) *template {
	np := p.NodePool
	t := &template{pool: np, taints: np.Spec.Template.Spec.Taints, candidatesByReqs: map[string]*candidates{}}
	reqs, err := sv.s.Labels.FromPool(np, p.NodeClassLabel)
	if err != nil {
		t.unusable = Reason{Code: Requirement, NodePool: np.Name, Message: err.Error()}
		return t
	}
	// Nodes will have these two once they are up; daemons may select by them.
	t.reqs = reqs.With(requirement.In(karpv1.LabelRegistered, "true"), requirement.In(karpv1.LabelInitialized, "true"))
	sv.noteAbsentLabels(t.reqs)
	t.limits = newAxes(np.Spec.Limits)
	t.limit, t.used = t.limits.vec(np.Spec.Limits), t.limits.vec(p.Used)
	t.limitLeft = t.limit.minus(t.used)

	types, daemons := variants(p.InstanceTypes), sv.templateDaemons(t)
	// Claims leave out types of which some offerings are too small, and minValues may need those: such pools are not split.
	if uneven := offeringDaemons(types, daemons); len(uneven) > 0 && !t.reqs.HasMinValues() {
		whole := len(types)
		types = splitTypesByDaemons(types, uneven)
		t.splitByDaemons = len(types) > whole
	}
	t.hasVariants = len(types) > len(p.InstanceTypes)
	slices.SortStableFunc(types, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	for _, it := range types {
		if t.reqs.Overlaps(it.Requirements) {
			t.types = append(t.types, typeInfo{InstanceType: it, capacity: t.limits.capacity(it)})
			sv.slots.splitOfferings(&t.types[len(t.types)-1])
		}
	}
	sv.groupDaemons(t, daemons)
	switch {
	case len(types) == 0:
		t.unusable = Reason{Code: Offering, NodePool: np.Name, Message: "its node class offers no instance types"}
	case len(t.types) == 0 || slices.ContainsFunc(t.reqs.All(), requirement.Requirement.Impossible):
		t.unusable = Reason{Code: Requirement, NodePool: np.Name, Message: "its own requirements filtered out all instance types: " + t.reqs.Without(karpv1.LabelRegistered, karpv1.LabelInitialized).String()}
	}
	return t
}

// capacity is what a type counts against limits, itself being one of "nodes".
func (a axes) capacity(it *catalog.InstanceType) vec {
	v := a.vec(it.Capacity)
	if i, ok := a.index[karpv1.ResourceNodes]; ok {
		v[i] = 1
	}
	return v
}

// resident is a daemon that runs on nodes of a template, in those of its alternatives that the template leaves.
type templateDaemon struct {
	*daemon
	alternatives []requirement.Set
}

// residents are the daemons that run on any nodes of the template.
func (sv *solver) templateDaemons(t *template) []templateDaemon {
	var out []templateDaemon
	for _, d := range sv.daemons {
		if _, blocked := snapshot.Untolerated(withSoftTaints(d.tolerations), t.taints); blocked {
			continue
		}
		c := templateDaemon{daemon: d}
		for _, alt := range d.alternatives {
			if t.reqs.Compatible(alt, sv.s.Labels.WellKnown) {
				c.alternatives = append(c.alternatives, alt)
			}
		}
		if len(c.alternatives) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// runsOn tells whether the daemon's pods run on nodes that have what reqs say.
func (r *templateDaemon) runsOn(reqs requirement.Set) bool {
	return slices.ContainsFunc(r.alternatives, func(alt requirement.Set) bool { return alt.Overlaps(reqs) })
}

// splitTypesByDaemons splits types of which some offerings come with other daemons than others: those of one zone, say.
func splitTypesByDaemons(types []*catalog.InstanceType, daemons []templateDaemon) []*catalog.InstanceType {
	out := make([]*catalog.InstanceType, 0, len(types))
	for _, it := range types {
		var groups [][]catalog.Offering
		index := map[string]int{}
		for _, o := range it.Offerings {
			set := make([]byte, len(daemons))
			for j := range daemons {
				set[j] = byte(btoi(daemons[j].runsOn(it.Requirements.Intersect(o.Requirements))))
			}
			g, known := index[string(set)]
			if !known {
				g = len(groups)
				index[string(set)], groups = g, append(groups, nil)
			}
			groups[g] = append(groups[g], o)
		}
		if len(groups) < 2 {
			out = append(out, it)
			continue
		}
		for _, g := range groups {
			out = append(out, variant(it, g))
		}
	}
	return out
}

// picky are the daemons that run on some offerings of a type and not on others: those that require labels that offerings have.
func offeringDaemons(types []*catalog.InstanceType, daemons []templateDaemon) []templateDaemon {
	keys := map[string]bool{}
	for _, it := range types {
		for i := range it.Offerings {
			for _, r := range it.Offerings[i].Requirements.All() {
				keys[r.Key()] = true
			}
		}
	}
	var out []templateDaemon
	for _, d := range daemons {
		if slices.ContainsFunc(d.alternatives, func(alt requirement.Set) bool {
			return slices.ContainsFunc(alt.All(), func(r requirement.Requirement) bool { return keys[r.Key()] })
		}) {
			out = append(out, d)
		}
	}
	return out
}

// groupDaemons finds out which daemons run on which types, and what room they leave.
func (sv *solver) groupDaemons(t *template, daemons []templateDaemon) {
	groups := map[string]int{}
	var overheads []vec
	members := make([]byte, len(daemons))
	for i := range t.types {
		ti := &t.types[i]
		for j, d := range daemons {
			members[j] = byte(btoi(d.runsOn(ti.Requirements)))
		}
		g, ok := groups[string(members)]
		if !ok {
			g = len(t.daemonGroups)
			groups[string(members)] = g
			group, overhead := daemonGroup{requests: corev1.ResourceList{}}, make(vec, len(sv.axes.names))
			for j, d := range daemons {
				if members[j] > 0 {
					quantity.AddTo(group.requests, d.requests)
					overhead = overhead.plus(d.vec)
					group.ports = append(group.ports, d.ports...)
				}
			}
			t.daemonGroups, overheads = append(t.daemonGroups, group), append(overheads, overhead)
		}
		ti.daemonGroup = g
		ti.room = sv.axes.vec(ti.Allocatable).minus(overheads[g])
		sv.limitVolumes(ti.room, ti.VolumeLimits)
		for _, q := range ti.Allocatable {
			if q.Sign() < 0 { // a negative amount of anything: the type holds nothing
				ti.room[0] = -1
			}
		}
	}
}

// candidates are the types that reqs admit and that can be had, cheapest first.
func (sv *solver) candidates(t *template, reqs requirement.Set) *candidates {
	sv.keyBuf = reqs.AppendKey(sv.keyBuf[:0])
	if c, ok := t.candidatesByReqs[string(sv.keyBuf)]; ok {
		return c
	}
	c := &candidates{id: sv.candidateCount, t: t, reqs: reqs, hasMin: reqs.HasMinValues(), price: make([]float64, len(t.types))}
	sv.candidateCount++
	sv.steps += len(t.types)
	for i := range t.types {
		ti := &t.types[i]
		c.price[i] = math.Inf(1)
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		best := -1
		for k := range ti.Offerings {
			o := &ti.Offerings[k]
			if o.Available && o.ReservationID == "" && (best < 0 || o.Price < ti.Offerings[best].Price) && reqs.Overlaps(o.Requirements) {
				best = k
			}
		}
		if best >= 0 {
			c.price[i] = sv.nodePrice(ti.Offerings[best].Price)
			c.list = append(c.list, candidate{t: i, price: c.price[i], offering: ti.offering + best})
		}
		sv.addReserved(c, i, ti)
	}
	slices.SortStableFunc(c.list, func(a, b candidate) int { return cmp.Compare(a.price, b.price) })
	t.candidatesByReqs[string(sv.keyBuf)] = c
	return c
}

// holds tells whether any of the types has room for so much.
func (t *template) holds(requests vec) bool {
	return slices.ContainsFunc(t.types, func(ti typeInfo) bool { return requests.fits(ti.room) })
}

// exhausted tells whether the pool can launch nothing at all, be it for its limits: no node of it will ever be in the
// domains that it names. Asked before anything is planned.
func (t *template) limitsExhausted() bool {
	return !slices.ContainsFunc(t.types, func(ti typeInfo) bool { return ti.capacity.within(t.limitLeft) })
}

// values are the domains of key that the template's nodes may be in.
func (t *template) values(key string) []string {
	own := t.reqs.Get(key)
	if own.Operator() == corev1.NodeSelectorOpIn {
		return own.Values()
	}
	if known, ok := t.domains[key]; ok || !t.definesLabel(key) {
		return known
	}
	var out []string
	for i := range t.types {
		if r := t.types[i].Requirements.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
			for _, v := range r.Values() {
				if own.Has(v) {
					out = append(out, v)
				}
			}
		}
	}
	slices.Sort(out)
	if t.domains == nil {
		t.domains = map[string][]string{}
	}
	t.domains[key] = slices.Compact(out)
	return t.domains[key]
}

// minima are the keys with minValues that the types in list, in their order, do not reach, with what they do reach.
// The length is that of the shortest prefix that reaches all of them.
func (t *template) minValuesShortfall(reqs requirement.Set, list []candidate) (missed map[string]int, length int) {
	seen := map[string]map[string]bool{}
	wanted := map[string]int{}
	for _, r := range reqs.All() {
		if r.MinValues() > 0 {
			wanted[r.Key()], seen[r.Key()] = r.MinValues(), map[string]bool{}
		}
	}
	for i, c := range list {
		for key := range wanted {
			for _, v := range t.types[c.t].Requirements.Get(key).Values() {
				if reqs.Get(key).Has(v) {
					seen[key][v] = true
				}
			}
		}
		length = i + 1
		if reached(wanted, seen) {
			return nil, length
		}
	}
	missed = map[string]int{}
	for key, n := range wanted {
		if len(seen[key]) < n {
			missed[key] = len(seen[key])
		}
	}
	return missed, length
}

func reached(wanted map[string]int, seen map[string]map[string]bool) bool {
	for key, n := range wanted {
		if len(seen[key]) < n {
			return false
		}
	}
	return true
}

func taintString(t *corev1.Taint) string {
	return strings.TrimSuffix(t.Key+"="+t.Value, "=") + ":" + string(t.Effect)
}
