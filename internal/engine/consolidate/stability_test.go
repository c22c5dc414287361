package consolidate_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// TestConvergesAndStaysConverged searches every ten minutes in fleets with constant pods: at some time no
// command is found, nor in the 24 hours after. No node is ever replaced by an equal one.
func TestConvergesAndStaysConverged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		world  func() *snapshot.Snapshot
		budget string
	}{
		{"on-demand", func() *snapshot.Snapshot { return fleet(t, 100, 0.31, 11) }, "100%"},
		{"on-demand, a tenth at a time", func() *snapshot.Snapshot { return fleet(t, 60, 0.31, 12) }, "10%"},
		{"spot and on-demand", func() *snapshot.Snapshot { return fleet(t, 60, 0.31, 13, onDemand, spot) }, "20%"},
		{"topology", func() *snapshot.Snapshot { return fragmented(t, 30) }, "100%"},
		{"volumes", func() *snapshot.Snapshot { return fragmented(t, 32) }, "100%"},
		{"several pools", func() *snapshot.Snapshot { return fragmented(t, 33) }, "100%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := budget(tt.world(), tt.budget)
			start := fleetCost(s)
			commands, moved, idle := 0, 0, time.Duration(0)
			for idle < 24*time.Hour {
				if s.Now.Sub(Now()) > 30*24*time.Hour {
					t.Fatalf("after a month and %d commands another is found", commands)
				}
				r := find(s, defaults())
				idle += 10 * time.Minute
				for i := range r.Commands {
					c := &r.Commands[i]
					idle = 0
					commands++
					moved += podsMoved(c)
					wantNoEqualReplacement(t, c)
				}
				if s = carryOut(s, r.Commands, 10*time.Minute); idle == 2*time.Hour {
					s = carryOut(s, nil, 22*time.Hour) // only the age of nodes depends on the time now
					idle = 23 * time.Hour
				}
			}
			t.Logf(
				"%d commands, $%.2f/h -> $%.2f/h, %.1f pods moved per $/h saved",
				commands,
				start,
				fleetCost(s),
				float64(moved)/max(start-fleetCost(s), 1e-9),
			)
		})
	}
}

func wantNoEqualReplacement(t *testing.T, c *disrupt.Command) {
	t.Helper()
	for k := range c.Plan.Launches {
		l := &c.Plan.Launches[k]
		for _, n := range c.Candidates {
			if n.Type.Name == l.InstanceTypes[0].Name && n.Price <= l.Offering.Price {
				t.Errorf("%s, a %s for $%v/h, is replaced by an equal one", n.Node.Name, n.Type.Name, n.Price)
			}
		}
	}
}

// TestYoungNodes replaces a young node only if the savings repay the time in which both nodes are paid for.
func TestYoungNodes(t *testing.T) {
	for _, tt := range []struct {
		age      time.Duration
		price    float64
		replaced bool
	}{
		{time.Minute, 0.19, false},
		{10 * time.Minute, 0.19, false},
		{time.Hour, 0.19, true},
		{-time.Minute, 0.01, false},
		{10 * time.Minute, 0.14, true},
		{2 * time.Minute, 0.05, true},
		{2 * time.Minute, 0.14, false},
		{0, 0.05, false},
	} {
		s := world([]*catalog.InstanceType{priced("m", 2, tt.price, 0), priced("xl", 4, 0.2, 0)})
		add(s, 0, "node", "xl", onDemand, one("pod", "1")).CreatedAt = s.Now.Add(-tt.age)
		r := find(s, defaults())
		if got := len(removedNames(r)) > 0; got != tt.replaced {
			t.Errorf("a node of $0.2/h that is %v old is replaced by one of $%v/h: %v, want %v", tt.age, tt.price, got, tt.replaced)
		}
		// A node that needs no replacement is removed at any age.
		add(s, 0, "room", "xl", onDemand, one("own", "1"), one("own-2", "1")).Consolidatable = false
		if r := find(s, defaults()); !slices.Contains(removedNames(r), "node") {
			t.Errorf("found %s, want the node of age %v to be removed", describe(r), tt.age)
		}
	}
}

