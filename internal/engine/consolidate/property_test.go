package consolidate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// aged is a world with nodes that were launched for its pods, of which about half are deleted.
func fragmented(tb testing.TB, seed uint64) *snapshot.Snapshot {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	kinds := []string{"diverse", "prefs", "volumes", "multi-pool", "replicas", "batch"}
	list := workload.SyntheticTypes(60, onDemand, spot)
	if seed%2 == 0 {
		list = workload.SyntheticTypes(60, onDemand)
	}
	small := slices.DeleteFunc(slices.Clone(list), func(it *catalog.InstanceType) bool { return it.Capacity.Cpu().Value() > 8 })
	s, err := workload.Named(
		workload.Spec{Kind: kinds[seed%uint64(len(kinds))], Pods: 60 + r.IntN(200), Seed: seed, Types: small, Daemons: seed%3 == 0},
	)
	if err != nil {
		tb.Fatal(err)
	}
	s = provisioned(s)
	for i := range s.Pools {
		s.Pools[i].InstanceTypes = list
		np := s.Pools[i].NodePool
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: []string{"100%", "10%", "50%", "3"}[r.IntN(4)]}}
		if r.IntN(4) == 0 {
			np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationBalanced
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Pods = slices.DeleteFunc(n.Pods, func(*corev1.Pod) bool { return r.IntN(10) < 5 })
		n.Initialized = n.Initialized && r.IntN(20) > 0
		n.Consolidatable = r.IntN(10) > 0
		if r.IntN(10) == 0 {
			n.CreatedAt = s.Now.Add(-time.Duration(r.IntN(3600)) * time.Second)
		}
	}
	return s
}

// together is the plan of all commands, and the snapshot that it is for: without the removed nodes, their pods
// pending.
func combinedPlan(s *snapshot.Snapshot, commands []disrupt.Command) (*snapshot.Snapshot, schedule.Plan) {
	out := *s
	out.Nodes, out.Pods = nil, nil
	removed := map[int]bool{}
	var plan schedule.Plan
	for i := range commands {
		c := &commands[i]
		for _, n := range c.Candidates {
			removed[n.Index] = true
			out.Pods = append(out.Pods, n.Pods...)
		}
		for _, pl := range c.Plan.Placements {
			k := slices.IndexFunc(plan.Placements, func(o schedule.Placement) bool { return o.Node == pl.Node && o.Claim == pl.Claim })
			if k < 0 {
				plan.Placements = append(plan.Placements, pl)
				continue
			}
			plan.Placements[k].Pods = slices.Concat(plan.Placements[k].Pods, pl.Pods)
		}
		plan.Launches = append(plan.Launches, c.Plan.Launches...)
		plan.Stats.HourlyCost += c.Plan.Stats.HourlyCost
		plan.Stats.NodeCost += c.Plan.Stats.NodeCost
	}
	plan.Stats.Pods = len(out.Pods)
	for i := range s.Nodes {
		if !removed[i] {
			out.Nodes = append(out.Nodes, s.Nodes[i])
		}
	}
	return &out, plan
}

// TestCommandsAreValid checks the commands in random worlds: the plans of all of them together violate no rule,
// replacements cost less than what they replace however they are launched, and budgets are respected.
func TestCommandsAreValid(t *testing.T) {
	found, launches := 0, 0
	for seed := range uint64(240) {
		s := fragmented(t, seed)
		st := consolidate.Settings{SpotToSpot: seed%5 == 0}
		r := find(s, st)
		world, plan := combinedPlan(s, r.Commands)
		if err := validate.Plan(world, plan); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, describe(r))
		}
		ends := map[string]int{}
		seen := map[int]bool{}
		for i := range r.Commands {
			c := &r.Commands[i]
			found++
			launches += len(c.Plan.Launches)
			price, most, least := 0.0, 0.0, 0.0
			for _, n := range c.Candidates {
				if seen[n.Index] || !n.Node.Consolidatable {
					t.Errorf("seed %d: node %s is removed twice, or must not be", seed, n.Node.Name)
				}
				seen[n.Index] = true
				ends[n.Pool.Name]++
				price += n.Price
			}
			for k := range c.Plan.Launches {
				l := &c.Plan.Launches[k]
				least += l.Offering.Price
				most += worstLaunchPrice(l)
				for _, n := range c.Candidates {
					if n.Type.Name == l.InstanceTypes[0].Name && n.CapacityType == l.Offering.CapacityType && n.Price <= l.Offering.Price {
						t.Errorf("seed %d: %s is replaced by an equal node", seed, n.Node.Name)
					}
				}
			}
			if most >= price || c.Savings <= 0 || c.Savings < price-least-1e-9 || c.Savings > price-least+1e-9 {
				t.Errorf("seed %d: nodes of %v $/h are replaced by nodes of %v to %v $/h, to save %v", seed, price, least, most, c.Savings)
			}
			for _, v := range c.Verdicts {
				if !v.Approved {
					t.Errorf("seed %d: pool %s rejects a command", seed, v.Pool.Name)
				}
			}
			for _, pl := range c.Plan.Placements {
				n := &s.Nodes[slices.IndexFunc(s.Nodes, func(n snapshot.Node) bool { return n.Name == pl.Node })]
				if !n.Initialized {
					t.Errorf("seed %d: pods move to %s, which is not initialized", seed, pl.Node)
				}
			}
		}
		for _, a := range disrupt.Allowances(s, karpv1.DisruptionUnderutilized) {
			if ends[a.Pool.Name] > a.Available() {
				t.Errorf("seed %d: %d nodes of pool %s are removed, the budget allows %d", seed, ends[a.Pool.Name], a.Pool.Name, a.Available())
			}
		}
		if got := len(seen) + len(r.Unconsolidatable); got != len(candidates(s)) {
			t.Errorf("seed %d: of %d candidates, %d are removed or left", seed, len(candidates(s)), got)
		}
		for _, l := range r.Unconsolidatable {
			if l.Message == "" {
				t.Errorf("seed %d: no message says why %s stays", seed, l.Candidate.Node.Name)
			}
		}
		again := consolidate.Compile(s)
		for i := range r.Commands {
			if err := consolidate.Recheck(again, s, &r.Commands[i], st); err != nil {
				t.Errorf("seed %d: a command is not valid on the snapshot on which it was found: %v", seed, err)
			}
		}
	}
	if found < 150 || launches < 50 {
		t.Errorf("%d commands with %d launches: too few for a test", found, launches)
	}
}

