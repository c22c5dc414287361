// Package zonedivision divides pods that spread over zones among the zones, before nodes are planned for them.
//
// Each pod gets a zone, so that new nodes are sized for pods that can really share a zone. Without it, the spread is checked
// pod by pod: maxSkew 1 sends equal pods to the zones in turn, and a node that was sized for a third of them gets every third
// pod of what follows.
//
// # Which groups
//
// Groups are divided together with all groups that share pods with them. They are divided only where the counts at the
// end follow from the division: every pod of the run that a group counts must have that group as its constraint, and no
// other rule on zones. Pods that count for a group without being spread by it may end up in any zone. A second spread that is
// required, as over architectures, is such a rule, too: kube-scheduler binds pods one by one.
//
// # Invariant
//
// The counts of a division respect maxSkew, since it is made pod by pod under the same rule as the search. So a plan that
// schedules all divided pods is valid. The search must repeat a run that leaves one of them over, with its groups whole.
//
// # Cost
//
// Pods times zones times groups per pod, and one pass over the candidates per constraint class and zone.
//
// # Source
//
// Greedy by price, pod by pod in the order of the queue: each takes the cheapest zone that the skew allows.
package zonedivision

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Problem describes what a division depends on. All fields but Whole are required.
type Problem struct {
	// Classes are the classes with pods, in the order of the queue.
	Classes []*podclass.Class
	// Whole are groups that are not to be divided.
	Whole map[*topology.Group]bool
	// LeastKept is the first relaxation level of the pods that counts.
	LeastKept func(*podclass.Constraints) int
	Pools     *nodepool.Models
	// Market prices zones; Candidates are those that any pods with the constraints can use.
	Market     *price.Market
	Candidates func(*podclass.Constraints) []*nodepool.Candidates
	// SimilarCost is the ratio up to which two zones cost the same.
	SimilarCost float64
}

// Division is a division of pods over zones.
type Division struct {
	Problem
	// zones are the names, sorted.
	zones []string
	// members are the constraint classes with a spread over zones, in queue order; memberOf finds them.
	members  []*member
	memberOf map[*podclass.Constraints]*member
	// counts are the groups, by group; groups lists them in the order in which members came.
	counts map[*topology.Group]*counts
	groups []*counts
	// prices caches the prices of zones by the candidates that they are computed from.
	prices map[string]float64
}

// member is a constraint class with pods that are divided.
type member struct {
	k      *podclass.Constraints
	groups []*counts
	// in are the constraint classes of the pods in each zone, by index into zones; nil where they cannot run. Made on
	// first use, as price: what the pods cost in each zone, relative to others.
	in    []*podclass.Constraints
	price []float64
}

// counts is a spread group while its pods are divided. Slices are by index into Division.zones.
type counts struct {
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

// New finds the groups that can be divided; nil if there are none.
func New(p Problem) *Division {
	d := &Division{
		Problem: p, counts: map[*topology.Group]*counts{}, memberOf: map[*podclass.Constraints]*member{}, prices: map[string]float64{},
	}
	d.findMembers()
	d.findOthers()
	if d.exclude(); !slices.ContainsFunc(d.groups, func(z *counts) bool { return !z.whole }) {
		return nil
	}
	return d
}

// Assign finds a zone for each pod, given by its class in the order of the queue, as numbers for In: -1 for pods that are
// not divided. The second result is how many pods have one.
func (d *Division) Assign(pods []*podclass.Class) (zones []int, divided int) {
	d.connect()
	d.readCounts()
	components := make([][]int, len(d.groups)) // the pods, by index
	zones = make([]int, len(pods))
	for i, c := range pods {
		zones[i] = -1
		if m := d.memberOf[c.Constraints]; m != nil && !m.groups[0].whole {
			components[m.groups[0].component] = append(components[m.groups[0].component], i)
		}
	}
	for _, list := range components {
		if len(list) < 2 {
			continue // the search finds the zone of one pod
		}
		if found := d.assign(pods, list); found != nil {
			for i, pod := range list {
				zones[pod] = found[i]
			}
			divided += len(list)
		}
	}
	return zones, divided
}

// In are the constraints of pods of the class in a zone.
func (d *Division) In(c *podclass.Class, zone int) *podclass.Constraints {
	return d.memberOf[c.Constraints].in[zone]
}

// findMembers lists the constraint classes with a spread over zones, and their groups.
func (d *Division) findMembers() {
	seen := map[*podclass.Constraints]bool{}
	for _, c := range d.Classes {
		k := c.Constraints
		if seen[k] || len(k.Levels()) == 0 {
			continue
		}
		seen[k] = true
		var groups []*counts
		for _, v := range k.Views(k.Levels()[0]) {
			if v.Type() == topology.Spread && v.Key() == corev1.LabelTopologyZone && !slices.Contains(groups, d.counts[v.Group()]) {
				z := d.countsOf(v.Group())
				z.whole = z.whole || !slices.Contains(k.Levels()[d.LeastKept(k)].Groups(), v.Group())
				groups = append(groups, z)
			}
		}
		if len(groups) > 0 {
			m := &member{k: k, groups: groups}
			d.members, d.memberOf[k] = append(d.members, m), m
		}
	}
}

// findOthers marks groups as whole that count pods which they do not spread.
func (d *Division) findOthers() {
	if len(d.members) == 0 {
		return
	}
	for _, c := range d.Classes {
		for _, g := range c.Matches() {
			if z := d.counts[g]; z != nil && !z.whole {
				m := d.memberOf[c.Constraints]
				z.whole = m == nil || !slices.Contains(m.groups, z)
			}
		}
	}
}

// countsOf returns the state of the group.
func (d *Division) countsOf(g *topology.Group) *counts {
	z := d.counts[g]
	if z == nil {
		z = &counts{g: g, component: len(d.groups), whole: d.Whole[g] || g.CountsDaemons()}
		d.counts[g] = z
		d.groups = append(d.groups, z)
	}
	return z
}

// exclude marks the groups that must stay whole: those with a pod that another rule on zones concerns, and then those
// that share pods with them.
func (d *Division) exclude() {
	for changed := true; changed; {
		changed = false
		for _, m := range d.members {
			if !slices.ContainsFunc(m.groups, func(z *counts) bool { return z.whole }) && m.k.OnlySpreadsOverZones(d.LeastKept(m.k)) {
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
func (d *Division) connect() {
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
