package consolidate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// candidates are the managed nodes that nothing blocks from disruption.
func candidates(s *snapshot.Snapshot) []*disrupt.Candidate {
	pools := map[string]*snapshot.Pool{}
	for i := range s.Pools {
		pools[s.Pools[i].NodePool.Name] = &s.Pools[i]
	}
	budgets := snapshot.Budgets(s.PDBs)
	var out []*disrupt.Candidate
	for i := range s.Nodes {
		n := &s.Nodes[i]
		pool := pools[n.Pool]
		blocked := slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return !snapshot.Disruptable(p, s.Now) })
		if pool == nil || n.Claim == "" || !n.Initialized || n.Deleting || blocked {
			continue
		}
		c := &disrupt.Candidate{
			Index:        i,
			Node:         n,
			Pool:         pool.NodePool,
			Zone:         n.Labels[corev1.LabelTopologyZone],
			CapacityType: n.Labels[karpv1.LabelCapacityType],
			Cost:         1,
		}
		isOfNode := func(it *catalog.InstanceType) bool { return it.Name == n.Labels[corev1.LabelInstanceTypeStable] }
		if k := slices.IndexFunc(pool.InstanceTypes, isOfNode); k >= 0 {
			c.Type = pool.InstanceTypes[k]
			for _, o := range c.Type.Offerings {
				if o.Zone == c.Zone && o.CapacityType == c.CapacityType {
					c.Price = o.Price
					break
				}
			}
		}
		for _, p := range n.Pods {
			if snapshot.CurrentlyReschedulable(p, budgets, s.Now) {
				c.Pods = append(c.Pods, p)
			}
			if snapshot.Reschedulable(p) {
				c.Cost += max(0, snapshot.EvictionCost(p))
			}
		}
		out = append(out, c)
	}
	return out
}

// find is Find with everything else derived from the snapshot.
func find(s *snapshot.Snapshot, st consolidate.Settings) consolidate.Result {
	return consolidate.Find(input(s), st)
}

func input(s *snapshot.Snapshot) consolidate.Input {
	list := candidates(s)
	return consolidate.Input{
		Problem:    consolidate.Compile(s),
		Snapshot:   s,
		Candidates: list,
		Budgets:    disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
		Totals:     consolidate.PoolTotals(s, list, nil),
	}
}

// carryOut is the snapshot after the commands, and after some time: pods run where the plans place them, launches are
// of their cheapest type.
func carryOut(s *snapshot.Snapshot, commands []disrupt.Command, after time.Duration) *snapshot.Snapshot {
	out := *s
	out.Now = s.Now.Add(after)
	removed := map[int]bool{}
	at := map[string]int{}
	for i := range s.Nodes {
		at[s.Nodes[i].Name] = i
	}
	nodes := slices.Clone(s.Nodes)
	var fresh []snapshot.Node
	bind := func(n *snapshot.Node, pods []*corev1.Pod) {
		n.Pods = slices.Clone(n.Pods)
		for _, p := range pods {
			p = p.DeepCopy()
			p.Spec.NodeName = n.Name
			n.Pods = append(n.Pods, p)
		}
	}
	for k := range commands {
		c := &commands[k]
		for _, n := range c.Candidates {
			removed[n.Index] = true
		}
		for _, pl := range c.Plan.Placements {
			bind(&nodes[at[pl.Node]], pl.Pods)
		}
		for i := range c.Plan.Launches {
			l := &c.Plan.Launches[i]
			it := l.InstanceTypes[0]
			o, _ := it.Cheapest(l.Requirements)
			n := workload.Node(fmt.Sprintf("new-%d-%d-%d", s.Now.Unix(), k, i), l.Pool, it, o)
			n.CreatedAt = s.Now
			bind(&n, l.Pods)
			fresh = append(fresh, n)
		}
	}
	out.Nodes = nil
	for i := range nodes {
		if !removed[i] {
			out.Nodes = append(out.Nodes, nodes[i])
		}
	}
	out.Nodes = append(out.Nodes, fresh...)
	return &out
}

// bill is what the nodes cost in $/h.
func fleetCost(s *snapshot.Snapshot) float64 {
	total := 0.0
	for i := range s.Nodes {
		total += s.Nodes[i].Price
	}
	return total
}

// unbounded removes the limits of disruption budgets.
func unbounded(s *snapshot.Snapshot) *snapshot.Snapshot { return budget(s, "100%") }

func budget(s *snapshot.Snapshot, nodes string) *snapshot.Snapshot {
	for i := range s.Pools {
		s.Pools[i].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes}}
	}
	return s
}

func fleet(tb testing.TB, nodes int, use float64, seed uint64, capacityTypes ...string) *snapshot.Snapshot {
	tb.Helper()
	if len(capacityTypes) == 0 {
		capacityTypes = []string{karpv1.CapacityTypeOnDemand}
	}
	list, err := workload.EC2Types("us-east-1", capacityTypes...)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := workload.RunningCluster(nodes, use, seed, list)
	if err != nil {
		tb.Fatal(err)
	}
	return unbounded(s)
}

// tight is a fleet that was just launched for its pods.
func justProvisioned(tb testing.TB, pods int) *snapshot.Snapshot {
	tb.Helper()
	list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand)
	if err != nil {
		tb.Fatal(err)
	}
	small := slices.DeleteFunc(list, func(it *catalog.InstanceType) bool { return it.Capacity.Cpu().Value() > 4 })
	s, err := workload.Named(workload.Spec{Kind: "replicas", Pods: pods, Seed: 1, Types: small, Daemons: true})
	if err != nil {
		tb.Fatal(err)
	}
	return unbounded(provisioned(s))
}

// provisioned is the world in which a plan for its pods has been carried out, a day ago.
func provisioned(s *snapshot.Snapshot) *snapshot.Snapshot {
	plan := schedule.Solve(s, schedule.Budget{})
	out := carryOut(s, []disrupt.Command{{Plan: plan}}, 24*time.Hour)
	out.Pods = nil
	for i := range out.Nodes {
		for _, p := range out.Nodes[i].Pods {
			Bound(p, out.Nodes[i].Name)
		}
	}
	return out
}
