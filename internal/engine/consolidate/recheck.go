package consolidate

import (
	"fmt"
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
	if !p.Holding() {
		x.seat()
	}
	x.order()
	promised, err := promises(gone, c.Plan.Launches)
	if err != nil {
		return err
	}
	q := x.question(gone, x.toward(c, gone), true)
	q.Pods = only(q.Pods, func(pod *corev1.Pod) bool { return !promised[pod.UID] })
	plan := x.ask(q)
	if _, why := x.homeless(&plan, x.homes(gone)); why != "" {
		return &Invalid{Scheduling, why}
	}
	if len(plan.Launches) > 0 {
		return &Invalid{Scheduling, fmt.Sprintf("pods need %d nodes more than the command launches", len(plan.Launches))}
	}
	plan.Launches = c.Plan.Launches
	p.Hold(schedule.Question{Gone: q.Gone}, &plan)
	return nil
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

// promises are the pods for which launches are meant, as far as they are still there and no larger than they were.
func promises(gone []*node, launches []schedule.Launch) (map[types.UID]bool, error) {
	here := map[types.UID]*corev1.Pod{}
	for _, n := range gone {
		for _, pod := range n.Pods {
			here[pod.UID] = pod
		}
	}
	out := map[types.UID]bool{}
	for i := range launches {
		for _, old := range launches[i].Pods {
			pod := here[old.UID]
			if pod == nil {
				continue
			}
			was := snapshot.Requests(old)
			for name, q := range snapshot.Requests(pod) {
				if have := was[name]; q.Cmp(have) > 0 {
					return nil, &Invalid{Scheduling, fmt.Sprintf("pod %s asks for more than it did", podName(pod))}
				}
			}
			out[old.UID] = true
		}
	}
	return out, nil
}

// toward are the open nodes, those first to which the command moves pods.
func (x *search) toward(c *disrupt.Command, gone []*node) []int {
	meant, ends := map[int]bool{}, map[int]bool{}
	for _, pl := range c.Plan.Placements {
		meant[x.find(pl)] = true
	}
	for _, n := range gone {
		ends[n.Index] = true
	}
	var first, others []int
	for _, i := range x.open {
		switch {
		case ends[i]:
		case meant[i]:
			first = append(first, i)
		default:
			others = append(others, i)
		}
	}
	return append(first, others...)
}
