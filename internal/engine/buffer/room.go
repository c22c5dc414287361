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
)

// Room is where the virtual pods of a snapshot are.
type Room struct {
	// Nodes is how many of them each node of the snapshot holds, by its Name.
	Nodes map[string]int
	// Launches are claims to create for those that fit nowhere else. Their Pods are all virtual.
	Launches []schedule.Launch
	// Buffers says how each buffer fares that has virtual pods.
	Buffers map[types.NamespacedName]Outcome
	// Abandoned is true when the budget's Stop ended planning: nothing else holds then.
	Abandoned bool
}

// Outcome counts the virtual pods of one buffer.
type Outcome struct {
	// Here fit nodes that are up or launched, Coming need claims that are not. Nowhere have no place at all.
	Here, Coming, Nowhere int
	// Why says it for one of those without a place.
	Why string
}

// Message is fit for a condition.
func (o Outcome) Message() string {
	text := fmt.Sprintf("fit nodes that exist: %d of %d pods", o.Here, o.Here+o.Coming+o.Nowhere)
	if o.Coming > 0 {
		text += fmt.Sprintf("; need new ones: %d", o.Coming)
	}
	if o.Nowhere > 0 {
		text += fmt.Sprintf("; have no place: %d (%s)", o.Nowhere, o.Why)
	}
	return text
}

// Plan finds room for the virtual pods of s beside what plan, the plan for its other pods, uses. A new claim of plan is
// taken for what it costs least as; should it become something else, the next plan corrects that.
func Plan(s *snapshot.Snapshot, plan schedule.Plan, budget schedule.Budget) Room {
	room := Room{Nodes: map[string]int{}, Buffers: map[types.NamespacedName]Outcome{}}
	if len(s.Virtual) == 0 {
		return room
	}
	there := map[string]*snapshot.Node{}
	for i := range s.Nodes {
		there[s.Nodes[i].Name] = &s.Nodes[i]
	}
	virtual := schedule.Solve(around(s, plan), budget)
	if virtual.Abandoned {
		room.Abandoned = true
		return room
	}
	count := func(pods []*corev1.Pod, add func(*Outcome)) {
		for _, p := range pods {
			o := room.Buffers[Of(p)]
			add(&o)
			room.Buffers[Of(p)] = o
		}
	}
	coming := func(o *Outcome) { o.Coming++ }
	for _, placement := range virtual.Placements {
		node := there[placement.Node]
		if node == nil { // a claim of plan
			count(placement.Pods, coming)
			continue
		}
		room.Nodes[placement.Node] += len(placement.Pods)
		if node.Claim != "" && !node.Launched {
			count(placement.Pods, coming)
			continue
		}
		count(placement.Pods, func(o *Outcome) { o.Here++ })
	}
	for i := range virtual.Launches {
		count(virtual.Launches[i].Pods, coming)
	}
	for _, r := range virtual.Rejected {
		count([]*corev1.Pod{r.Pod}, func(o *Outcome) {
			if o.Nowhere == 0 {
				o.Why = r.Reasons[0].Message
			}
			o.Nowhere++
		})
	}
	room.Launches = virtual.Launches
	return room
}

// around is the snapshot in which only the virtual pods wait, and plan is carried out.
func around(s *snapshot.Snapshot, plan schedule.Plan) *snapshot.Snapshot {
	out := *s
	out.Pods, out.Virtual = s.Virtual, nil
	out.Nodes = carriedOut(s.Nodes, plan)
	used := map[string]corev1.ResourceList{}
	for i := range plan.Launches {
		l := &plan.Launches[i]
		out.Nodes = append(out.Nodes, nodesOf(l, i, s.Labels)...)
		add(used, l)
	}
	out.Pools = make([]snapshot.Pool, len(s.Pools))
	for i, pool := range s.Pools {
		pool.Used = maps.Clone(pool.Used)
		if pool.Used == nil {
			pool.Used = corev1.ResourceList{}
		}
		plus(pool.Used, used[pool.NodePool.Name])
		out.Pools[i] = pool
	}
	return &out
}

// carriedOut are the nodes with the pods where plan puts them.
func carriedOut(nodes []snapshot.Node, plan schedule.Plan) []snapshot.Node {
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

// nodesOf is a launch of plan as a node: what it costs least as. It comes after all nodes that exist.
//
// A claim that is bought from a capacity reservation is listed a second time as one that is not launched, since such
// claims are what keeps others from counting on its place in the reservation.
func nodesOf(l *schedule.Launch, i int, labels requirement.Labels) []snapshot.Node {
	name := fmt.Sprintf("~launch-%05d", i) // no name of an object begins like this
	machine := l.InstanceTypes[0]
	own := l.ClaimLabels(labels)
	for _, r := range machine.Requirements.Intersect(l.Requirements).Intersect(l.Offering.Requirements).All() {
		if value, ok := r.Single(); ok {
			own[r.Key()] = value
		}
	}
	own[karpv1.LabelRegistered], own[karpv1.LabelInitialized] = "true", "true"
	out := []snapshot.Node{{
		Name: name, Pool: l.Pool.Name, Labels: own, Taints: l.Pool.Spec.Template.Spec.Taints,
		Capacity: machine.Capacity, Allocatable: machine.Allocatable, Pods: l.Pods, Launched: true,
	}}
	for driver, limit := range machine.VolumeLimits {
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

// add counts a launch against its pool's limits as the largest of what it may become.
func add(used map[string]corev1.ResourceList, l *schedule.Launch) {
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
	plus(used[l.Pool.Name], largest)
}

func plus(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}
