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
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// template is a NodePool as the model for its NodeClaims.
type template struct {
	index        int
	pool         *karpv1.NodePool
	weight       int32
	reqs         requirement.Set
	taints       []corev1.Taint
	types        []typeInfo
	daemonGroups []daemonGroup
	// limits are the axes of the pool's limits; limit, used and limitLeft are over them. limitLeft shrinks as bins
	// reserve.
	limits    resources.Axes
	limit     resources.Vec
	used      resources.Vec
	limitLeft resources.Vec
	// candidatesByReqs caches candidates by the key of their requirements.
	candidatesByReqs map[string]*candidates
	// keys are the labels that types define, domains the values of some of them; both made on first use.
	keys    map[string]bool
	domains map[string][]string
	// launches are the lists of types that launches share, by the types' indexes; key is a buffer for these.
	launches map[string]launchTypes
	key      []byte
	// hasVariants is true when some of the types are variants of one instance type.
	hasVariants bool
	// splitByDaemons is true when variants differ in the daemon pods that come with them.
	splitByDaemons bool
	// unusable is the reason why the pool can launch nothing; empty if it can.
	unusable Reason
}

// typeInfo is an instance type from the perspective of the template.
type typeInfo struct {
	*catalog.InstanceType
	// unreserved has the offerings outside capacity reservations, reserved are the others.
	unreserved *catalog.InstanceType
	reserved   []reservedOffering
	// room is what is left for pods after the daemon pods that come with the node.
	room        resources.Vec
	daemonGroup int
	offering    int           // number of the first offering: all offerings of all types before
	capacity    resources.Vec // over the axes of the pool's limits
}

// daemonGroup is what daemon pods take on all types that run the same ones.
type daemonGroup struct {
	requests corev1.ResourceList
	ports    []resources.HostPort
	attached map[string]int // volumes by driver
}

// attach adds the volumes of a daemon. A claim that several daemons use counts for each of them.
func (g *daemonGroup) attach(list []attachment) {
	if g.attached == nil && len(list) > 0 {
		g.attached = map[string]int{}
	}
	for _, a := range list {
		g.attached[a.driver]++
	}
}

// candidate is a type that requirements admit, with the price of its cheapest available offering. A type is listed once
// for its offerings outside reservations, and once per reservation.
type candidate struct {
	t     int
	price float64
	// offering is the number of that offering; -1 in a reservation.
	offering int
	// reservation is the capacity reservation that the type is launched into: see package reservation.
	reservation int
}

// candidates are the types of a template that a set of requirements admits.
type candidates struct {
	id   int
	t    *template
	reqs requirement.Set
	// hasMin reports whether reqs has minValues.
	hasMin bool
	// zone is the number of the only zone of the candidates; 0 if they are in several.
	zone int
	// price is by index of typeInfo, outside reservations; +Inf where there is none.
	price []float64
	// reservedPrices are the prices in reservations.
	reservedPrices map[reservedType]float64
	// narrowedBySet is what the candidates become under interned sets, by their ids; domains caches single domains.
	narrowedBySet []narrowResult
	domains       []knownDomain
	// deviceViews are the candidates from the perspective of devices; made on first use.
	deviceViews []deviceView
	// claimReqs are the requirements of a claim; made on first use.
	claimReqs *requirement.Set
	list      []candidate // cheapest first, then by name
}