// TestYoungNodeIsReplacedAsSoonAsItRepays names the instant from which on a move is right, and finds the move then, not a second before.
func TestYoungNodeIsReplacedAsSoonAsItRepays(t *testing.T) {
	for _, tt := range []struct {
		price float64 // of the replacement of a node of $0.2/h
		age   time.Duration
	}{
		{0.1, 3 * time.Minute},
		{0.15, 9 * time.Minute},
		{0.05, time.Minute},
		{0.199, time.Hour},
		{0.13, 335 * time.Second}, // 5 min 34.3 s
	} {
		s := world([]*catalog.InstanceType{priced("m", 2, tt.price, 0), priced("xl", 4, 0.2, 0)})
		created := s.Now
		add(s, 0, "node", "xl", onDemand, one("pod", "1")).CreatedAt = created
		for _, early := range []time.Duration{0, tt.age / 2, tt.age - time.Second} {
			s.Now = created.Add(early)
			r := find(s, defaults())
			if len(r.Commands) > 0 || !r.NextChange.Equal(created.Add(tt.age)) || !r.Unconsolidatable[0].Until.Equal(created.Add(tt.age)) {
				t.Errorf("$%v/h, age %v: %s, next change %v, %+v; want a change at %v", tt.price, early, describe(r), r.NextChange, r.Unconsolidatable, created.Add(tt.age))
			}
			if why := r.Unconsolidatable[0]; why.Reason.Quiet() || !strings.Contains(why.Message, "once the node is "+tt.age.String()+" old") {
				t.Errorf("$%v/h, age %v: the reason is %q, event %v", tt.price, early, why.Message, !why.Reason.Quiet())
			}
		}
		s.Now = created.Add(tt.age)
		if r := find(s, defaults()); len(r.Commands) != 1 || !r.NextChange.IsZero() {
			t.Errorf("$%v/h, age %v: %s, next change %v; want the replacement", tt.price, tt.age, describe(r), r.NextChange)
		}
	}
}

// A node that nothing cheaper can replace is not waited for.
func TestYoungNodeWithoutSavingIsNotCalledYoung(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
	add(s, 0, "node", "xl", onDemand, one("pod", "1")).CreatedAt = s.Now.Add(-time.Minute)
	r := find(s, defaults())
	if len(r.Unconsolidatable) != 1 || strings.Contains(r.Unconsolidatable[0].Message, "young") || !r.NextChange.IsZero() {
		t.Errorf("%+v, next change %v", r.Unconsolidatable, r.NextChange)
	}
}

// day is a cluster in which pods come and go by chance, for 24 hours.
type day struct {
	s    *snapshot.Snapshot
	r    *rand.Rand
	find func(*snapshot.Snapshot) []disrupt.Command

	pods               int // so far
	pending            []*corev1.Pod
	leavesAt           map[types.UID]time.Time // when pods are deleted
	launched, replaced int
	moved, mostNodes   int
	dollars, nodeHours float64
	// lowerBound is the least that nodes for the pods could have cost.
	lowerBound float64

	// tick is the time between two steps, lifetime how long pods live on average.
	tick, lifetime time.Duration
	// ageless nodes are never young; overlap is what replacements cost while they boot and the nodes that they replace are paid for, in $.
	ageless bool
	overlap float64
}

// run simulates the day.
func (d *day) run() {
	for step := range int(24 * time.Hour / d.tick) {
		hours := float64(step) * d.tick.Hours()
		d.churn(hours)
		d.schedule()
		d.provision()
		d.consolidate()
		d.lowerBound += lowerBound(d.s) * d.tick.Hours()
		for i := range d.s.Nodes {
			d.dollars += d.s.Nodes[i].Price * d.tick.Hours()
		}
		d.nodeHours += float64(len(d.s.Nodes)) * d.tick.Hours()
		d.mostNodes = max(d.mostNodes, len(d.s.Nodes))
		d.s.Now = d.s.Now.Add(d.tick)
	}
}

