package consolidate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Invalid states why a command must not be carried out any more.
type Invalid struct {
	Kind InvalidKind
	// Message is the message.
	Message string
}

// InvalidKind describes what has changed, as events name it.
type InvalidKind string

// Error is the message.
func (i *Invalid) Error() string { return i.Message }

const (
	Churn      InvalidKind = "churn"      // a candidate is gone, or has changed
	Scheduling InvalidKind = "scheduling" // pods no longer fit, or a launch is no longer possible or cheaper
)

// Recheck validates a command that was found on an earlier snapshot, on this one, of which p is the Problem (see
// Compile): its candidates exist, each type that its launches may become is still available, for less than the price
// of the removed nodes, and all pods that have to move, new ones too, fit on the launch that was planned for them, or
// on existing nodes. The error is an *Invalid. A valid command stays applied to p, so that the next is validated
// beside it, until p.Release is called.
func Recheck(p *schedule.Problem, s *snapshot.Snapshot, c *disrupt.Command, st Settings) error {
	x := newSearch(p, s, nil, st)
	// These two come first, since they take no simulation.
	removed, err := x.currentNodes(c)
	if err != nil {
		return err
	}
	if err := x.stillCheaper(removed, c.Plan.Launches); err != nil {
		return err
	}
	// Pending pods have the room before pods that could stay where they are. Once: later commands find the plan applied.
	if p.AppliedPlans() == 0 {
		x.placePending()
	}
	x.sortNodes()
	// Pods move as planned, as far as they still fit there; or else to any node. As planned first, since what was simulated
	// together fits together: any other choice may fill the node that a pod with more requirements needs.
	onLaunch := launchPods(c.Plan.Launches)
	pods := podsWithoutLaunch(removed, onLaunch)
	mark := p.AppliedPlans()
	if x.placeOnExisting(removed, &c.Plan, x.placeAsPlanned(removed, &c.Plan, pods), onLaunch) == nil {
		return nil
	}
	p.RevertTo(mark)
	x.applyLaunches(removed, &c.Plan)
	if err := x.placeOnExisting(removed, &c.Plan, pods, onLaunch); err != nil {
		p.RevertTo(mark)
		return err
	}
	return nil
}

// applyLaunches applies the plan's launches to the problem, and nothing else of it.
func (x *search) applyLaunches(removed []*node, planned *schedule.Plan) {
	q := x.removalQuestion(removed, nil, true)
	// A plan without placements: whether pods still fit on existing nodes is the question, and has no answer yet.
	x.problem.Apply(schedule.Simulation{Removed: q.Removed}, &schedule.Plan{Launches: planned.Launches})
}

// placeOnExisting places the pods on existing nodes, and applies that to the problem. It returns an error if they do
// not fit.
func (x *search) placeOnExisting(removed []*node, planned *schedule.Plan, pods []*corev1.Pod, onLaunch map[types.UID]bool) error {
	q := x.removalQuestion(removed, x.destinationsFor(removed, planned), true)
	// A launch besides those of the command would cost what stillCheaper has not counted.
	q.Pods, q.ExistingNodesOnly = pods, true
	plan := x.simulate(q)
	// A pending pod that was placed on a removed node may be planned for a launch as well.
	plan.Rejected = filtered(plan.Rejected, func(r schedule.Rejection) bool { return !onLaunch[r.Pod.UID] })
	if _, why := x.unschedulable(&plan, x.origins(removed)); why.Reason != "" {
		return &Invalid{Scheduling, why.Message}
	}
	x.problem.Apply(schedule.Simulation{Removed: q.Removed}, &plan)
	return nil
}

// placeAsPlanned places the pods on the nodes that the plan names, as far as they fit, node by node. It returns the
// others. Rounds repeat as long as one places a pod; each costs one simulation per node that still has pods to take.
func (x *search) placeAsPlanned(removed []*node, planned *schedule.Plan, pods []*corev1.Pod) []*corev1.Pod {
	at := map[types.UID]int{}
	for _, pl := range planned.Placements {
		// unschedulable accepts no claim without an initialized node, so pods that were to go there look for another.
		if i := x.nodeIndex(pl); i >= 0 && x.snap.Nodes[i].Usable() {
			for _, pod := range pl.Pods {
				at[pod.UID] = i
			}
		}
	}
	by := map[int][]*corev1.Pod{}
	var rest []*corev1.Pod
	for _, pod := range pods {
		if i, ok := at[pod.UID]; ok {
			by[i] = append(by[i], pod)
		} else {
			rest = append(rest, pod)
		}
	}
	x.applyLaunches(removed, planned) // first, since pods on them may be what others have affinity to
	for progress := true; progress; { // one pod may need another on its node (affinity)
		progress = false
		for _, i := range x.destinationsFor(removed, planned) {
			if len(by[i]) == 0 {
				continue
			}
			q := x.removalQuestion(removed, []int{i}, true)
			q.Pods, q.ExistingNodesOnly = by[i], true
			plan := x.simulate(q)
			plan.Rejected = nil // a pending pod that Apply finds in the plan, even as rejected, is not planned again
			x.problem.Apply(schedule.Simulation{Removed: q.Removed}, &plan)
			there := map[types.UID]bool{}
			for _, pl := range plan.Placements {
				for _, pod := range pl.Pods {
					there[pod.UID], progress = true, true
				}
			}
			by[i] = filtered(by[i], func(pod *corev1.Pod) bool { return !there[pod.UID] })
		}
	}
	for _, i := range slices.Sorted(maps.Keys(by)) { // equal snapshots must give equal answers
		rest = append(rest, by[i]...)
	}
	return rest
}

