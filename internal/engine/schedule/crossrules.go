package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Pods without a rule over a label get nodes that may come up in several of its domains. Others that spread over the
// label wait until that is known, and kube-scheduler can take these first. It cannot where rules cross: web spreads
// over architectures and counts db, while db spreads over zones and counts web. Then each may have to come before the
// other, so a node for such pods gets its domain at once. So does a node for pods that others both follow and spread with.

// findCrossRules finds, for each class of the queue, the spreads by which pods wait for it that it waits for itself.
//
// Cost: the pods, and the groups that count each class, for each of its rules.
func (sv *solver) findCrossRules(queue []*queuedPod) {
	var classes []*class
	counted := map[*topology.Group]map[*topology.Group]bool{} // by spread: the groups that count pods that declare it
	followed := map[*topology.Group][]*topology.Group{}       // by spread: the affinity of pods that declare it
	seen := map[*class]bool{}
	for _, q := range queue {
		if c := q.class; !seen[c] {
			seen[c], c.crossed = true, nil
			classes = append(classes, c)
			c.eachWait(func(g *topology.Group) {
				if g.Type() != topology.Spread {
					return
				}
				if counted[g] == nil {
					counted[g] = map[*topology.Group]bool{}
				}
				for _, other := range c.Matches() {
					counted[g][other] = true
				}
				c.eachWait(func(other *topology.Group) {
					if other.Type() == topology.Affinity && !slices.Contains(followed[g], other) {
						followed[g] = append(followed[g], other)
					}
				})
			})
		}
	}
	if len(counted) == 0 {
		return
	}
	for _, c := range classes {
		for _, g := range c.Matches() {
			crosses, spreads := slices.ContainsFunc(followed[g], func(f *topology.Group) bool { return slices.Contains(c.Matches(), f) }), false
			if counted[g] != nil {
				c.eachWait(func(own *topology.Group) {
					crosses = crosses || own != g && counted[g][own]
					spreads = spreads || own.Spreads(g.Key())
				})
			}
			if crosses && !spreads {
				c.crossed = append(c.crossed, g)
			}
		}
	}
}

// eachWait visits the required rules by which pods of the class may wait for others: those over domains, and whom it follows onto a host.
// Pods with very many are planned last.
func (c *class) eachWait(visit func(*topology.Group)) {
	if len(c.Levels()) == 0 || c.ManyTerms() {
		return
	}
	for _, g := range c.Levels()[len(c.Levels())-1].Groups() {
		if g.NeedsDomain() && (!g.OverHosts() || g.Type() == topology.Affinity) {
			visit(g)
		}
	}
}

// decideCrossed chooses the domains of the new node that the pod is on, if it is on one, where rules cross.
func (r *run) decideCrossed(q *queuedPod) {
	b := r.bins.Last()
	for _, g := range q.class.crossed {
		if b == nil || b.Pods()[len(b.Pods())-1] != q.pod {
			return // on an existing node
		}
		_, checked := r.bins.ChooseDomain(b, g)
		r.steps += stepsPerCheck * checked
	}
}
