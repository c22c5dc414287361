package consolidate

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// move is a set of nodes that end, and the part of a plan that takes them in.
type move struct {
	gone     []*node
	plan     schedule.Plan
	savings  float64
	verdicts []disrupt.Verdict
}

// pods is how many have to move.
func (m *move) pods() int {
	n := 0
	for _, c := range m.gone {
		n += len(c.Pods)
	}
	return n
}

// cost is what the move disturbs.
func (m *move) cost() float64 {
	total := 0.0
	for _, c := range m.gone {
		total += c.Cost
	}
	return total
}

// refusal is why nodes cannot be ended together.
type refusal struct {
	why string
	// quiet reasons are not told in events.
	quiet bool
	// fault are the nodes that are at fault; nil if all are.
	fault []*node
}

// question asks to end the nodes.
func (x *search) question(gone []*node, into []int, plain bool) schedule.Question {
	q := schedule.Question{Into: into, Budget: schedule.Bounded()}
	q.Budget.Plain = plain
	for _, n := range gone {
		n.examined = true
		q.Gone = append(q.Gone, n.Index)
		q.Pods = append(q.Pods, n.Pods...)
	}
	return q
}

// homes tells of each pod that has to move which of the nodes it leaves: its own pods, and those pending ones that were
// to come there.
func (x *search) homes(gone []*node) map[*corev1.Pod]*node {
	out := map[*corev1.Pod]*node{}
	for _, n := range gone {
		for _, p := range n.Pods {
			out[p] = n
		}
		for _, p := range x.waiting[n.Index] {
			out[p] = n
		}
	}
	return out
}

// homeless are the nodes whose pods the plan has no place for that counts, and why.
func (x *search) homeless(plan *schedule.Plan, homes map[*corev1.Pod]*node) ([]*node, string) {
	var fault []*node
	at := func(p *corev1.Pod) {
		if n := homes[p]; n != nil && !slices.Contains(fault, n) {
			fault = append(fault, n)
		}
	}
	rejected := slices.Clone(plan.Rejected)
	for _, pl := range plan.Placements {
		i := x.find(pl)
		if i < 0 || x.s.Nodes[i].Initialized || x.s.Nodes[i].Claim == "" {
			continue
		}
		for _, p := range pl.Pods {
			if n := homes[p]; n != nil && slices.Contains(n.Pods, p) {
				rejected = append(rejected, schedule.Rejection{Pod: p, Reasons: []schedule.Reason{{
					Message: fmt.Sprintf("would schedule against uninitialized nodeclaim/%s, node/%s", pl.Claim, pl.Node),
				}}})
			}
		}
	}
	if len(rejected) == 0 {
		return nil, ""
	}
	for _, r := range rejected {
		at(r.Pod)
	}
	return fault, unscheduled(rejected)
}

// find is the index of a placement's node.
func (x *search) find(pl schedule.Placement) int {
	if x.names == nil {
		x.names = make(map[[2]string]int, len(x.s.Nodes))
		for i := range x.s.Nodes {
			x.names[[2]string{x.s.Nodes[i].Name, x.s.Nodes[i].Claim}] = i
		}
	}
	if i, ok := x.names[[2]string{pl.Node, pl.Claim}]; ok {
		return i
	}
	return -1
}

// split takes a plan apart into the parts that share no new node. Nodes whose pods all go to nodes that exist come first,
// each by itself.
func split(gone []*node, plan *schedule.Plan, homes map[*corev1.Pod]*node) []*move {
	root, buys := sharing(plan, homes)
	parts := map[*node]*move{}
	var deletes, replaces []*move
	for _, n := range gone {
		r := root(n)
		m := parts[r]
		if m == nil {
			m = &move{}
			parts[r] = m
			if buys[n] {
				replaces = append(replaces, m)
			} else {
				deletes = append(deletes, m)
			}
		}
		m.gone = append(m.gone, n)
	}
	of := func(p *corev1.Pod) *move { // nil for pods that do not have to move
		if n := homes[p]; n != nil {
			return parts[root(n)]
		}
		return nil
	}
	for _, pl := range plan.Placements {
		var seen []*move
		for _, p := range pl.Pods {
			m := of(p)
			if m == nil || slices.Contains(seen, m) {
				continue
			}
			seen = append(seen, m)
			own := schedule.Placement{Node: pl.Node, Claim: pl.Claim, Pods: only(pl.Pods, func(p *corev1.Pod) bool { return of(p) == m })}
			for _, d := range pl.Devices {
				if of(d.Pod) == m {
					own.Devices = append(own.Devices, d)
				}
			}
			m.plan.Placements = append(m.plan.Placements, own)
		}
	}
	for i := range plan.Launches {
		for _, p := range plan.Launches[i].Pods {
			if m := of(p); m != nil {
				m.plan.Launches = append(m.plan.Launches, plan.Launches[i])
				break
			}
		}
	}
	return append(deletes, replaces...)
}