// currentNodes finds the command's candidates in the snapshot.
func (x *search) currentNodes(c *disrupt.Command) ([]*node, error) {
	budgets := snapshot.Budgets(x.snap.PDBs)
	var removed []*node
	for _, old := range c.Candidates {
		i := x.nodeIndex(schedule.Placement{Node: old.Node.Name, Claim: old.Node.Claim})
		if i < 0 || x.snap.Nodes[i].Deleting {
			return nil, &Invalid{Churn, fmt.Sprintf("node %s is deleted or deleting", old.Node.Name)}
		}
		// A copy, since indices and pods of the command are those of the snapshot that it was found on. Pods that have come
		// to the node since then have to move, too.
		fresh := *old
		fresh.Index, fresh.Node, fresh.Pods = i, &x.snap.Nodes[i], nil
		for _, pod := range fresh.Node.Pods {
			if snapshot.CurrentlyReschedulable(pod, budgets, x.snap.Now) {
				fresh.Pods = append(fresh.Pods, pod)
			}
		}
		n := &node{Candidate: &fresh}
		removed = append(removed, n)
		x.byIndex[i] = n
	}
	return removed, nil
}

// stillCheaper checks that the launches cost less than the removed nodes, at the highest current price of each.
func (x *search) stillCheaper(removed []*node, launches []schedule.Launch) error {
	if len(launches) == 0 {
		return nil
	}
	oldPrice, newPrice := 0.0, 0.0
	for _, n := range removed {
		oldPrice += x.currentPrice(n.Candidate)
	}
	for i := range launches {
		l := &launches[i]
		at := slices.IndexFunc(x.snap.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == l.Pool.Name })
		if at < 0 {
			return &Invalid{Scheduling, fmt.Sprintf("NodePool %q cannot launch", l.Pool.Name)}
		}
		// EC2 takes any of the types that the launch names: the most expensive decides, and each must still be there.
		most := 0.0
		for _, old := range l.InstanceTypes {
			k := slices.IndexFunc(x.snap.Pools[at].InstanceTypes, func(it *catalog.InstanceType) bool { return it.Name == old.Name })
			if k < 0 {
				return &Invalid{Scheduling, fmt.Sprintf("instance type %s cannot be launched", old.Name)}
			}
			it := x.snap.Pools[at].InstanceTypes[k]
			if _, ok := it.Cheapest(l.Requirements); !ok {
				return &Invalid{Scheduling, fmt.Sprintf("instance type %s cannot be launched", old.Name)}
			}
			most = max(most, worstPrice(it, l.Requirements))
		}
		newPrice += most
	}
	if newPrice >= oldPrice {
		return &Invalid{Scheduling, notCheaper().Message}
	}
	return nil
}

// currentPrice returns what the candidate costs in this snapshot; what it cost when the command was found, if that is
// unknown.
func (x *search) currentPrice(c *disrupt.Candidate) float64 {
	for i := range x.snap.Pools {
		if x.snap.Pools[i].NodePool.Name != c.Pool.Name || c.Type == nil {
			continue
		}
		for _, it := range x.snap.Pools[i].InstanceTypes {
			if it.Name != c.Type.Name {
				continue
			}
			for _, o := range it.Offerings {
				if o.Zone == c.Zone && o.CapacityType == c.CapacityType {
					return o.Price
				}
			}
		}
	}
	return c.Price
}

// launchPods are the pods that the launches are planned for.
func launchPods(launches []schedule.Launch) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range launches {
		for _, pod := range launches[i].Pods {
			out[pod.UID] = true
		}
	}
	return out
}

// podsWithoutLaunch are the nodes' pods that no launch is planned for.
func podsWithoutLaunch(removed []*node, onLaunch map[types.UID]bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, n := range removed {
		out = append(out, filtered(n.Pods, func(pod *corev1.Pod) bool { return !onLaunch[pod.UID] })...)
	}
	return out
}

// destinationsFor are the open nodes that stay, those first that the plan moves pods to.
func (x *search) destinationsFor(removed []*node, plan *schedule.Plan) []int {
	planned := map[int]bool{}
	for _, pl := range plan.Placements {
		planned[x.nodeIndex(pl)] = true
	}
	// Simulations fill nodes in this order: a pod goes where it was planned, unless that is full now.
	var first, others []int
	for _, i := range x.destinations {
		switch n := x.byIndex[i]; {
		case n != nil && (n.removed || slices.Contains(removed, n)):
		case planned[i]:
			first = append(first, i)
		default:
			others = append(others, i)
		}
	}
	return append(first, others...)
}
