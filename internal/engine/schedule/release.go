package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// release lets the spreads of waiting pods go on without domains in which nothing can be launched after all, once
// nothing else lets a pod be placed: limits, ports or volumes may have kept new nodes out of them. The queue is the
// waiting pods. It returns whether anything changed.
//
// Cost: existing and planned nodes, for each domain of these spreads that has no pods.
func (r *run) release(queue []*queuedPod) bool {
	seen, changed := map[*topology.Group]bool{}, false
	if slices.ContainsFunc(queue, func(q *queuedPod) bool { return q.class.whole != nil }) {
		return false // the run is repeated without the division
	}
	planned := r.bins.NewNodes()
	for _, q := range queue {
		if r.shareSpent(q.class) {
			continue
		}
		began := r.steps
		for _, g := range q.class.Levels()[len(q.class.Levels())-1].Groups() {
			if !seen[g] {
				seen[g] = true
				r.steps += len(planned)
				changed = r.topology.Release(g, planned) || changed
			}
		}
		if q.class.ManyTerms() {
			r.chargeSteps(q.class, r.steps-began)
		}
	}
	if changed {
		r.generation++
	}
	return changed
}

// nominatedTooMany reports whether pods in flight are too many beside the domain of a new node. The plan that launched their nodes gave up
// domains in which no node was. The run is repeated without these then: see releaseForNominated.
//
// Cost: that of topology.Registry.Exceeds, for each spread of nominated pods.
func (r *run) nominatedTooMany() (repeat bool) {
	if r.besideNominated || len(r.nominated) == 0 || r.bins.Len() == 0 {
		return false
	}
	planned, made := r.bins.NewNodes(), map[*topology.Group]bool{}
	for _, b := range r.bins.All() {
		for c := range b.Contents() {
			for _, g := range c.Levels()[len(c.Levels())-1].Groups() {
				made[g] = true // only for pods of the spread itself may there be another domain
			}
		}
	}
	r.eachNominatedSpread(func(g *topology.Group) {
		r.steps += len(planned)
		r.besideNominated = r.besideNominated || made[g] && r.topology.Exceeds(g, planned)
	})
	return r.besideNominated
}

// releaseForNominated lets the spreads of nominated pods go on without domains in which no node is: a new node makes one again only where
// these pods are not too many beside it.
func (r *run) releaseForNominated() {
	if r.besideNominated {
		r.eachNominatedSpread(func(g *topology.Group) { r.topology.Release(g, nil) })
	}
}

// eachNominatedSpread visits the spreads over domains of nominated pods.
func (r *run) eachNominatedSpread(visit func(*topology.Group)) {
	seen := map[*topology.Group]bool{}
	for _, c := range r.nominated {
		for _, g := range c.Levels()[len(c.Levels())-1].Groups() {
			if g.Type() == topology.Spread && !g.OverHosts() && !seen[g] {
				seen[g] = true
				visit(g)
			}
		}
	}
}

// intrusions finds the spreads with pods that are too many once nodes for other pods make a domain. It keeps such nodes out of there; where
// that cannot be, the run is repeated with all such domains counted. It returns whether it is to be. No pod is placed in this run any
// more.
//
// Cost: planned nodes, for each domain in which only nodes for other pods can be launched.
func (r *run) intrusions() (repeat bool) {
	if r.countForeign || r.bins.Len() == 0 {
		return false
	}
	var planned []topology.NewNode
	for _, g := range r.topology.Groups() {
		if !g.HasForeign() {
			continue
		}
		if planned == nil {
			planned = r.bins.NewNodes()
		}
		intruders := r.topology.Intruders(g, planned)
		for _, i := range intruders {
			kept, checked := r.bins.KeepOut(i)
			if r.steps += stepsPerCheck * checked; !kept {
				r.countForeign = true
				return true
			}
		}
		if len(intruders) > 0 {
			planned = r.bins.NewNodes()
		}
	}
	return false
}

// hostsTooFull finds the spreads over hosts that count on more pods on each host than new nodes have, and has them
// count on less. It returns whether the run is to be repeated with that.
//
// Cost: planned and existing nodes, for each spread that counts on the pods of existing hosts.
func (r *run) hostsTooFull() (repeat bool) {
	if r.bins.Len() == 0 || !slices.ContainsFunc(r.topology.Groups(), (*topology.Group).CountsOnHosts) {
		return false
	}
	planned, seen := r.bins.NewNodes(), map[*topology.Group]bool{}
	for _, c := range r.classes {
		if len(c.Levels()) == 0 {
			continue
		}
		for _, g := range c.Levels()[len(c.Levels())-1].Groups() {
			if seen[g] || !g.CountsOnHosts() {
				continue
			}
			seen[g] = true
			r.steps += len(planned)
			repeat = r.topology.LowerHostFloors(g, planned) || repeat
		}
	}
	return repeat
}

// keepEntangledHosts has spreads over hosts count on no pods of existing hosts if some pod that they count may have to
// wait for others by another rule: then each pod might wait for another. The same holds if a pod that declares one is
// not counted by it, so that its host shows no pod of the plan.
//
// Cost: one pass over the pods.
func (sv *solver) keepEntangledHosts(queue []*queuedPod) {
	if !slices.ContainsFunc(sv.topology.Groups(), (*topology.Group).SpreadsOverHosts) {
		return
	}
	seen := map[*class]bool{}
	for _, q := range queue {
		if seen[q.class] || len(q.class.Levels()) == 0 {
			continue
		}
		seen[q.class] = true
		required := q.class.Levels()[len(q.class.Levels())-1].Groups()
		for _, g := range required {
			if g.SpreadsOverHosts() && !slices.Contains(q.class.Matches(), g) {
				sv.topology.CountNoHosts(g)
			}
		}
		for _, g := range q.class.Matches() {
			if g.SpreadsOverHosts() && slices.ContainsFunc(required, func(other *topology.Group) bool { return other != g && other.NeedsDomain() }) {
				sv.topology.CountNoHosts(g)
			}
		}
	}
}
