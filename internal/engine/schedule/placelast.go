package schedule

import (
	"maps"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Classes are placed in rounds, each once nothing more of the rounds before fits.
const (
	firstRound = iota
	// followRound: a pod that would found a domain of its own must know of all pods that it is to follow.
	followRound
	// spreadRound: a pod with a spread that counts pods of DaemonSets must know of all nodes, each of which may bring some.
	spreadRound
	// apartRound: a pod that keeps out of a domain must know of all pods there.
	apartRound
)

// placeLast finds the classes that are placed after all others: their pods follow pods of a DaemonSet in whole domains, such
// as zones, spread with them, or keep out of those in which it runs. Each new node may bring a pod of the DaemonSet to its domain.
func (sv *solver) placeLast() {
	if len(sv.topology.CountedDaemons()) == 0 {
		return
	}
	for _, c := range sv.allClasses {
		if len(c.Levels()) == 0 {
			continue
		}
		for _, v := range c.Views(c.Levels()[len(c.Levels())-1]) {
			switch {
			case v.OverHosts() || len(v.Daemons()) == 0:
			case v.KeepsApart():
				c.round = apartRound
			case v.Type() == topology.Affinity:
				c.round = max(c.round, followRound)
			default:
				c.round = max(c.round, spreadRound)
			}
		}
		sv.lastRound = max(sv.lastRound, c.round)
	}
}

// placeFirst takes back what postpone has found.
func (sv *solver) placeFirst() {
	if !sv.postponed {
		return
	}
	sv.postponed, sv.lastRound = false, firstRound
	for _, c := range sv.allClasses {
		c.round = firstRound
	}
	sv.placeLast()
}

// postpone finds the classes with a spread over domains, and with a pod on a planned node in a domain to which the plan has brought too
// many pods of others since. These come to existing nodes, and kube-scheduler binds them while the node is launched. Such classes are
// placed once the places of all others are known, from then on. It returns whether there are any.
//
// Cost: the classes; planned nodes and their classes, for each spread that counts pods on existing nodes which it does not spread.
func (r *run) postpone() (some bool) {
	if r.bins.Len() == 0 {
		return false
	}
	seen := map[*topology.Group]bool{}
	for _, c := range r.classes {
		if c.onExisting == 0 {
			continue
		}
		for _, g := range c.Matches() {
			r.steps++
			if g.Type() == topology.Spread && !g.OverHosts() && !seen[g] && !requires(c.Class, g) {
				seen[g] = true
				some = r.postponeOf(g) || some
			}
		}
	}
	return some
}

// postponeOf is postpone for the classes with the spread.
func (r *run) postponeOf(g *topology.Group) (some bool) {
	counted, spread := map[string]int{}, map[string]int{}
	r.eachPlanned(g, func(d string, c *podclass.Class, n int) {
		counts := btoi(slices.Contains(c.Matches(), g))
		counted[d] += n * counts
		spread[d] += n * counts * btoi(requires(c, g))
	})
	full := map[string]bool{}
	for d := range counted {
		full[d] = g.FillsUp(d, counted[d], spread[d])
	}
	r.eachPlanned(g, func(d string, of *podclass.Class, _ int) {
		c := r.classOf(of)
		if !full[d] || c.round >= spreadRound || !requires(of, g) {
			return
		}
		c.round, r.lastRound, r.postponed, some = spreadRound, max(r.lastRound, spreadRound), true, true
		if c.whole != nil {
			c.whole.round = spreadRound // of which the next run makes parts
		}
	})
	return some
}

// eachPlanned calls f with the classes on planned nodes, the numbers of their pods, and the group's domain, if that is known.
func (r *run) eachPlanned(g *topology.Group, f func(domain string, c *podclass.Class, pods int)) {
	for _, b := range r.bins.All() {
		d, single := b.Candidates().Domain(g.Key())
		if !single {
			continue
		}
		for c, n := range b.Contents() {
			r.steps++
			f(d, c, n)
		}
	}
}

// requires reports whether pods of the class have the constraint when all of their preferences are dropped.
func requires(c *podclass.Class, g *topology.Group) bool {
	levels := c.Levels()
	return len(levels) > 0 && slices.Contains(levels[len(levels)-1].Groups(), g)
}

// decideDaemons chooses where the last node comes up with DaemonSets' pods that count for spreads, as soon as pods spread with them.
func (r *run) decideDaemons() {
	if r.round >= spreadRound {
		r.steps += stepsPerCheck * r.bins.DecideDaemons(r.bins.Last())
	}
}

// decideAllDaemons does so for all nodes.
func (r *run) decideAllDaemons() {
	if r.round < spreadRound {
		return
	}
	for _, b := range r.bins.All() {
		r.steps += stepsPerCheck * r.bins.DecideDaemons(b)
	}
}

// forgetForesight lets waiting pods have the places that were kept for pods of DaemonSets that do not come. It returns whether there are
// any.
func (r *run) forgetForesight() bool {
	if !r.topology.ForgetForesight() {
		return false
	}
	r.generation++
	return true
}

// daemonsTooMany finds the spreads with pods that in some domain are too many with the DaemonSets' pods of nodes that were planned later,
// and has them count these from the start. It returns whether the run is to be repeated with that.
//
// Cost: planned nodes and their classes, for each spread that counts pods of DaemonSets.
func (r *run) daemonsTooMany() (repeat bool) {
	if len(r.topology.CountedDaemons()) == 0 || r.bins.Len() == 0 {
		return false
	}
	for _, g := range r.topology.Groups() {
		if !g.CountsDaemons() || g.OverHosts() {
			continue
		}
		on := map[string]topology.PlannedPods{}
		for _, b := range r.bins.All() {
			d, single := b.Candidates().Domain(g.Key())
			for c, n := range b.Contents() {
				r.steps++
				if !single {
					continue
				}
				required := c.Levels()[len(c.Levels())-1].Groups()
				pods, spread, counted := on[d], slices.Contains(required, g), slices.Contains(c.Matches(), g)
				pods.Spread, pods.Counted, pods.Both = pods.Spread+n*btoi(spread), pods.Counted+n*btoi(counted), pods.Both+n*btoi(spread && counted)
				on[d] = pods
			}
		}
		repeat = r.topology.Foresee(g, on) || repeat
	}
	return repeat
}

// foundersMisled finds the sets of pods that must be together and have a first pod that has chosen a domain, while others of the set come
// to other domains before: kube-scheduler finds these, and then only their domains will do. Nodes for other pods may bring DaemonSets' pods
// of the set, and pods on existing nodes wait for no node. Such first pods come last from then on. It returns whether there are any.
//
// Cost: the classes; planned nodes and their classes, for each affinity that counts pods of DaemonSets or of the plan on existing nodes.
func (r *run) foundersMisled() (some bool) {
	if r.bins.Len() == 0 {
		return false
	}
	onExisting := map[*topology.Group]bool{}
	for _, c := range r.classes {
		if c.onExisting == 0 {
			continue
		}
		for _, g := range c.Matches() {
			r.steps++
			onExisting[g] = onExisting[g] || g.Type() == topology.Affinity
		}
	}
	for _, g := range r.topology.Groups() {
		if g.Type() != topology.Affinity || len(g.Daemons()) == 0 && !onExisting[g] || !g.EmptyBefore() {
			continue
		}
		if len(g.Daemons()) > 0 && r.founderMisled(g) || onExisting[g] && r.foundsElsewhere(g) {
			some = r.topology.FoundLast(g) || some
		}
	}
	return some
}

// foundsElsewhere reports whether a pod of the set is on a planned node in a domain to which no pod of the set on an existing node comes,
// while one comes to another domain. Pods on nodes that are in no domain do not count for kube-scheduler.
//
// Cost: planned nodes and their classes; if there is such a pod, existing nodes and the pods of the plan there.
func (r *run) foundsElsewhere(g *topology.Group) bool {
	founded := map[string]bool{} // "" is a domain that is not known
	for _, b := range r.bins.All() {
		d, _ := b.Candidates().Domain(g.Key())
		for c := range b.Contents() {
			r.steps++
			founded[d] = founded[d] || slices.Contains(c.Matches(), g) && slices.Contains(c.Levels()[len(c.Levels())-1].Groups(), g)
		}
	}
	maps.DeleteFunc(founded, func(_ string, so bool) bool { return !so })
	if len(founded) == 0 {
		return false
	}
	r.steps += len(r.nodes.All())
	seen := false
	for _, n := range r.nodes.All() {
		for _, pod := range n.Placement().Pods {
			r.steps++
			if d, has := g.Domain(n.Topology()); has && g.Selects(pod) {
				delete(founded, d)
				seen = true
			}
		}
	}
	return seen && len(founded) > 0
}

func (r *run) founderMisled(g *topology.Group) bool {
	domains := make([]string, r.bins.Len())
	founded, led := map[string]bool{}, map[string]bool{} // domains with pods that follow the set, and with others of it
	for i, b := range r.bins.All() {
		if domains[i], _ = b.Candidates().Domain(g.Key()); g.OverHosts() {
			domains[i] = topology.HostName(i)
		}
		d := domains[i]
		led[d] = led[d] || b.Brings(g)
		for c := range b.Contents() {
			r.steps++
			follows := slices.Contains(c.Levels()[len(c.Levels())-1].Groups(), g)
			founded[d] = founded[d] || follows
			led[d] = led[d] || !follows && slices.Contains(c.Matches(), g)
		}
	}
	for i, b := range r.bins.All() {
		for d := range founded {
			if founded[d] && d != domains[i] && (!led[d] || d == "") && r.bins.MayBring(b, g) {
				return true
			}
		}
	}
	return false
}
