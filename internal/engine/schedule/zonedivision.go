package schedule

import (
	"encoding/binary"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// zoneDivision divides pods that spread over zones before the search: each pod gets a zone, and the pods of one class in
// one zone become a class of their own, with a requirement on the zone in place of the spread. So new nodes are sized
// for pods that can really share a zone. Without it, the spread is checked pod by pod: maxSkew 1 sends equal pods to the
// zones in turn, and a node that was sized for a third of them gets every third pod of what follows.
//
// Groups are divided together with all groups that share pods with them. They are divided only where the counts at the
// end follow from the division: every pod of the run that a group counts must have that group as its constraint, and no
// other rule on zones. Pods that count for a group without being spread by it may end up in any zone.
//
// Invariant: the counts of a division respect maxSkew, since it is made pod by pod under the same rule as the search. So
// a plan that schedules all divided pods is valid. If one of them is left over, because a zone has no room for it, the
// run is repeated without the division of its groups.
type zoneDivision struct {
	sv *solver
	// zones are the names, sorted.
	zones []string
	// members are the constraint classes of the run that have a spread over zones, in queue order; memberOf finds them.
	members  []*zoneMember
	memberOf map[*podclass.Constraints]*zoneMember
	// counts are the groups, by group; groups lists them in the order in which members came.
	counts map[*topology.Group]*zoneCounts
	groups []*zoneCounts
	// prices caches the prices of zones by the candidates that they are computed from.
	prices map[string]float64
}

// zoneMember is a constraint class whose pods are divided.
type zoneMember struct {
	k      *podclass.Constraints
	groups []*zoneCounts
	// in are the constraint classes of the pods in each zone, by index into zones; nil where they cannot run. Made on
	// first use, as price: what the pods cost in each zone, relative to others.
	in    []*podclass.Constraints
	price []float64
}

// zoneCounts is a spread group while its pods are divided. Slices are by index into zoneDivision.zones.
type zoneCounts struct {
	g *topology.Group
	// count and sure are the number of pods, with and without those that may turn out not to count.
	count, sure []int
	// known marks the zones of the group's universe, usable lists those against which skew is measured.
	known  []bool
	usable []int
	// component is the number of the lowest group that shares pods with this one, directly or not.
	component int
	// whole is true if the group is not divided.
	whole bool
}

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
// nodes. It returns the pods that are left. Their classes are those of their zones until mergeZones.
//
// Cost: pods times zones times groups per pod, and one pass over the candidates per constraint class and zone.
func (sv *solver) divideOverZones(queue []*queuedPod) []*queuedPod {
	if sv.prices.market == nil || sv.prices.market.Program() == nil || sv.wholeGroups == nil {
		return queue
	}
	d := &zoneDivision{
		sv: sv, counts: map[*topology.Group]*zoneCounts{}, memberOf: map[*podclass.Constraints]*zoneMember{}, prices: map[string]float64{},
	}
	d.findMembers()
	if d.exclude(); !slices.ContainsFunc(d.groups, func(z *zoneCounts) bool { return !z.whole }) {
		return queue
	}
	queue = sv.placeFirstOnExisting(queue)
	d.connect()
	d.readCounts()
	pods := make([][]*queuedPod, len(d.groups))
	for _, q := range queue {
		if m := d.memberOf[q.class.Constraints]; m != nil && !m.groups[0].whole {
			pods[m.groups[0].component] = append(pods[m.groups[0].component], q)
		}
	}
	assigned := map[*queuedPod]int{}
	for _, list := range pods {
		if len(list) < 2 {
			continue // the search finds the zone of one pod
		}
		if zones := d.assign(list); zones != nil {
			for i, q := range list {
				assigned[q] = zones[i]
			}
		}
	}
	if len(assigned) > 0 {
		d.split(queue, assigned)
		sv.solveDivided()
	}
	return queue
}

// placeFirstOnExisting schedules pods onto existing nodes, as far as they fit there with all their preferences: room
// that is paid for decides before the price of a zone does.
func (sv *solver) placeFirstOnExisting(queue []*queuedPod) []*queuedPod {
	if !slices.ContainsFunc(sv.nodes, func(n *node) bool { return n.open && !n.removed }) {
		return queue
	}
	for _, q := range queue {
		if sv.stopRequested() || sv.outOfSteps() {
			break
		}
		if first := sv.leastLevel(q.class); sv.placeOnExisting(q, first) {
			sv.placed(q, first)
		}
	}
	return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.placed })
}