// poolOrder puts heavier pools first, and among equals the name that sorts last. Among pools of equal weight price
// decides, and the name only where prices are equal: see cheapestNewBin.
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
	t := &template{pool: np, weight: weight(p), taints: np.Spec.Template.Spec.Taints, candidatesByReqs: map[string]*candidates{}}
	reqs, err := sv.s.Labels.FromPool(np, p.NodeClassLabel)
	if err != nil {
		t.unusable = Reason{Code: Requirement, NodePool: np.Name, Message: err.Error()}
		return t
	}
	// Nodes have these two labels once they are initialized, and DaemonSets may select by them.
	t.reqs = reqs.With(requirement.In(karpv1.LabelRegistered, "true"), requirement.In(karpv1.LabelInitialized, "true"))
	sv.noteAbsentLabels(t.reqs)
	t.limits = resources.NewAxes(np.Spec.Limits)
	t.limit, t.used = t.limits.Vec(np.Spec.Limits), t.limits.Vec(p.Used)
	t.limitLeft = t.limit.Minus(t.used)

	types, daemons := variants(p.InstanceTypes), sv.templateDaemons(t)
	// Claims omit types with some offerings that are too small. minValues may need those types, so such pools are not split.
	if uneven := offeringDaemons(types, daemons); len(uneven) > 0 && !t.reqs.HasMinValues() {
		whole := len(types)
		types = splitTypesByDaemons(types, uneven)
		t.splitByDaemons = len(types) > whole
	}
	t.hasVariants = len(types) > len(p.InstanceTypes)
	slices.SortStableFunc(types, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	for _, it := range types {
		if t.reqs.Overlaps(it.Requirements) {
			t.types = append(t.types, typeInfo{InstanceType: it, capacity: capacity(it, t.limits)})
			splitOfferings(&t.types[len(t.types)-1], &sv.slots)
		}
	}
	sv.groupDaemons(t, daemons)
	switch {
	case len(types) == 0:
		t.unusable = Reason{Code: Offering, NodePool: np.Name, Message: "its node class offers no instance types"}
	case len(t.types) == 0 || slices.ContainsFunc(t.reqs.All(), requirement.Requirement.Impossible):
		t.unusable = Reason{
			Code:     Requirement,
			NodePool: np.Name,
			Message: "its own requirements filtered out all instance types: " + t.reqs.Without(
				karpv1.LabelRegistered,
				karpv1.LabelInitialized,
			).String(),
		}
	}
	return t
}

// capacity is what a type counts against limits; the type itself is one of "nodes".
func capacity(it *catalog.InstanceType, limits resources.Axes) resources.Vec {
	v := limits.Vec(it.Capacity)
	if i, ok := limits.Lookup(karpv1.ResourceNodes); ok {
		v[i] = 1
	}
	return v
}

// templateDaemon is a daemon that runs on nodes of a template, with the alternatives that the template allows.
type templateDaemon struct {
	*daemon
	alternatives []requirement.Set
}

