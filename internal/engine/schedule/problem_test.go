package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// afterPlan is the snapshot after a plan has been carried out: its launches are nodes with their pods.
func afterPlan(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	p := schedule.Solve(s, schedule.Budget{})
	add := func(i int, pods []*corev1.Pod) {
		for _, pod := range pods {
			bound := pod.DeepCopy()
			bound.Spec.NodeName, bound.Status.Phase = out.Nodes[i].Name, corev1.PodRunning
			out.Nodes[i].Pods = append(slices.Clone(out.Nodes[i].Pods), bound)
		}
	}
	for _, pl := range p.Placements {
		i := slices.IndexFunc(out.Nodes, func(n snapshot.Node) bool { return n.Name == pl.Node })
		out.Nodes[i].Nominated = nil
		add(i, pl.Pods)
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		name := fmt.Sprintf("node-%04d", i)
		labels := map[string]string{
			Zone: l.Offering.Zone, Capacity: l.Offering.CapacityType, corev1.LabelInstanceTypeStable: l.InstanceTypes[0].Name, Host: name,
			corev1.LabelOSStable: "linux", Arch: "amd64",
		}
		for key, value := range l.ClaimLabels(s.Labels) {
			labels[key] = value
		}
		if arch, ok := l.InstanceTypes[0].Requirements.Get(Arch).Single(); ok {
			labels[Arch] = arch
		}
		out.Nodes = append(out.Nodes, snapshot.Node{
			Name: name, Claim: name, Pool: l.Pool.Name, Labels: labels, Taints: l.Pool.Spec.Template.Spec.Taints,
			Allocatable: l.InstanceTypes[0].Allocatable, Capacity: l.InstanceTypes[0].Capacity, Launched: true, Registered: true,
			Initialized: true, Ready: true,
		})
		add(len(out.Nodes)-1, l.Pods)
	}
	out.Pods = nil
	return &out
}

// withoutNodes is the snapshot without the nodes, their pods pending.
func withoutNodes(s *snapshot.Snapshot, gone []int) (*snapshot.Snapshot, []*corev1.Pod) {
	out := *s
	out.Nodes, out.Pods = nil, slices.Clone(s.Pods)
	var moves []*corev1.Pod
	for i := range s.Nodes {
		if !slices.Contains(gone, i) {
			out.Nodes = append(out.Nodes, s.Nodes[i])
			continue
		}
		for _, pod := range s.Nodes[i].Pods {
			if !slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return p.UID == pod.UID }) && !snapshot.Terminal(pod) &&
				!snapshot.DaemonOwned(pod) {
				moves = append(moves, pod)
			}
		}
	}
	out.Pods = append(out.Pods, moves...)
	return &out, moves
}

func TestWhatIfEqualsPlanAfterRemoval(t *testing.T) {
	asked, placed, launches := 0, 0, 0
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 77))
		s := randomWorld(seed)
		if maybe(r, 60) {
			s = afterPlan(s)
			s.Pods = randomFamily(r, "a")[:1]
		}
		problem := schedule.Compile(s)
		for range 4 {
			var gone []int
			for i := range s.Nodes {
				if maybe(r, 30) {
					gone = append(gone, i)
				}
			}
			edited, moves := withoutNodes(s, gone)
			budget := schedule.Budget{FirstFitOnly: maybe(r, 70)}
			want, got := schedule.Solve(edited, budget), problem.WhatIf(gone, moves, budget)
			// What was counted to get there may differ.
			want.Stats.Steps, got.Stats.Steps = 0, 0
			if diff := cmp.Diff(fingerprint(want), fingerprint(got)); diff != "" {
				t.Fatalf("seed %d, without nodes %v: want -, got +\n%s", seed, gone, diff)
			}
			asked++
			placed += len(got.Placements)
			launches += len(got.Launches)
		}
	}
	if placed < asked/2 || launches < asked/2 {
		t.Errorf("%d simulations moved pods to %d nodes and launched %d: too few to be a test", asked, placed, launches)
	}
}

// cluster is a large cluster with nothing to plan, as consolidation sees it.
func cluster(n int) *snapshot.Snapshot {
	small := workload.SyntheticTypes(100, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	small = slices.DeleteFunc(small, func(it *catalog.InstanceType) bool { return it.Capacity.Cpu().Value() > 4 })
	return afterPlan(workloadSnapshot("diverse", n, 1, small, true))
}

// BenchmarkWhatIf simulates for one node after another whether its pods fit elsewhere.
func BenchmarkWhatIf(b *testing.B) {
	s := cluster(14000)
	problem := schedule.Compile(s)
	b.ReportAllocs()
	i, moves, launches := 0, 0, 0
	for b.Loop() {
		gone := i % len(s.Nodes)
		p := problem.WhatIf([]int{gone}, s.Nodes[gone].Pods, schedule.Budget{FirstFitOnly: true})
		moves += len(s.Nodes[gone].Pods)
		launches += len(p.Launches)
		i++
	}
	b.ReportMetric(float64(len(s.Nodes)), "nodes")
	b.ReportMetric(float64(moves)/float64(b.N), "pods/op")
	b.ReportMetric(float64(launches)/float64(b.N), "launches/op")
}
