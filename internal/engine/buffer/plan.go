package buffer

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Placement states where the virtual pods of a snapshot are scheduled.
type Placement struct {
	// Nodes counts how many of them each node of the snapshot has, by its Name.
	Nodes map[string]int
	// Launches are claims to create for those that fit on no node. Their Pods are all virtual.
	Launches []schedule.Launch
	// Buffers is the outcome of each buffer that has virtual pods.
	Buffers map[types.NamespacedName]Outcome
	// Abandoned is true if the budget's Stop finished planning: the other fields are empty then.
	Abandoned bool
}

// Outcome counts the virtual pods of one buffer.
type Outcome struct {
	// OnExisting fit on nodes that are up or launched, Coming need claims that are not launched yet. Nowhere cannot be
	// scheduled.
	OnExisting, NeedNew, Unschedulable int
	// Why is the reason of one that cannot be scheduled.
	Why string
}

// Message is the text of a condition.
func (o Outcome) Message() string {
	text := fmt.Sprintf("fit on existing nodes: %d of %d pods", o.OnExisting, o.OnExisting+o.NeedNew+o.Unschedulable)
	if o.NeedNew > 0 {
		text += fmt.Sprintf("; need new nodes: %d", o.NeedNew)
	}
	if o.Unschedulable > 0 {
		text += fmt.Sprintf("; cannot be scheduled: %d (%s)", o.Unschedulable, o.Why)
	}
	return text
}

// Plan schedules the virtual pods of s on the room that plan, the plan for its other pods, leaves free. A new claim
// of plan counts as its cheapest type; if it becomes another, the next plan corrects that.
func Plan(s *snapshot.Snapshot, plan schedule.Plan, budget schedule.Budget) Placement {
	room := Placement{Nodes: map[string]int{}, Buffers: map[types.NamespacedName]Outcome{}}
	if len(s.Virtual) == 0 {
		return room
	}
	byName := map[string]*snapshot.Node{}
	for i := range s.Nodes {
		byName[s.Nodes[i].Name] = &s.Nodes[i]
	}
	virtual := schedule.Solve(withPlanApplied(s, plan), budget)
	if virtual.Abandoned {
		room.Abandoned = true
		return room
	}
	count := func(pods []*corev1.Pod, add func(*Outcome)) {
		for _, p := range pods {
			o := room.Buffers[BufferOf(p)]
			add(&o)
			room.Buffers[BufferOf(p)] = o
		}
	}
	coming := func(o *Outcome) { o.NeedNew++ }
	for _, placement := range virtual.Placements {
		node := byName[placement.Node]
		if node == nil { // a claim of plan
			count(placement.Pods, coming)
			continue
		}
		room.Nodes[placement.Node] += len(placement.Pods)
		if node.Claim != "" && !node.Launched {
			count(placement.Pods, coming)
			continue
		}
		count(placement.Pods, func(o *Outcome) { o.OnExisting++ })
	}
	for i := range virtual.Launches {
		count(virtual.Launches[i].Pods, coming)
	}
	for _, r := range virtual.Rejected {
		count([]*corev1.Pod{r.Pod}, func(o *Outcome) {
			if o.Unschedulable == 0 {
				o.Why = wording.Reason(r.Reasons[0])
			}
			o.Unschedulable++
		})
	}
	room.Launches = virtual.Launches
	return room
}

// withPlanApplied is the snapshot with only the virtual pods pending, and plan carried out.
func withPlanApplied(s *snapshot.Snapshot, plan schedule.Plan) *snapshot.Snapshot {
	out := *s
	out.Pods, out.Virtual = s.Virtual, nil
	out.Nodes = nodesWithPlan(s.Nodes, plan)
	used := map[string]corev1.ResourceList{}
	for i := range plan.Launches {
		l := &plan.Launches[i]
		out.Nodes = append(out.Nodes, launchAsNodes(l, i, s.Labels)...)
		countAgainstLimits(used, l)
	}
	out.Pools = make([]snapshot.Pool, len(s.Pools))
	for i, pool := range s.Pools {
		pool.Used = maps.Clone(pool.Used)
		if pool.Used == nil {
			pool.Used = corev1.ResourceList{}
		}
		addTo(pool.Used, used[pool.NodePool.Name])
		out.Pools[i] = pool
	}
	return &out
}

// nodesWithPlan are the nodes with the pods where plan schedules them.
func nodesWithPlan(nodes []snapshot.Node, plan schedule.Plan) []snapshot.Node {
	type key struct{ node, claim string }
	arriving := map[key][]*corev1.Pod{}
	leaving := map[types.UID]bool{}
	for _, p := range plan.Placements {
		arriving[key{p.Node, p.Claim}] = append(arriving[key{p.Node, p.Claim}], p.Pods...)
		for _, pod := range p.Pods {
			leaving[pod.UID] = true
		}
	}
	for i := range plan.Launches {
		for _, pod := range plan.Launches[i].Pods {
			leaving[pod.UID] = true
		}
	}
	out := make([]snapshot.Node, len(nodes))
	for i, n := range nodes {
		pods := make([]*corev1.Pod, 0, len(n.Pods))
		for _, pod := range n.Pods {
			if !leaving[pod.UID] {
				pods = append(pods, pod)
			}
		}
		n.Pods = append(pods, arriving[key{n.Name, n.Claim}]...)
		n.Nominated = n.NominatedVirtual
		out[i] = n
	}
	return out
}

// launchAsNodes is a launch of plan as a node of its cheapest type. It sorts after all existing nodes.
//
// A claim that uses a capacity reservation is listed a second time as one that is not launched, since such claims
// keep others from counting on its slot of the reservation.
func launchAsNodes(l *schedule.Launch, i int, labels requirement.Labels) []snapshot.Node {
	name := fmt.Sprintf("~launch-%05d", i) // no name of an object begins like this
	instanceType := l.InstanceTypes[0]
	own := l.ClaimLabels(labels)
	for _, r := range instanceType.Requirements.Intersect(l.Requirements).Intersect(l.Offering.Requirements).All() {
		if value, ok := r.Single(); ok {
			own[r.Key()] = value
		}
	}
	own[karpv1.LabelRegistered], own[karpv1.LabelInitialized] = "true", "true"
	out := []snapshot.Node{{
		Name: name, Pool: l.Pool.Name, Labels: own, Taints: l.Pool.Spec.Template.Spec.Taints,
		Capacity: instanceType.Capacity, Allocatable: instanceType.Allocatable, Pods: l.Pods, Launched: true,
	}}
	for driver, limit := range instanceType.VolumeLimits {
		if out[0].VolumeLimits == nil {
			out[0].VolumeLimits = map[string]int32{}
		}
		out[0].VolumeLimits[driver] = int32(limit)
	}
	if l.Offering.ReservationID != "" {
		out = append(out, snapshot.Node{Name: name + "-reserved", Claim: name, Pool: l.Pool.Name, Requirements: l.ClaimRequirements()})
	}
	return out
}

// countAgainstLimits counts a launch against its pool's limits as the largest of its instance types.
func countAgainstLimits(used map[string]corev1.ResourceList, l *schedule.Launch) {
	largest := corev1.ResourceList{karpv1.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)}
	for _, t := range l.InstanceTypes {
		for name, q := range t.Capacity {
			if q.Cmp(largest[name]) > 0 {
				largest[name] = q
			}
		}
	}
	if used[l.Pool.Name] == nil {
		used[l.Pool.Name] = corev1.ResourceList{}
	}
	addTo(used[l.Pool.Name], largest)
}

func addTo(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}
