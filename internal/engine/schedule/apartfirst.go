package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

const (
	// decisiveShare is the share of a plan's new nodes that the pods of one host rule need at least if the rule is to be
	// called decisive. Of diverse workloads with 20 to 1000 of 5000 pods kept apart, apartFirst makes those cheaper in
	// which the rule needs 0.55 of the nodes or more (2 to 16 %), and none below.
	decisiveShare = 0.5
	// overwhelming is how many times the nodes of the linear program, which knows no host rules, the pods of one rule need
	// if balanced is not worth a try. In the same workloads apartFirst is at least 4 % cheaper from 20 times on. Below,
	// either can be cheaper.
	overwhelming = 20
)

// decisiveHostRules are the host rules with pods that need at least decisiveShare of the plan's new nodes, if the plan costs
// more than its bound: the nodes that sizing chose may have left too little for those that hold one of these pods.
func (sv *solver) decisiveHostRules(queue []*queuedPod, o *outcome) map[*topology.Group]bool {
	if o.cost <= o.Stats.LowerBound*similarCost {
		return nil
	}
	return sv.hostRulesFrom(queue, decisiveShare*float64(len(o.Launches)))
}

// overwhelmingHostRules are the host rules that need so many nodes that apartFirst is the strategy, in queues for which
// not all strategies run.
func (r *run) overwhelmingHostRules(queue []*queuedPod) map[*topology.Group]bool {
	program := r.prices.market.Program()
	if program == nil || len(queue) <= maxPodsForAllStrategies {
		return nil
	}
	return r.hostRulesFrom(queue, overwhelming*program.Nodes())
}

// hostRulesFrom are the host rules with pods that need at least so many nodes.
//
// Cost: one pass over the pods, if there are host rules.
func (sv *solver) hostRulesFrom(queue []*queuedPod, nodes float64) map[*topology.Group]bool {
	if !slices.ContainsFunc(sv.topology.Groups(), (*topology.Group).KeepsApartOnHosts) {
		return nil
	}
	counts := map[*class]int{}
	for _, q := range queue {
		counts[q.class]++
	}
	pods, most := map[*topology.Group]int{}, map[*topology.Group]int{}
	for c, n := range counts {
		c.eachHostRule(func(g *topology.Group, perNode int) {
			pods[g] += n
			most[g] = perNode
		})
	}
	out := map[*topology.Group]bool{}
	for g, n := range pods {
		if float64(n) >= nodes*float64(most[g]) {
			out[g] = true
		}
	}
	return out
}

// eachHostRule visits the required rules by which pods of the class keep apart on hosts, with how many of them one node
// may hold.
func (c *class) eachHostRule(visit func(g *topology.Group, perNode int)) {
	if len(c.Levels()) == 0 {
		return
	}
	views := c.Views(c.Levels()[len(c.Levels())-1])
	for i := range views {
		if most := views[i].MostOnHost(); most > 0 {
			visit(views[i].Group(), most)
		}
	}
}

// sizedAlone reports whether apartFirst chooses a new node for a pod of the class by that pod alone: see sizing.Sizer.Alone.
func (r *run) sizedAlone(c *class) (alone bool) {
	c.eachHostRule(func(g *topology.Group, _ int) { alone = alone || r.apart[g] })
	return alone
}

// apartFirst is the queue with the pods at its front that host rules keep apart.
//
// These pods force nodes, and any node has a place for one of them. So each opens a node that is cheap for it alone,
// and the other pods fill these nodes, in the order of the queue, before a node is sized for them. In the order of the queue,
// by contrast, the first nodes are large ones, filled with the small pods that could have filled the forced nodes; dual
// prices do not show it, since the linear program divides pods, and large parts fill any room.
func (r *run) apartFirst(queue []*queuedPod) []*queuedPod {
	front, rest := make([]*queuedPod, 0, len(queue)), []*queuedPod(nil)
	for _, q := range queue {
		if r.sizedAlone(q.class) {
			front = append(front, q)
		} else {
			rest = append(rest, q)
		}
	}
	return append(front, rest...)
}
