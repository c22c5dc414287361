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

// Invalid is why a command must not be carried out any more.
type Invalid struct {
	// Kind is churn when a candidate is not what it was, scheduling when its pods have lost their places.
	Kind, Why string
}

// Error is what has changed.
func (i *Invalid) Error() string { return i.Why }

// The kinds of Invalid, as events name them.
const (
	Churn      = "churn"
	Scheduling = "scheduling"
)

// Recheck tells whether a command that was found on an earlier snapshot is right on this one, of which p is the Problem (see
// Compile): its candidates are there, each type that its launches may become can still be had, for less than what ends, and
// all pods that have to move, be they new, have a place: on the launch that was meant for them, or on nodes there are. The
// error is an *Invalid. A command that is right holds in p from then on, so that the next is judged beside it, until
// p.Release is called.
func Recheck(p *schedule.Problem, s *snapshot.Snapshot, c *disrupt.Command, st Settings) error {
	x := newSearch(p, s, nil, st)
	gone, err := x.again(c)
	if err != nil {
		return err
	}
	if err := x.stillCheaper(gone, c.Plan.Launches); err != nil {
		return err
	}
	if p.Held() == 0 {
		x.seat()
	}
	x.order()
	if err := x.unchanged(gone, c.Plan.Launches); err != nil {
		return err
	}
	// Pods go where they were to go, as far as that is still so; or else wherever they fit.
	promised := promises(c.Plan.Launches)
	pods := unpromised(gone, promised)
	mark := p.Held()
	if x.fits(gone, &c.Plan, x.asPlanned(gone, &c.Plan, pods), promised) == nil {
		return nil
	}
	p.ReleaseTo(mark)
	x.launch(gone, &c.Plan)
	if err := x.fits(gone, &c.Plan, pods, promised); err != nil {
		p.ReleaseTo(mark)
		return err
	}
	return nil
}

// launch has the plan's launches hold, and nothing else of it.
func (x *search) launch(gone []*node, meant *schedule.Plan) {
	q := x.question(gone, nil, true)
	x.p.Hold(schedule.Question{Gone: q.Gone}, &schedule.Plan{Launches: meant.Launches})
}

// fits tells whether the pods have room on nodes that there are, and has them hold there.
func (x *search) fits(gone []*node, meant *schedule.Plan, pods []*corev1.Pod, promised map[types.UID]bool) error {
	q := x.question(gone, x.toward(gone, meant), true)
	q.Pods, q.Here = pods, true
	plan := x.ask(q)
	// Pods that were to come to a node that ends may be promised to a launch as well.
	plan.Rejected = only(plan.Rejected, func(r schedule.Rejection) bool { return !promised[r.Pod.UID] })
	if _, why := x.homeless(&plan, x.homes(gone)); why != "" {
		return &Invalid{Scheduling, why}
	}
	x.p.Hold(schedule.Question{Gone: q.Gone}, &plan)
	return nil
}