// findMembers lists the constraint classes with a spread over zones, and their groups.
func (d *zoneDivision) findMembers() {
	seen := map[*podclass.Constraints]bool{}
	for _, c := range d.sv.classes {
		k := c.Constraints
		if seen[k] || c.Left() == 0 || len(k.Levels()) == 0 {
			continue
		}
		seen[k] = true
		var groups []*zoneCounts
		for _, v := range k.Views(k.Levels()[0]) {
			if v.Type() == topology.Spread && v.Key() == corev1.LabelTopologyZone && !slices.Contains(groups, d.counts[v.Group()]) {
				z := d.countsOf(v.Group())
				z.whole = z.whole || !slices.Contains(k.Levels()[d.sv.leastKept(k)].Groups(), v.Group())
				groups = append(groups, z)
			}
		}
		if len(groups) > 0 {
			m := &zoneMember{k: k, groups: groups}
			d.members, d.memberOf[k] = append(d.members, m), m
		}
	}
	if len(d.members) == 0 {
		return
	}
	for _, c := range d.sv.classes {
		if c.Left() == 0 {
			continue
		}
		for _, g := range c.Matches() {
			if z := d.counts[g]; z != nil && !z.whole {
				m := d.memberOf[c.Constraints]
				z.whole = m == nil || !slices.Contains(m.groups, z)
			}
		}
	}
}

// countsOf returns the state of the group.
func (d *zoneDivision) countsOf(g *topology.Group) *zoneCounts {
	z := d.counts[g]
	if z == nil {
		z = &zoneCounts{g: g, component: len(d.groups), whole: d.sv.wholeGroups[g]}
		d.counts[g] = z
		d.groups = append(d.groups, z)
	}
	return z
}

// exclude marks the groups that must stay whole: those with a pod that another rule on zones concerns, and then those
// that share pods with them.
func (d *zoneDivision) exclude() {
	for changed := true; changed; {
		changed = false
		for _, m := range d.members {
			if !slices.ContainsFunc(m.groups, func(z *zoneCounts) bool { return z.whole }) && m.k.OnlySpreadsOverZones(d.sv.leastKept(m.k)) {
				continue
			}
			for _, z := range m.groups {
				changed = changed || !z.whole
				z.whole = true
			}
		}
	}
}

// connect joins groups that share pods into components.
func (d *zoneDivision) connect() {
	for changed := true; changed; {
		changed = false
		for _, m := range d.members {
			lowest := m.groups[0].component
			for _, z := range m.groups {
				lowest = min(lowest, z.component)
			}
			for _, z := range m.groups {
				changed = changed || z.component != lowest
				z.component = lowest
			}
		}
	}
}

// readCounts reads the zones and the counts of all groups.
func (d *zoneDivision) readCounts() {
	for _, z := range d.groups {
		d.zones = append(d.zones, z.g.Universe()...)
	}
	slices.Sort(d.zones)
	d.zones = slices.Compact(d.zones)
	for _, z := range d.groups {
		z.count, z.sure, z.known = make([]int, len(d.zones)), make([]int, len(d.zones)), make([]bool, len(d.zones))
		for i, zone := range d.zones {
			z.count[i], z.sure[i] = z.g.Count(zone), z.g.SureCount(zone)
			z.known[i] = slices.Contains(z.g.Universe(), zone)
			if slices.Contains(z.g.Usable(), zone) {
				z.usable = append(z.usable, i)
			}
		}
	}
}

// minCount is the global minimum of the skew for the counts so far.
func (z *zoneCounts) minCount() int {
	if len(z.usable) == 0 || len(z.usable) < z.g.MinDomains() {
		return 0
	}
	lowest := z.sure[z.usable[0]]
	for _, i := range z.usable[1:] {
		lowest = min(lowest, z.sure[i])
	}
	return lowest
}

// assign finds a zone for each pod, in queue order: of those that maxSkew allows the cheapest, then the one with the
// fewest pods. It returns nil if a pod has none; then the pods stay together.
func (d *zoneDivision) assign(pods []*queuedPod) []int {
	out := make([]int, len(pods))
	floors := make([]int, 0, 1)
	for i, q := range pods {
		m := d.memberOf[q.class.Constraints]
		d.price(m, q.class)
		floors = floors[:0]
		for _, z := range m.groups {
			floors = append(floors, z.minCount())
		}
		best, fewest := -1, 0
		for zone := range d.zones {
			if math.IsInf(m.price[zone], 1) {
				continue
			}
			count, allowed := 0, true
			for n, z := range m.groups {
				allowed = allowed && z.known[zone] && z.count[zone]+1-floors[n] <= z.g.MaxSkew()
				count += z.count[zone]
			}
			if allowed && (best < 0 || m.price[zone] < m.price[best] || m.price[zone] == m.price[best] && count < fewest) {
				best, fewest = zone, count
			}
		}
		if best < 0 {
			return nil
		}
		for _, z := range m.groups {
			z.count[best]++
			z.sure[best]++
		}
		out[i] = best
	}
	return out
}

