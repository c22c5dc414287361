package schedule

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// domainEstimate is what is known of a domain of a group before a plan for it.
type domainEstimate struct {
	value string
	// placeable is how many of the group's pods may find a place there, each alone.
	placeable int
	// existing is true if existing nodes there have room for some of them, and cost what nodes for the others cost at least, about, in $/h.
	existing bool
	cost     float64
}

// better orders domains: those where more pods may find a place first, then those with room on existing nodes, then by cost.
func (a domainEstimate) better(b domainEstimate) int {
	room := func(e domainEstimate) int {
		if e.existing {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.placeable, a.placeable), cmp.Compare(room(a), room(b)), cmp.Compare(a.cost, b.cost),
		cmp.Compare(a.value, b.value))
}

// domainOrder finds the domains of groups, and in which order they are tried.
type domainOrder struct {
	sv    *solver
	queue []*queuedPod
}

// of are the domains of the group that may hold enough of its pods, the most promising first. If none may, the best of them is left, so
// that a plan shows what is missing, and promising is false. Nodes that wait for pods of the group leave no choice: their pods stay there.
func (d *domainOrder) of(g *snapshot.Group) (values []string, promising bool) {
	if value, started := d.startedIn(g); started {
		return []string{value}, true
	}
	classes, pods := map[*class]int{}, 0
	for _, q := range d.queue {
		if d.sv.groups.Of(q.pod) == g {
			classes[q.class]++
			pods++
		}
	}
	all := d.known(g.TopologyKey)
	for c, n := range classes {
		d.add(all, g.TopologyKey, c, n)
	}
	order := make([]domainEstimate, 0, len(all))
	for _, e := range all {
		order = append(order, *e)
	}
	slices.SortFunc(order, domainEstimate.better)
	enough := max(1, min(g.Need(0), pods))
	for _, e := range order {
		if promising = promising || e.placeable >= enough; e.placeable >= enough || !promising && len(values) == 0 {
			values = append(values, e.value)
		}
	}
	return values, promising
}

// startedIn is the first domain with a node that waits for pods of the group.
func (d *domainOrder) startedIn(g *snapshot.Group) (string, bool) {
	first, started := "", false
	for i := range d.sv.s.Nodes {
		n := &d.sv.s.Nodes[i]
		value, known := domainOf(d.sv.s, n, g.TopologyKey)
		if n.Deleting || !known || started && value >= first {
			continue
		}
		if slices.ContainsFunc(d.sv.s.Pods, func(p *corev1.Pod) bool {
			return d.sv.groups.Of(p) == g && slices.Contains(n.Nominated, p.UID) && n.KeepsNominated(p.UID)
		}) {
			first, started = value, true
		}
	}
	return first, started
}

// known are the values of the label that nodes have, or that new ones can be launched with.
func (d *domainOrder) known(key string) map[string]*domainEstimate {
	out := map[string]*domainEstimate{}
	for i := range d.sv.s.Nodes {
		n := &d.sv.s.Nodes[i]
		if value, known := domainOf(d.sv.s, n, key); known && !n.Deleting {
			out[value] = &domainEstimate{value: value}
		}
	}
	for _, t := range d.sv.pools.All() {
		for _, value := range t.Values(key) {
			out[value] = &domainEstimate{value: value}
		}
	}
	return out
}

// add counts what n pods of a class find in each domain.
func (d *domainOrder) add(all map[string]*domainEstimate, key string, c *class, n int) {
	if len(c.Invalid()) > 0 {
		return
	}
	room, cost := d.room(key, c), d.launchable(key, c, n)
	for value, e := range all {
		there := min(n, room[value])
		e.existing = e.existing || there > 0
		if price, launchable := cost[value]; launchable {
			e.placeable += n
			e.cost += price * float64(n-there) / float64(n)
		} else {
			e.placeable += there
		}
	}
}

// room is how many pods of the class existing nodes hold besides theirs, by domain.
func (d *domainOrder) room(key string, c *class) map[string]int {
	out := map[string]int{}
	for _, n := range d.sv.nodes.All() {
		value, has := n.Source().Labels[key]
		if has && slices.ContainsFunc(c.Levels(), func(level *podclass.Level) bool { // each may have another alternative of what is required
			ok, never := d.sv.nodes.CanJoin(n, c.Class, level)
			return ok || !never
		}) {
			out[value] += hostsOne(c, lastLevel(c), c.Requests().TimesIn(n.Free()))
		}
	}
	return out
}

// launchable is what new nodes for n pods of the class cost at least, about, by domain, in $/h. A domain without a node that has room for
// one is not in it.
func (d *domainOrder) launchable(key string, c *class, n int) map[string]float64 {
	out := map[string]float64{}
	nodes := func(room resources.Vec) int {
		fit := hostsOne(c, lastLevel(c), c.Requests().TimesIn(room))
		if fit == 0 {
			return 0
		}
		return (n + fit - 1) / fit
	}
	for cands := range d.candidates(c) {
		for _, volume := range c.Volumes() {
			with := cands.Narrow(volume)
			if with == nil {
				continue
			}
			for value, cost := range with.CheapestByDomain(key, nodes) {
				if before, has := out[value]; !has || cost < before {
					out[value] = cost
				}
			}
		}
	}
	return out
}

// candidates are those for new nodes for the class, by pool and by what its levels require.
func (d *domainOrder) candidates(c *class) iter.Seq[*nodepool.Candidates] {
	return func(yield func(*nodepool.Candidates) bool) {
		for _, t := range d.sv.pools.All() {
			var seen []*nodepool.Candidates
			for _, level := range c.Levels() {
				cands := t.Candidates(t.Requirements()).Narrow(level.InternedFull())
				if cands == nil || level.Blocked().Has(t.Index()) || slices.Contains(seen, cands) {
					continue
				}
				if seen = append(seen, cands); !yield(cands) {
					return
				}
			}
		}
	}
}

// lastLevel is what the pods of the class require once all of their preferences are dropped.
func lastLevel(c *class) *podclass.Level { return c.Levels()[len(c.Levels())-1] }

// hostsOne is how many pods of the class a node takes that has room for so many.
func hostsOne(c *class, level *podclass.Level, room int) int {
	if slices.ContainsFunc(c.Views(level), func(v topology.View) bool { return v.OverHosts() && v.KeepsApart() }) {
		return min(room, 1)
	}
	return room
}

// domainOf is the value of the key on a node, or the only one that the node of a claim can have.
func domainOf(s *snapshot.Snapshot, n *snapshot.Node, key string) (string, bool) {
	if value, has := n.Labels[key]; has {
		return value, true
	}
	reqs, err := s.Labels.FromAPI(n.Requirements)
	if err != nil {
		return "", false
	}
	return reqs.Get(key).Single()
}