// come deletes pods, and creates others until there are as many as this hour needs. Which and when depends on
// nothing but the seed.
func (d *day) churn(hours float64) {
	over := func(p *corev1.Pod) bool { return !d.leavesAt[p.UID].After(d.s.Now) }
	d.pending = slices.DeleteFunc(d.pending, over)
	count := len(d.pending)
	for i := range d.s.Nodes {
		n := &d.s.Nodes[i]
		n.Pods = slices.DeleteFunc(slices.Clone(n.Pods), over)
		count += len(n.Pods)
	}
	want := 250 * (1 + 0.7*math.Sin(hours/24*2*math.Pi)) * (0.9 + 0.2*d.r.Float64())
	for ; float64(count) < want; count++ {
		d.pods++
		cpu := []string{"100m", "250m", "500m", "1", "2"}[d.r.IntN(5)]
		memory := []string{"256Mi", "1Gi", "2Gi", "4Gi"}[d.r.IntN(4)]
		p := Pod(fmt.Sprintf("pod-%06d", d.pods), Requests("cpu", cpu, "memory", memory), OwnedBy("apps/v1", "ReplicaSet"))
		d.leavesAt[p.UID] = d.s.Now.Add(time.Duration(d.r.ExpFloat64() * float64(d.lifetime)))
		d.pending = append(d.pending, p)
	}
}

// schedule binds pending pods to the least allocated node, as kube-scheduler does.
func (d *day) schedule() {
	var left []*corev1.Pod
	for _, p := range d.pending {
		requests := snapshot.Requests(p)
		best, most := -1, -1.0
		for i := range d.s.Nodes {
			n := &d.s.Nodes[i]
			used := corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(300, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(500<<20, resource.BinarySI),
			}
			for _, other := range n.Pods {
				for name, q := range snapshot.Requests(other) {
					sum := used[name]
					sum.Add(q)
					used[name] = sum
				}
			}
			fits, free := true, 0.0
			for name, q := range requests {
				have, taken := n.Allocatable[name], used[name]
				taken.Add(q)
				fits = fits && taken.Cmp(have) <= 0
				if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
					free += 1 - taken.AsApproximateFloat64()/have.AsApproximateFloat64()
				}
			}
			if fits && free > most {
				best, most = i, free
			}
		}
		if best < 0 {
			left = append(left, p)
			continue
		}
		d.bind(p, best)
	}
	d.pending = left
}

func (d *day) bind(p *corev1.Pod, i int) {
	n := &d.s.Nodes[i]
	n.Pods = append(slices.Clone(n.Pods), Bound(p, n.Name))
}

// provision launches nodes for pods that fit on none.
func (d *day) provision() {
	d.s.Pods = d.pending
	plan := schedule.Solve(d.s, schedule.Budget{})
	d.s.Pods = nil
	d.launch(plan.Launches)
	d.pending = nil
}

func (d *day) launch(launches []schedule.Launch) {
	for i := range launches {
		l := &launches[i]
		d.launched++
		n := workload.Node(fmt.Sprintf("node-%05d", d.launched), l.Pool, l.InstanceTypes[0], l.Offering)
		if !d.ageless {
			n.CreatedAt = d.s.Now
		}
		d.s.Nodes = append(d.s.Nodes, n)
		for _, p := range l.Pods {
			d.bind(p, len(d.s.Nodes)-1)
		}
	}
}

// consolidate carries out the commands; the scheduler binds the pods that do not move to a new node.
func (d *day) consolidate() {
	removed := map[string]bool{}
	for i := range d.s.Nodes {
		n := &d.s.Nodes[i]
		if len(n.Pods) == 0 {
			removed[n.Name] = true
		}
	}
	d.s.Nodes = slices.DeleteFunc(slices.Clone(d.s.Nodes), func(n snapshot.Node) bool { return removed[n.Name] })
	for _, c := range d.find(d.s) {
		for _, k := range c.Candidates {
			removed[k.Node.Name] = true
			d.moved += len(k.Pods)
			if len(c.Plan.Launches) > 0 {
				d.replaced++
			}
		}
		for _, pl := range c.Plan.Placements {
			d.pending = append(d.pending, pl.Pods...)
		}
		d.launch(c.Plan.Launches)
		for i := range c.Plan.Launches {
			d.overlap += c.Plan.Launches[i].Offering.Price * (3 * time.Minute).Hours()
		}
	}
	d.s.Nodes = slices.DeleteFunc(slices.Clone(d.s.Nodes), func(n snapshot.Node) bool { return removed[n.Name] })
	d.schedule()
}