// price computes what the member's pods cost in each zone at dual prices, by the pod of class c; +Inf where no offering
// holds one of them. Zones within similarCost of the cheapest cost the same.
func (d *zoneDivision) price(m *zoneMember, c *class) {
	if m.price != nil {
		return
	}
	m.price, m.in = make([]float64, len(d.zones)), make([]*podclass.Constraints, len(d.zones))
	least := math.Inf(1)
	for i, zone := range d.zones {
		m.price[i] = math.Inf(1)
		if m.in[i] = m.k.InZone(zone, d.sv.pools); m.in[i] != nil {
			m.price[i] = d.leastCost(m.in[i], c)
		}
		least = min(least, m.price[i])
	}
	for i, p := range m.price {
		if p <= least*similarCost {
			m.price[i] = least
		}
	}
}

// leastCost is the least that a pod of class c costs at dual prices on a new node of the constraint class k: its share
// of the node, at the node's price.
func (d *zoneDivision) leastCost(k *podclass.Constraints, c *class) float64 {
	lists := d.sv.candidateLists(k)
	var key []byte
	for _, l := range lists {
		key = binary.AppendUvarint(key, uint64(l.ID()))
	}
	for _, r := range c.Requests() {
		key = binary.AppendVarint(key, r)
	}
	if known, ok := d.prices[string(key)]; ok {
		return known
	}
	least := d.sv.prices.market.LeastCost(c.Requests(), lists)
	d.prices[string(key)] = least
	return least
}

// split gives assigned pods the classes of their zones, and lists the classes of the run anew: by the first pod that is
// left, then those without any.
func (d *zoneDivision) split(queue []*queuedPod, assigned map[*queuedPod]int) {
	sv := d.sv
	zoned, packing := map[zonedClass]*class{}, map[zonedPacking]*sizing.PackingClass{}
	listed := make(map[*class]bool, len(sv.classes))
	classes := make([]*class, 0, len(sv.classes))
	for _, q := range queue {
		if zone, ok := assigned[q]; ok {
			key := zonedClass{q.class, zone}
			c := zoned[key]
			if c == nil {
				of := zonedPacking{q.class.Packing(), zone}
				if packing[of] == nil {
					packing[of] = &sizing.PackingClass{}
				}
				c = d.zonedClass(key, packing[of])
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
	for _, c := range sv.classes {
		if !listed[c] {
			classes = append(classes, c)
		}
	}
	sv.classes = classes
}

// zonedClass makes the class of pods in a zone, without pods.
func (d *zoneDivision) zonedClass(key zonedClass, f *sizing.PackingClass) *class {
	c, sv := *key.c, d.sv
	c.whole = key.c
	c.Pods = sizing.NewPods(key.c.With(d.memberOf[key.c.Constraints].in[key.zone], len(sv.allClasses)+len(sv.zoned)), f)
	sv.zoned = append(sv.zoned, &c)
	c.members, c.nextPod, c.onExisting, c.failedAt, c.pods = 0, 0, 0, 0, nil
	c.attempts = make([]attemptCache, len(c.Levels()))
	return &c
}

// solveDivided solves the linear program of the search for the divided pods. The lower bound stays what it is without
// the division.
func (sv *solver) solveDivided() {
	sv.prices.market, sv.prices.lastValue = sv.newMarket(price.Problem{RoomOf: sv.prices.whole}), 0
	for _, c := range sv.classes {
		sv.prices.lastValue += c.boundValue * float64(c.Left())
	}
}

// mergeZones gives all pods their own classes back.
func (sv *solver) mergeZones(queue []*queuedPod) {
	if len(sv.zoned) == 0 {
		return
	}
	sv.prices.market, sv.zoned = sv.prices.whole, nil
	sv.sizer.Reprice(sv.prices.whole)
	for _, c := range sv.classes {
		c.Enter(c.boundPods)
	}
	for _, q := range queue {
		if q.class.whole != nil {
			q.class = q.class.whole
		}
	}
}

// leavesDivided reports whether divided pods are among those that the run leaves over. It marks their groups as whole;
// where that has happened before, it ends all divisions.
func (sv *solver) leavesDivided(left []*queuedPod) bool {
	again, found := len(sv.wholeGroups) > 0, false
	for _, q := range left {
		if q.class.whole == nil {
			continue
		}
		found = true
		for _, g := range q.class.whole.Levels()[0].Groups() {
			if g.Spreads(corev1.LabelTopologyZone) {
				sv.wholeGroups[g] = true
			}
		}
	}
	if found && again {
		sv.wholeGroups = nil
	}
	return found
}