// worstLaunchPrice is the most that a launch may cost: the first available capacity type is launched.
func worstLaunchPrice(l *schedule.Launch) float64 {
	most := 0.0
	for _, it := range l.InstanceTypes {
		for _, kind := range []string{karpv1.CapacityTypeReserved, spot, onDemand} {
			known := false
			for _, o := range it.Offerings {
				if o.Available && o.CapacityType == kind && l.Requirements.Overlaps(o.Requirements) {
					most, known = max(most, o.Price), true
				}
			}
			if known {
				break
			}
		}
	}
	return most
}

// TestOrderOfInputDoesNotMatter shuffles the lists that have no order.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(30) {
		s := fragmented(t, seed)
		describeAll := func(s *snapshot.Snapshot) (out []string) {
			r := find(s, defaults())
			for i := range r.Commands {
				out = append(out, consolidate.Explain(&r.Commands[i])...)
			}
			for _, l := range r.Unconsolidatable {
				out = append(out, l.Candidate.Node.Name+" stays: "+l.Message)
			}
			slices.Sort(out)
			return out
		}
		want := describeAll(s)
		r := rand.New(rand.NewPCG(seed, 6))
		other := *s
		other.Nodes, other.Pools = slices.Clone(s.Nodes), slices.Clone(s.Pools)
		r.Shuffle(len(other.Nodes), func(i, k int) { other.Nodes[i], other.Nodes[k] = other.Nodes[k], other.Nodes[i] })
		r.Shuffle(len(other.Pools), func(i, k int) { other.Pools[i], other.Pools[k] = other.Pools[k], other.Pools[i] })
		if diff := cmp.Diff(want, describeAll(&other)); diff != "" {
			t.Fatalf("seed %d: in another order, want -, got +\n%s", seed, diff)
		}
	}
}

// TestFindRestoresProblem runs the same simulations before and after a search.
func TestFindRestoresProblem(t *testing.T) {
	for seed := range uint64(20) {
		s := fragmented(t, seed)
		s.Pods = []*corev1.Pod{Pod("pending", Requests("cpu", "500m"))}
		list := candidates(s)
		p := consolidate.Compile(s)
		simulate := func() []string {
			var out []string
			for _, c := range list {
				plan := p.WhatIf([]int{c.Index}, c.Pods, schedule.Budget{FirstFitOnly: true})
				out = append(out, fmt.Sprint(c.Node.Name, len(plan.Launches), plan.Stats.HourlyCost, len(plan.Rejected)))
				for _, pl := range plan.Placements {
					out = append(out, fmt.Sprint(pl.Node, len(pl.Pods)))
				}
			}
			return out
		}
		before := simulate()
		consolidate.Find(
			consolidate.Input{
				Problem:    p,
				Snapshot:   s,
				Candidates: list,
				Budgets:    disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
				Totals:     consolidate.PoolTotals(s, list, nil),
			},
			defaults(),
		)
		if diff := cmp.Diff(before, simulate()); diff != "" {
			t.Fatalf("seed %d: before -, after +\n%s", seed, diff)
		}
	}
}
