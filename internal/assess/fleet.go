package assess

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
)

// fleetOf adds up the nodes of a snapshot.
func fleetOf(s *snapshot.Snapshot, prices *priceList) Fleet {
	pools, types, capacity := newParts(), newParts(), newParts()
	all := newParts()
	out := Fleet{Unpriced: []Unpriced{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Launched || n.InstanceTerminating {
			continue // it has no instance, or none any more
		}
		price, known := prices.of(n)
		m := member{node: n, price: price, known: known}
		name, managed := poolName(n)
		pools.add(part{name, managed}, m)
		types.add(part{cmp.Or(instanceType(n), "unknown type"), true}, m)
		capacity.add(part{capacityType(n), true}, m)
		all.add(part{}, m)
		out.Pods += runningPods(n)
		if !known {
			out.Unpriced = append(out.Unpriced, Unpriced{Node: n.Name, Why: whyUnpriced(n)})
		}
	}
	out.ByPool, out.ByInstanceType, out.ByCapacityType = pools.sorted(), types.sorted(), capacity.sorted()
	if total := all.sorted(); len(total) == 1 {
		t := total[0]
		out.Nodes, out.HourlyCost, out.MonthlyCost = t.Nodes, t.HourlyCost, t.MonthlyCost
		out.RequestedCPU, out.RequestedMemory = t.RequestedCPU, t.RequestedMemory
	}
	return out
}

// poolName is the NodePool of a node, else its group.
func poolName(n *snapshot.Node) (name string, managed bool) {
	if n.Pool != "" {
		return n.Pool, true
	}
	if group := fleet.GroupOf(n.Labels); group != "" {
		return group, false
	}
	return "no NodePool", false
}

func whyUnpriced(n *snapshot.Node) string {
	switch {
	case n.Labels[fleet.LabelEKSComputeType] == "fargate":
		return "Fargate is priced by pod"
	case instanceType(n) == "":
		return "it has no label " + corev1.LabelInstanceTypeStable
	default:
		return fmt.Sprintf("no price of %s %s in zone %s", capacityType(n), instanceType(n), cmp.Or(n.Labels[corev1.LabelTopologyZone],
			"unknown"))
	}
}

// runningPods counts the pods of a node besides those of DaemonSets and static pods.
func runningPods(n *snapshot.Node) int {
	count := 0
	for _, p := range n.Pods {
		if !snapshot.DaemonOwned(p) && !snapshot.Mirror(p) && !snapshot.Terminal(p) {
			count++
		}
	}
	return count
}

// part identifies some of the nodes.
type part struct {
	name    string
	managed bool
}

// member is a node of a part.
type member struct {
	node  *snapshot.Node
	price float64
	known bool
}

// parts add up nodes by part.
type parts map[part]*sum

// sum is of the nodes of one part. CPU is in millicores, memory in bytes.
type sum struct {
	Part
	cpu, memory           float64
	cpuAsked, memoryAsked float64
}

func newParts() parts { return parts{} }

func (p parts) add(at part, m member) {
	s := p[at]
	if s == nil {
		s = &sum{Part: Part{Name: at.name, Managed: at.managed}}
		p[at] = s
	}
	s.Nodes++
	s.HourlyCost += m.price
	if !m.known {
		s.Unpriced++
	}
	s.cpu += float64(m.node.Allocatable.Cpu().MilliValue())
	s.memory += m.node.Allocatable.Memory().AsApproximateFloat64()
	for _, pod := range m.node.Pods {
		if snapshot.Terminal(pod) {
			continue
		}
		requests := snapshot.Requests(pod)
		s.cpuAsked += float64(requests.Cpu().MilliValue())
		s.memoryAsked += requests.Memory().AsApproximateFloat64()
	}
}

// sorted returns the parts, the most expensive first.
func (p parts) sorted() []Part {
	out := make([]Part, 0, len(p))
	for _, s := range p {
		s.MonthlyCost = monthly(s.HourlyCost)
		s.RequestedCPU, s.RequestedMemory = share(s.cpuAsked, s.cpu), share(s.memoryAsked, s.memory)
		out = append(out, s.Part)
	}
	slices.SortFunc(out, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.HourlyCost, a.HourlyCost), cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name),
			cmp.Compare(text(a.Managed), text(b.Managed)))
	})
	return out
}

func text(b bool) string { return fmt.Sprint(b) }

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// cost adds up the nodes of a snapshot, in $/h.
func cost(s *snapshot.Snapshot, prices *priceList) (hourly float64, nodes int) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Launched || n.InstanceTerminating {
			continue
		}
		price, _ := prices.of(n)
		hourly += price
		nodes++
	}
	return hourly, nodes
}