// sharing tells which nodes have pods that go to the same launches: such have the same root. buys are those with pods that go
// to any.
func sharing(plan *schedule.Plan, homes map[*corev1.Pod]*node) (root func(*node) *node, buys map[*node]bool) {
	parent := map[*node]*node{}
	root = func(n *node) *node {
		if parent[n] == nil || parent[n] == n {
			return n
		}
		parent[n] = root(parent[n])
		return parent[n]
	}
	buys = map[*node]bool{}
	for i := range plan.Launches {
		var first *node
		for _, p := range plan.Launches[i].Pods {
			n := homes[p]
			if n == nil {
				continue
			}
			buys[n] = true
			if first == nil {
				first = root(n)
			} else if r := root(n); r != first {
				parent[r] = first
			}
		}
	}
	return root, buys
}

func only[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(t T) bool { return !keep(t) })
}

// judge applies all rules to a move whose pods have their places. It narrows the launches and counts what is saved.
func (x *search) judge(m *move) *refusal {
	price := 0.0
	for _, n := range m.gone {
		price += n.Price
	}
	if x.devices && x.givesDevices(m) {
		return &refusal{why: "Devices are given out by another command first", quiet: true}
	}
	m.savings = price
	if len(m.plan.Launches) > 0 {
		if len(m.gone) == 1 && len(m.plan.Launches) > 1 {
			return &refusal{why: fmt.Sprintf("Can't remove without creating %d candidates", len(m.plan.Launches))}
		}
		launches, equals, why := x.narrow(m.gone, m.plan.Launches)
		if why != "" {
			return &refusal{why: why, fault: equals}
		}
		m.plan.Launches = launches
		for i := range launches {
			m.savings -= launches[i].Offering.Price
		}
		if r := x.worthwhile(m, price); r != nil {
			return r
		}
	}
	verdicts, approved := x.verdicts(m.gone, m.savings)
	m.verdicts = verdicts
	if !approved {
		x.reject(m)
		return &refusal{why: "It would disturb more than it saves", quiet: true}
	}
	m.plan.Stats = schedule.Stats{}
	for i := range m.plan.Launches {
		m.plan.Stats.HourlyCost += m.plan.Launches[i].Offering.Price
		m.plan.Stats.NodeCost += x.s.Settings.NodeCost
	}
	m.plan.Stats.Pods = m.pods()
	return nil
}

// reject remembers a move that some pool does not approve of.
func (x *search) reject(m *move) {
	if len(m.gone) == 1 {
		x.rejected[m.gone[0]] = m
	} else {
		x.several = m
	}
}

const (
	// bootTime is for how long a node and its replacement are paid for both.
	bootTime = 3 * time.Minute
	// young is until when a node's age says how long it may be needed.
	young = time.Hour
	// slight is the share of its price below which ending several nodes at once, or for several, is not worth the moving.
	slight = 0.05
)

// worthwhile refuses what saves too little to repay the time in which both the nodes and what replaces them are paid for. How
// long a node will be needed is not known; what has been needed for a minute may well be needed for just one more, so
// it must repay within the age of the youngest node, until that is old enough.
func (x *search) worthwhile(m *move, price float64) *refusal {
	launched := price - m.savings
	for _, n := range m.gone {
		age := x.s.Now.Sub(n.Node.CreatedAt)
		if n.Node.CreatedAt.IsZero() || age >= young {
			continue
		}
		if m.savings*max(age, 0).Hours() < launched*bootTime.Hours() {
			return &refusal{why: fmt.Sprintf("Node is young: replacing it would not pay for itself within its age of %s", age.Round(time.Second)), quiet: true, fault: []*node{n}}
		}
	}
	besides := x.s.Settings.NodeCost * float64(len(m.plan.Launches)-len(m.gone))
	if m.savings-besides <= 0 || len(m.gone) > 1 && m.savings-besides < slight*price {
		return &refusal{why: notCheaper}
	}
	return nil
}

func (x *search) givesDevices(m *move) bool {
	return slices.ContainsFunc(m.plan.Placements, func(p schedule.Placement) bool { return len(p.Devices) > 0 }) ||
		slices.ContainsFunc(m.plan.Launches, func(l schedule.Launch) bool { return len(l.Devices) > 0 })
}

// accept has the move hold.
func (x *search) accept(m *move) {
	q := schedule.Question{}
	for _, n := range m.gone {
		n.ends = true
		q.Gone = append(q.Gone, n.Index)
		x.budget[n.Pool.Name]--
	}
	x.devices = x.devices || x.givesDevices(m)
	x.p.Hold(q, &m.plan)
	for _, pl := range m.plan.Placements {
		if i := x.find(pl); i >= 0 && x.byIndex[i] != nil {
			n := x.byIndex[i]
			n.host, n.examined, n.why, n.quiet = true, true, "It takes in pods of nodes that end", true
		}
	}
	x.moves = append(x.moves, m)
}