// templateDaemons are the daemons that run on any nodes of the template.
func (sv *solver) templateDaemons(t *template) []templateDaemon {
	var out []templateDaemon
	for _, d := range sv.daemons {
		if _, blocked := snapshot.UntoleratedHard(d.tolerations, t.taints); blocked {
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

// runsOn reports whether the daemon's pods run on nodes with these requirements.
func (r *templateDaemon) runsOn(reqs requirement.Set) bool {
	return slices.ContainsFunc(r.alternatives, func(alt requirement.Set) bool { return alt.Overlaps(reqs) })
}

// splitTypesByDaemons splits types with offerings that come with different daemons, for example those of one zone.
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

// offeringDaemons are the daemons that run on some offerings of a type but not on others: they select labels of
// offerings.
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

// groupDaemons computes which daemons run on which types, and what room they leave.
func (sv *solver) groupDaemons(t *template, daemons []templateDaemon) {
	groups := map[string]int{}
	var overheads []resources.Vec
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
			group, overhead := daemonGroup{requests: corev1.ResourceList{}}, make(resources.Vec, sv.axes.Len())
			for j, d := range daemons {
				if members[j] > 0 {
					quantity.AddTo(group.requests, d.requests)
					overhead = overhead.Plus(d.vec)
					group.ports = append(group.ports, d.ports...)
					group.attach(d.attached)
				}
			}
			t.daemonGroups, overheads = append(t.daemonGroups, group), append(overheads, overhead)
		}
		ti.daemonGroup = g
		ti.room = sv.axes.Vec(ti.Allocatable).Minus(overheads[g])
		sv.limitVolumes(ti.room, ti.VolumeLimits, t.daemonGroups[g].attached)
		for _, q := range ti.Allocatable {
			if q.Sign() < 0 { // a negative amount of anything: the type holds nothing
				ti.room[0] = -1
			}
		}
	}
}

// candidates are the available types that reqs admit, cheapest first. They are cached by reqs.
//
// Cost of a new list: types times offerings, and sorting.
func (sv *solver) candidates(t *template, reqs requirement.Set) *candidates {
	sv.keyBuf = reqs.AppendKey(sv.keyBuf[:0])
	if c, ok := t.candidatesByReqs[string(sv.keyBuf)]; ok {
		return c
	}
	c := &candidates{id: sv.candidateCount, t: t, reqs: reqs, hasMin: reqs.HasMinValues(), price: make([]float64, len(t.types))}
	if zone, single := reqs.Get(corev1.LabelTopologyZone).Single(); single {
		c.zone = sv.zoneNumbers[zone]
	}
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

// numberZones records the zones of offerings, which have the next numbers.
func (sv *solver) numberZones(offerings []catalog.Offering) {
	for i := range offerings {
		zone := offerings[i].Zone
		n, known := sv.zoneNumbers[zone]
		if !known && zone != "" {
			n = len(sv.zoneNumbers) + 1
			sv.zoneNumbers[zone] = n
		}
		sv.offeringZones = append(sv.offeringZones, n)
	}
}

// zoneOf is the number of the zone of the candidate's offering; 0 if it is not known.
func (sv *solver) zoneOf(cand candidate) int {
	if cand.offering < 0 {
		return 0
	}
	return sv.offeringZones[cand.offering]
}

// holds reports whether any of the types has room for the requests.
func (t *template) holds(requests resources.Vec) bool {
	return slices.ContainsFunc(t.types, func(ti typeInfo) bool { return requests.Fits(ti.room) })
}

// limitsExhausted reports whether the pool can launch nothing, for example at its limits: no node of it will be in the
// domains that it names. Called before anything is planned.
func (t *template) limitsExhausted() bool {
	return !slices.ContainsFunc(t.types, func(ti typeInfo) bool { return ti.capacity.Within(t.limitLeft) })
}

// values are the domains of key that the template's nodes may be in: those that some offering of the pool has, available
// or not, or those that the pool lists of a label that no type has. A domain that no node can be in is none: see
// kube-scheduler's PodTopologySpread, which counts the domains of nodes that exist.
func (t *template) values(key string) []string {
	if known, ok := t.domains[key]; ok {
		return known
	}
	own, out := t.reqs.Get(key), []string(nil)
	switch {
	case t.definesLabel(key):
		out = t.offeredValues(key, own)
	case own.Operator() == corev1.NodeSelectorOpIn:
		out = own.Values()
	}
	if t.domains == nil {
		t.domains = map[string][]string{}
	}
	t.domains[key] = out
	return out
}

// offeredValues are the values of key that the pool admits, sorted, of offerings that it admits.
func (t *template) offeredValues(key string, own requirement.Requirement) []string {
	var out []string
	for i := range t.types {
		ofType := t.types[i].Requirements.Get(key)
		for k := range t.types[i].Offerings {
			o, r := &t.types[i].Offerings[k], ofType
			if o.Requirements.Defines(key) {
				r = o.Requirements.Get(key)
			}
			if r.Operator() != corev1.NodeSelectorOpIn ||
				!slices.ContainsFunc(r.Values(), func(v string) bool { return own.Has(v) && !slices.Contains(out, v) }) {
				continue // nothing new: the common case
			}
			if t.reqs.Overlaps(o.Requirements) {
				out = append(out, slices.DeleteFunc(slices.Clone(r.Values()), func(v string) bool { return !own.Has(v) })...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// minValuesShortfall returns, by key, how many values the types in list have of each key with minValues that they do
// not reach. The length is that of the shortest prefix that reaches all of them.
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