// plainly is the baseline: it removes the first node, by price per pod, with pods that fit elsewhere by first fit, or
// on one new node that is cheaper.
func firstFit(s *snapshot.Snapshot) []disrupt.Command {
	list := candidates(s)
	slices.SortStableFunc(list, func(a, b *disrupt.Candidate) int { return cmp.Compare(b.Price*a.Cost, a.Price*b.Cost) })
	p := schedule.Compile(s)
	for _, c := range list {
		if len(c.Pods) == 0 {
			continue
		}
		plan := p.WhatIf([]int{c.Index}, c.Pods, schedule.Budget{FirstFitOnly: true})
		if len(plan.Rejected) == 0 && len(plan.Launches) <= 1 && plan.Stats.HourlyCost < c.Price {
			return []disrupt.Command{{Candidates: []*disrupt.Candidate{c}, Plan: plan, Savings: c.Price - plan.Stats.HourlyCost}}
		}
	}
	return nil
}

// TestDay compares days of random load with the same days that first fit consolidates. Which nodes are replaced in one
// day depends on the last digits of prices, so the days count together.
func TestDay(t *testing.T) {
	const days = 4
	ours := func(s *snapshot.Snapshot) []disrupt.Command { return find(s, defaults()).Commands }
	type total struct {
		dollars  float64
		replaced int
	}
	sums := map[string]total{}
	for _, tt := range []struct {
		name string
		find func(*snapshot.Snapshot) []disrupt.Command
	}{{"search", ours}, {"first fit", firstFit}} {
		for seed := range uint64(days) {
			d := newDay(t, seed+1, tt.find)
			d.run()
			sum := sums[tt.name]
			sums[tt.name] = total{sum.dollars + d.dollars, sum.replaced + d.replaced}
			t.Logf(
				"%s, day %d: $%.2f (%.3f x the bound), %d nodes launched, at most %d at once, %d or %.2f replaced per node and day, %d pods moved",
				tt.name, seed+1, d.dollars, d.dollars/d.lowerBound, d.launched, d.mostNodes, d.replaced, float64(d.replaced)/(d.nodeHours/24), d.moved,
			)
		}
	}
	search, plain := sums["search"], sums["first fit"]
	if search.dollars > plain.dollars {
		t.Errorf("the days cost $%.2f, $%.2f by first fit", search.dollars, plain.dollars)
	}
	// First fit removes one node in a pass, and most stay half empty. The search must not replace many more nodes to
	// save the rest. Single days range from 1.1 to 1.5 times as many, so a limit for one of them states little.
	if 3*search.replaced > 4*plain.replaced {
		t.Errorf("%d nodes are replaced, %d by first fit", search.replaced, plain.replaced)
	}
}

// newDay is a day of random load from a seed.
func newDay(t testing.TB, seed uint64, find func(*snapshot.Snapshot) []disrupt.Command) *day {
	s := workload.Snapshot([]snapshot.Pool{workload.GeneralPool("general", ec2(t))}, nil, true)
	return &day{
		s: budget(s, "10%"), r: rand.New(rand.NewPCG(seed, seed)), find: find, leavesAt: map[types.UID]time.Time{},
		tick: 15 * time.Minute, lifetime: 4 * time.Hour,
	}
}

// BenchmarkYoungNodes measures the rule for young nodes: a day of pods that live for 20 minutes on average, with the rule and without it.
// Over seeds 1 to 3 the rule saves 4 % of the replacements and of the evictions; the cost, the time in which both a node and its replacement
// run included, is 0.2 % lower.
func BenchmarkYoungNodes(b *testing.B) {
	for _, ageless := range []bool{false, true} {
		b.Run(map[bool]string{false: "rule", true: "no rule"}[ageless], func(b *testing.B) {
			for i := range b.N {
				d := newDay(b, uint64(i+1), func(s *snapshot.Snapshot) []disrupt.Command { return find(s, defaults()).Commands })
				d.tick, d.lifetime, d.ageless = 5*time.Minute, 20*time.Minute, ageless
				d.run()
				b.ReportMetric(d.dollars+d.overlap, "$/day")
				b.ReportMetric(float64(d.replaced), "replaced")
				b.ReportMetric(float64(d.moved), "evicted")
			}
		})
	}
}
