package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// hostWith is a node with so much CPU, on which so many pods of app web run that spread over hosts.
func hostWith(name string, pods int, cpu string, edit ...func(*snapshot.Node)) snapshot.Node {
	return Node(name, "general", append([]func(*snapshot.Node){func(n *snapshot.Node) {
		n.Allocatable = Resources("cpu", cpu, "memory", "16Gi", "pods", "20")
		for _, pod := range spreadOverHosts(pods, "web-"+name) {
			n.Pods = append(n.Pods, Bound(pod, name))
		}
	}}, edit...)...)
}

// spreadOverHosts are pods that spread over hosts with a skew of one.
func spreadOverHosts(n int, name string, edit ...func(*corev1.Pod)) []*corev1.Pod {
	return Pods(n, name, append([]func(*corev1.Pod){Labeled("app", "web"), Requests("cpu", "1"), Spread(Host, 1, "web")}, edit...)...)
}

// Where each host has pods, another one may have as many and one more, as kube-scheduler counts.
func TestNewHostsHoldAsManyPodsAsKubeSchedulerAllows(t *testing.T) {
	two := []snapshot.Node{hostWith("n1", 2, "2"), hostWith("n2", 2, "2")}
	being := func(n *snapshot.Node) { n.Deleting = true }
	atMost := func(allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: App("web")},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	other := Pods(1, "db", Requests("cpu", "3500m"))
	for _, c := range []struct {
		name     string
		nodes    []snapshot.Node
		pods     []*corev1.Pod
		budget   *policyv1.PodDisruptionBudget
		on       int
		launches int
	}{
		{"two full hosts with two pods each", two, spreadOverHosts(2, "web"), nil, 0, 1},
		{"a full host without pods", append(two, hostWith("n3", 0, "500m")), spreadOverHosts(2, "web"), nil, 0, 2},
		{"no hosts", nil, spreadOverHosts(3, "web"), nil, 0, 3},
		{
			"one pod each, and room for one more",
			[]snapshot.Node{hostWith("n1", 1, "2"), hostWith("n2", 1, "1")},
			spreadOverHosts(1, "web"), nil, 1, 0,
		},
		{"a single host keeps its one pod", []snapshot.Node{hostWith("n1", 1, "4")}, spreadOverHosts(1, "web"), nil, 0, 1},
		{"four pods share two new hosts evenly", two, spreadOverHosts(4, "web"), nil, 0, 2},
		{"a node for another pod counts", two, join(spreadOverHosts(2, "web", Selects(Arch, "amd64"), ignoringSelection), other), nil, 0, 3},
		{"pods leave a node together", append(two, hostWith("n3", 2, "2", being)), nil, atMost(2), 0, 1},
		{"a budget lets pods leave one by one", append(two, hostWith("n3", 2, "2", being)), nil, atMost(1), 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())}, c.pods...)
			s.Nodes = c.nodes
			if c.budget != nil {
				s.PDBs = append(s.PDBs, c.budget)
			}
			for i := range s.Nodes {
				if s.Nodes[i].Deleting {
					s.Pods = append(s.Pods, s.Nodes[i].Pods...)
				}
			}
			p := schedule.Solve(s, schedule.Budget{})
			if err := validate.Plan(s, p); err != nil {
				t.Fatal(err)
			}
			on := 0
			for _, pl := range p.Placements {
				on += len(pl.Pods)
			}
			if on != c.on || len(p.Launches) != c.launches || len(p.Rejected) > 0 {
				t.Errorf("%d pods on existing nodes and %d launches, want %d and %d\n%s", on, len(p.Launches), c.on, c.launches, describe(p))
			}
		})
	}
}

// ignoringSelection has spreads count the nodes that the pod does not select.
func ignoringSelection(p *corev1.Pod) {
	ignore := corev1.NodeInclusionPolicyIgnore
	for i := range p.Spec.TopologySpreadConstraints {
		p.Spec.TopologySpreadConstraints[i].NodeAffinityPolicy = &ignore
	}
}

// Without the last host, its pods go where kube-scheduler lets them go: onto hosts that have a pod each, but not onto a
// single one.
func TestHostsAreRemovedAsFarAsKubeSchedulerAllows(t *testing.T) {
	for _, c := range []struct {
		pods, hosts int
		cpu         string
		want        int
	}{
		{pods: 2, hosts: 3, cpu: "4", want: 0},
		{pods: 2, hosts: 3, cpu: "2", want: 1}, // full: one node takes its place
		{pods: 1, hosts: 3, cpu: "4", want: 0},
		{pods: 1, hosts: 2, cpu: "4", want: 1},
	} {
		t.Run(fmt.Sprintf("%d hosts of %s CPU with %d pods each", c.hosts, c.cpu, c.pods), func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())})
			for i := range c.hosts {
				s.Nodes = append(s.Nodes, hostWith(fmt.Sprintf("n%d", i), c.pods, c.cpu))
			}
			problem, last := schedule.Compile(s), c.hosts-1
			for range 2 { // what a simulation changes is taken back
				p := problem.WhatIf([]int{last}, s.Nodes[last].Pods, schedule.Budget{})
				if len(p.Launches) != c.want || len(p.Rejected) > 0 {
					t.Errorf("%d launches, want %d\n%s", len(p.Launches), c.want, describe(p))
				}
			}
		})
	}
}

// A launch of an applied move is a host of which nobody knows when it has its pods.
func TestAppliedLaunchesCountAsHostsWithoutPods(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())})
	for i := range 4 {
		s.Nodes = append(s.Nodes, hostWith(fmt.Sprintf("n%d", i), 2, "2"))
	}
	problem := schedule.Compile(s)
	first := schedule.Simulation{Removed: []int{3}, Pods: s.Nodes[3].Pods}
	p := problem.Simulate(first)
	problem.Apply(first, &p)
	if second := problem.WhatIf([]int{2}, s.Nodes[2].Pods, schedule.Budget{}); len(p.Launches) != 1 || len(second.Launches) != 2 {
		t.Errorf("%d launches, and then %d, want 1 and 2", len(p.Launches), len(second.Launches))
	}
	problem.Revert()
	if again := problem.WhatIf([]int{2}, s.Nodes[2].Pods, schedule.Budget{}); len(again.Launches) != 1 {
		t.Errorf("%d launches once the move is taken back, want 1", len(again.Launches))
	}
}
