package schedule_test

import (
	"fmt"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Solve plans all pods of a snapshot at once. Pods that no node can hold come with the reason for each pool.
func ExampleSolve() {
	pools := []snapshot.Pool{Pool("general", Types())}
	pods := append(Pods(3, "web", Requests("cpu", "1", "memory", "1Gi")), Pod("big", Requests("cpu", "64")))
	plan := schedule.Solve(World(pools, pods...), schedule.DefaultBudget())
	for i := range plan.Launches {
		l := &plan.Launches[i]
		fmt.Printf("launch %s in pool %s, pods: %d\n", l.InstanceTypes[0].Name, l.Pool.Name, len(l.Pods))
	}
	for _, r := range plan.Rejected {
		fmt.Printf("pod %s: %s\n", r.Pod.Name, wording.Reason(r.Reasons[0]))
	}
	fmt.Printf("cost %.3f $/h, lower bound %.3f $/h\n", plan.Stats.HourlyCost, plan.Stats.LowerBound)
	// Output:
	// launch m.medium in pool general, pods: 2
	// launch m.small in pool general, pods: 1
	// pod big: the pod needs 64 cpu: no instance type is that large; m.xlarge, the largest type that suits it, has 8 for pods
	// cost 0.050 $/h, lower bound 0.050 $/h
}

// A compiled Problem simulates the removal of nodes without compiling the snapshot again.
func ExampleProblem_WhatIf() {
	s := World([]snapshot.Pool{Pool("general", Types())})
	s.Nodes = []snapshot.Node{Node("n1", "general"), Node("n2", "general")}
	web := Bound(Pod("web", Requests("cpu", "1")), "n1")
	s.Nodes[0].Pods = append(s.Nodes[0].Pods, web)
	problem := schedule.Compile(s)
	plan := problem.WhatIf([]int{0}, s.Nodes[0].Pods, schedule.DefaultBudget())
	for _, p := range plan.Placements {
		fmt.Printf("pods that move from n1 to %s: %d\n", p.Node, len(p.Pods))
	}
	fmt.Printf("launches: %d\n", len(plan.Launches))
	// Output:
	// pods that move from n1 to n2: 1
	// launches: 0
}
