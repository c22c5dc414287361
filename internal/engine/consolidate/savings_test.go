package consolidate_test

import (
	"fmt"
	"math/rand/v2"
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

// settling is what it took until no more commands were found.
type convergence struct {
	commands, moved int
	// costs are the fleet's before the first command and after each, in $/h.
	costs []float64
}

// settle carries out commands, pass after pass, a day apart, so that no node is young, until none is found. Empty
// nodes are removed by a command of their own.
func converge(tb testing.TB, s *snapshot.Snapshot, st consolidate.Settings) (*snapshot.Snapshot, convergence) {
	tb.Helper()
	out := convergence{costs: []float64{fleetCost(s)}}
	for range 100 {
		if used := withoutEmptyNodes(s); len(used.Nodes) < len(s.Nodes) {
			s = used
			out.commands++
			out.costs = append(out.costs, fleetCost(s))
		}
		r := find(s, st)
		if len(r.Commands) == 0 {
			return s, out
		}
		before := fleetCost(s)
		for i := range r.Commands {
			c := &r.Commands[i]
			out.commands++
			out.moved += podsMoved(c)
			before -= c.Savings
			out.costs = append(out.costs, before)
		}
		s = carryOut(s, r.Commands, 24*time.Hour)
		if got := fleetCost(s); got > before+1e-6 {
			tb.Fatalf("the fleet costs %v $/h, want %v", got, before)
		}
	}
	tb.Fatalf("after 100 passes and %d commands another is found", out.commands)
	return nil, out
}

// withoutEmptyNodes is the snapshot without empty nodes.
func withoutEmptyNodes(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n snapshot.Node) bool { return len(n.Pods) == 0 })
	return &out
}

func podsMoved(c *disrupt.Command) int {
	n := 0
	for _, k := range c.Candidates {
		n += len(k.Pods)
	}
	return n
}

// bound is the least that nodes for the pods of the snapshot's candidates can cost, by the linear program.
func lowerBound(s *snapshot.Snapshot) float64 {
	var pods []*corev1.Pod
	for _, c := range candidates(s) {
		pods = append(pods, c.Pods...)
	}
	return schedule.Compile(s).DualValues(pods).Total
}

// TestConvergesNearLowerBound consolidates fleets of EC2 instances at 31 % use until no more commands are found.
func TestConvergesNearLowerBound(t *testing.T) {
	for _, tt := range []struct {
		nodes, commands int
		seeds           uint64
	}{{100, 5, 4}, {500, 10, 2}, {2000, 20, 1}} {
		for seed := uint64(1); seed <= tt.seeds; seed++ {
			t.Run(fmt.Sprintf("%d nodes, seed %d", tt.nodes, seed), func(t *testing.T) {
				s := fleet(t, tt.nodes, 0.31, seed)
				least := lowerBound(s)
				after, took := converge(t, s, consolidate.Settings{})
				ratio := fleetCost(after) / least
				t.Logf(
					"%d commands, $%.2f/h -> $%.2f/h, %.4f x the bound, %d nodes, %.1f pods moved per $/h saved",
					took.commands,
					fleetCost(s),
					fleetCost(after),
					ratio,
					len(after.Nodes),
					float64(took.moved)/(fleetCost(s)-fleetCost(after)),
				)
				if took.commands > tt.commands {
					t.Errorf("it took %d commands, want at most %d", took.commands, tt.commands)
				}
				if ratio > 1.05 {
					t.Errorf("the fleet costs %.4f x the bound in the end, want at most 1.05", ratio)
				}
			})
		}
	}
}

// TestConvergesAfterScaleDown consolidates fleets after two thirds of the pods were deleted: the types of
// the nodes are right, but there are too many nodes.
func TestConvergesAfterScaleDown(t *testing.T) {
	for _, kind := range []string{"replicas", "batch"} {
		t.Run(kind, func(t *testing.T) {
			list := ec2(t)
			small := slices.DeleteFunc(slices.Clone(list), func(it *catalog.InstanceType) bool { return it.Capacity.Cpu().Value() > 8 })
			s, err := workload.Named(workload.Spec{Kind: kind, Pods: 2200, Seed: 1, Types: small, Daemons: true})
			if err != nil {
				t.Fatal(err)
			}
			s = unbounded(provisioned(s))
			s.Pools[0].InstanceTypes = list
			r := rand.New(rand.NewPCG(1, 5))
			for i := range s.Nodes {
				s.Nodes[i].Pods = slices.DeleteFunc(s.Nodes[i].Pods, func(*corev1.Pod) bool { return r.IntN(100) < 66 })
			}
			s.Nodes = slices.DeleteFunc(s.Nodes, func(n snapshot.Node) bool { return len(n.Pods) == 0 })
			least := lowerBound(s)
			after, took := converge(t, s, consolidate.Settings{})
			t.Logf(
				"%d nodes: %d commands, $%.2f/h -> $%.2f/h, %.4f x the bound",
				len(s.Nodes),
				took.commands,
				fleetCost(s),
				fleetCost(after),
				fleetCost(after)/least,
			)
			if took.commands > 10 || fleetCost(after) > 1.05*least {
				t.Errorf("it took %d commands to %.4f x the bound, want at most 10 and 1.05", took.commands, fleetCost(after)/least)
			}
		})
	}
}