// asPlanned puts those of the pods where the plan has them go that fit there, node by node. It returns the others.
func (x *search) asPlanned(gone []*node, meant *schedule.Plan, pods []*corev1.Pod) []*corev1.Pod {
	at := map[types.UID]int{}
	for _, pl := range meant.Placements {
		if i := x.find(pl); i >= 0 && (x.s.Nodes[i].Initialized || x.s.Nodes[i].Claim == "") {
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
	x.launch(gone, meant)
	for progress := true; progress; { // one pod's place may be what another waits for
		progress = false
		for _, i := range x.toward(gone, meant) {
			if len(by[i]) == 0 {
				continue
			}
			q := x.question(gone, []int{i}, true)
			q.Pods, q.Here = by[i], true
			plan := x.ask(q)
			plan.Rejected = nil
			x.p.Hold(schedule.Question{Gone: q.Gone}, &plan)
			there := map[types.UID]bool{}
			for _, pl := range plan.Placements {
				for _, pod := range pl.Pods {
					there[pod.UID], progress = true, true
				}
			}
			by[i] = only(by[i], func(pod *corev1.Pod) bool { return !there[pod.UID] })
		}
	}
	for _, i := range slices.Sorted(maps.Keys(by)) {
		rest = append(rest, by[i]...)
	}
	return rest
}

// again finds the command's candidates in the snapshot.
func (x *search) again(c *disrupt.Command) ([]*node, error) {
	budgets := snapshot.Budgets(x.s.PDBs)
	var gone []*node
	for _, old := range c.Candidates {
		i := x.find(schedule.Placement{Node: old.Node.Name, Claim: old.Node.Claim})
		if i < 0 || x.s.Nodes[i].Deleting {
			return nil, &Invalid{Churn, fmt.Sprintf("node %s is gone or going", old.Node.Name)}
		}
		fresh := *old
		fresh.Index, fresh.Node, fresh.Pods = i, &x.s.Nodes[i], nil
		for _, pod := range fresh.Node.Pods {
			if snapshot.CurrentlyReschedulable(pod, budgets, x.s.Now) {
				fresh.Pods = append(fresh.Pods, pod)
			}
		}
		n := &node{Candidate: &fresh}
		gone = append(gone, n)
		x.byIndex[i] = n
	}
	return gone, nil
}

// stillCheaper tells whether what the launches may cost at most, at the prices of the moment, is less than what ends.
func (x *search) stillCheaper(gone []*node, launches []schedule.Launch) error {
	if len(launches) == 0 {
		return nil
	}
	ends, starts := 0.0, 0.0
	for _, n := range gone {
		ends += x.price(n.Candidate)
	}
	for i := range launches {
		l := &launches[i]
		at := slices.IndexFunc(x.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == l.Pool.Name })
		if at < 0 {
			return &Invalid{Scheduling, fmt.Sprintf("NodePool %q cannot launch", l.Pool.Name)}
		}
		most := 0.0
		for _, old := range l.InstanceTypes {
			k := slices.IndexFunc(x.s.Pools[at].InstanceTypes, func(it *catalog.InstanceType) bool { return it.Name == old.Name })
			if k < 0 {
				return &Invalid{Scheduling, fmt.Sprintf("instance type %s cannot be launched", old.Name)}
			}
			it := x.s.Pools[at].InstanceTypes[k]
			if _, ok := it.Cheapest(l.Requirements); !ok {
				return &Invalid{Scheduling, fmt.Sprintf("instance type %s cannot be launched", old.Name)}
			}
			most = max(most, worst(it, l.Requirements))
		}
		starts += most
	}
	if starts >= ends {
		return &Invalid{Scheduling, notCheaper}
	}
	return nil
}

// price is what the candidate costs at the prices of this snapshot, or else what it was found to cost.
func (x *search) price(c *disrupt.Candidate) float64 {
	for i := range x.s.Pools {
		if x.s.Pools[i].NodePool.Name != c.Pool.Name || c.Type == nil {
			continue
		}
		for _, it := range x.s.Pools[i].InstanceTypes {
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

// promises are the pods for which launches are meant.
func promises(launches []schedule.Launch) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range launches {
		for _, pod := range launches[i].Pods {
			out[pod.UID] = true
		}
	}
	return out
}

// unpromised are the nodes' pods for which no launch is meant.
func unpromised(gone []*node, promised map[types.UID]bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, n := range gone {
		out = append(out, only(n.Pods, func(pod *corev1.Pod) bool { return !promised[pod.UID] })...)
	}
	return out
}

// unchanged tells whether the pods for which launches are meant ask for no more than they did.
func (x *search) unchanged(gone []*node, launches []schedule.Launch) error {
	here := map[types.UID]*corev1.Pod{}
	for _, n := range gone {
		for _, pod := range n.Pods {
			here[pod.UID] = pod
		}
	}
	for i := range launches {
		for _, old := range launches[i].Pods {
			pod := here[old.UID]
			if pod == nil {
				continue
			}
			was := snapshot.Requests(old)
			for name, q := range snapshot.Requests(pod) {
				if have := was[name]; q.Cmp(have) > 0 {
					return &Invalid{Scheduling, fmt.Sprintf("pod %s asks for more than it did", podName(pod))}
				}
			}
		}
	}
	return nil
}

// toward are the open nodes that do not end, those first to which the plan moves pods.
func (x *search) toward(gone []*node, plan *schedule.Plan) []int {
	meant := map[int]bool{}
	for _, pl := range plan.Placements {
		meant[x.find(pl)] = true
	}
	var first, others []int
	for _, i := range x.open {
		switch n := x.byIndex[i]; {
		case n != nil && (n.ends || slices.Contains(gone, n)):
		case meant[i]:
			first = append(first, i)
		default:
			others = append(others, i)
		}
	}
	return append(first, others...)
}