// TestConvergesBesideBlockedNodes has a pod with do-not-disrupt on every tenth node. These nodes stay; the others must
// cost no more than 1.05 times what they would cost in a fleet without them.
func TestConvergesBesideBlockedNodes(t *testing.T) {
	for _, nodes := range []int{100, 500} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			s := fleet(t, nodes, 0.31, 7)
			without := *s
			without.Nodes = nil
			blocked := 0.0
			for i := range s.Nodes {
				n := &s.Nodes[i]
				if i%10 != 0 {
					without.Nodes = append(without.Nodes, *n)
					continue
				}
				blocked += n.Price
				n.Pods = append(slices.Clone(n.Pods), Bound(Pod(n.Name+"-stays", func(p *corev1.Pod) {
					p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
				}), n.Name))
			}
			after, took := converge(t, s, consolidate.Settings{})
			alone, _ := converge(t, &without, consolidate.Settings{})
			t.Logf(
				"%d commands, $%.2f/h beside $%.2f/h that are blocked; without these $%.2f/h",
				took.commands,
				fleetCost(after)-blocked,
				blocked,
				fleetCost(alone),
			)
			if fleetCost(after)-blocked > 1.05*fleetCost(alone) {
				t.Errorf("the other nodes cost $%.4f/h, want at most 1.05 x $%.4f/h", fleetCost(after)-blocked, fleetCost(alone))
			}
		})
	}
}

// TestLargestSavingFirst disrupts a tenth of the nodes at a time: each pass's commands save most per pod that moves
// first.
func TestLargestSavingFirst(t *testing.T) {
	s := budget(fleet(t, 200, 0.31, 5), "10%")
	ratio := func(c *disrupt.Command) float64 {
		cost := 0.0
		for _, n := range c.Candidates {
			cost += n.Cost
		}
		return c.Savings / cost
	}
	start, commands, moved := fleetCost(s), 0, 0
	curve := fmt.Sprintf("%.2f", start)
	var passes []float64
	for range 60 {
		allowed := disrupt.Allowances(s, karpv1.DisruptionUnderutilized)[0].Available()
		r := find(s, consolidate.Settings{})
		if len(r.Commands) == 0 {
			break
		}
		removed, saved := 0, 0.0
		for i := range r.Commands {
			c := &r.Commands[i]
			removed += len(c.Candidates)
			saved += c.Savings
			moved += podsMoved(c)
			if i > 0 && ratio(c) > ratio(&r.Commands[i-1])*(1+1e-9) {
				t.Errorf("a command that saves %.4f $/h per pod comes after one that saves %.4f", ratio(c), ratio(&r.Commands[i-1]))
			}
		}
		if removed > allowed {
			t.Fatalf("%d nodes are removed, the budget allows %d", removed, allowed)
		}
		commands += len(r.Commands)
		s = carryOut(s, r.Commands, 24*time.Hour)
		passes = append(passes, saved)
		curve += fmt.Sprintf(" %.2f", fleetCost(s))
	}
	t.Logf("$/h over %d commands, pass by pass: %s; %.1f pods moved per $/h saved", commands, curve, float64(moved)/(start-fleetCost(s)))
	// A tenth of the nodes at a time does not allow every merge.
	if ratio := fleetCost(s) / lowerBound(s); ratio > 1.10 {
		t.Errorf("the fleet costs %.4f x the bound in the end, want at most 1.10", ratio)
	}
	if len(passes) < 4 {
		t.Fatalf("only %d passes found something", len(passes))
	}
	early, all := 0.0, start-fleetCost(s)
	for _, saved := range passes[:len(passes)/2] {
		early += saved
	}
	if early < 0.7*all {
		t.Errorf("the first half of the passes saves %.2f $/h of %.2f, want most of it", early, all)
	}
}

// ec2 picks types of a region by name.
func ec2(tb testing.TB, names ...string) []*catalog.InstanceType {
	tb.Helper()
	list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand)
	if err != nil {
		tb.Fatal(err)
	}
	var out []*catalog.InstanceType
	for _, it := range list {
		if len(names) == 0 || slices.Contains(names, it.Name) {
			out = append(out, it)
		}
	}
	return out
}

// TestMergesOthersMiss are consolidations that other autoscalers do not find.
func TestMergesOthersMiss(t *testing.T) {
	addNode := func(s *snapshot.Snapshot, name, of string, pods ...*corev1.Pod) {
		pool := &s.Pools[0]
		i := slices.IndexFunc(pool.InstanceTypes, func(it *catalog.InstanceType) bool { return it.Name == of })
		n := workload.Node(name, pool.NodePool, pool.InstanceTypes[i], pool.InstanceTypes[i].Offerings[0])
		n.CreatedAt = s.Now.Add(-24 * time.Hour)
		for _, p := range pods {
			n.Pods = append(n.Pods, Bound(p, name))
		}
		s.Nodes = append(s.Nodes, n)
	}
	world := func(tb testing.TB) *snapshot.Snapshot {
		return unbounded(workload.Snapshot([]snapshot.Pool{workload.GeneralPool("general", ec2(tb))}, nil, false))
	}
	immovable := func(name string, requests ...string) *corev1.Pod {
		return Pod(
			name,
			Requests(requests...),
			Needs(Expr("example.com/legacy", corev1.NodeSelectorOpIn, "yes")),
			OwnedBy("apps/v1", "ReplicaSet"),
		)
	}

	t.Run("among 80 nodes two m7g.2xlarge are replaced by one r7g.2xlarge", func(t *testing.T) {
		s := world(t)
		for k := range 78 { // full, and of the cheapest type for their pods
			name := fmt.Sprintf("full-%02d", k)
			addNode(
				s,
				name,
				"c7g.2xlarge",
				Pod(name, Requests("cpu", "7900m", "memory", "11Gi"), Selects("node.kubernetes.io/instance-type", "c7g.2xlarge")),
			)
		}
		only7g := Needs(Expr("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpIn, "m7g", "r7g"))
		for k := range 2 {
			name := fmt.Sprintf("half-%d", k)
			addNode(
				s,
				name,
				"m7g.2xlarge",
				Pod(name+"-a", Requests("cpu", "2", "memory", "14Gi"), only7g),
				Pod(name+"-b", Requests("cpu", "1500m", "memory", "12Gi"), only7g),
			)
		}
		r := find(s, consolidate.Settings{})
		if len(r.Commands) != 1 || len(r.Commands[0].Candidates) != 2 || len(r.Commands[0].Plan.Launches) != 1 {
			t.Fatalf("found %s, want one command that replaces two nodes by one", describe(r))
		}
		if got := r.Commands[0].Plan.Launches[0].InstanceTypes[0].Name; got != "r7g.2xlarge" {
			t.Errorf("they are replaced by a %s, want r7g.2xlarge", got)
		}
	})

	t.Run("eight c6g.large are replaced by one r6g.xlarge although the first candidates in order cannot move", func(t *testing.T) {
		s := world(t)
		for k := range 10 {
			name := fmt.Sprintf("first-%d", k)
			addNode(s, name, "m6g.8xlarge", immovable(name, "cpu", "100m", "memory", "1Gi"))
			s.Nodes[len(s.Nodes)-1].Labels["example.com/legacy"] = "yes"
			s.Nodes[len(s.Nodes)-1].Taints = []corev1.Taint{{Key: "legacy", Effect: corev1.TaintEffectNoSchedule}}
			s.Nodes[len(s.Nodes)-1].Pods[0].Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
		}
		family := Needs(Expr("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpIn, "c6g", "r6g"))
		for k := range 8 {
			name := fmt.Sprintf("small-%d", k)
			addNode(s, name, "c6g.large", Pod(name, Requests("cpu", "400m", "memory", "2800Mi"), family))
		}
		r := find(s, consolidate.Settings{})
		if len(r.Commands) != 1 || len(r.Commands[0].Candidates) != 8 || len(r.Commands[0].Plan.Launches) != 1 {
			t.Fatalf("found %s, want one command that replaces eight nodes by one", describe(r))
		}
		if got := r.Commands[0].Plan.Launches[0].InstanceTypes[0].Name; got != "r6g.xlarge" {
			t.Errorf("they are replaced by a %s, want r6g.xlarge", got)
		}
	})
}

// describe is a result as text.
func describe(r consolidate.Result) string {
	text := fmt.Sprintf("%d commands", len(r.Commands))
	for i := range r.Commands {
		for _, line := range consolidate.Explain(&r.Commands[i]) {
			text += "\n  " + line
		}
	}
	for _, l := range r.Unconsolidatable {
		text += fmt.Sprintf("\n  %s stays: %s", l.Candidate.Node.Name, l.Message)
	}
	return text
}
