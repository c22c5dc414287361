package propertytest

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Happening is something that is in a part of the worlds of a generator, or in their plans.
type Happening struct {
	What string
	// Share is in which part of the worlds it is at least, from 0 to 1. State less than there is, about two thirds.
	Share float64
	In    func(*snapshot.Snapshot, *schedule.Plan) bool
}

// Tally counts in how many worlds something happens. What a generator no longer makes, no test can find fault with.
type Tally struct {
	list   []Happening
	worlds int
	found  []int
}

// NewTally counts these.
func NewTally(list ...Happening) *Tally { return &Tally{list: list, found: make([]int, len(list))} }

// Add counts a world with its plan.
func (t *Tally) Add(s *snapshot.Snapshot, plan *schedule.Plan) {
	t.worlds++
	for i := range t.list {
		t.found[i] += btoi(t.list[i].In(s, plan))
	}
}

// Rare states what has happened in so few worlds that it is not bad luck. Of what should be in half of the worlds, 14 without it are enough
// for that, and of what should be in a tenth of them, 90.
func (t *Tally) Rare() (out []string) {
	for i := range t.list {
		if h := &t.list[i]; isRare(t.found[i], t.worlds, h.Share) {
			out = append(out, fmt.Sprintf("%s: in %d of %d worlds, not in %.0f %% of them", h.What, t.found[i], t.worlds, 100*h.Share))
		}
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// badLuck sets the probability below which something is not rare by chance. There is more than the stated shares of all, so that it is far
// less likely than that.
const badLuck = 1e-4

// isRare reports whether something that is in this share of all worlds is found so rarely, or even more rarely, with a probability below
// badLuck.
func isRare(found, worlds int, share float64) bool {
	if float64(found) >= share*float64(worlds) {
		return false
	}
	ways := func(k int) float64 { // logarithm of how many ways there are to choose k of the worlds
		all, _ := math.Lgamma(float64(worlds + 1))
		these, _ := math.Lgamma(float64(k + 1))
		others, _ := math.Lgamma(float64(worlds - k + 1))
		return all - these - others
	}
	p := 0.0
	for k := range found + 1 {
		p += math.Exp(ways(k) + float64(k)*math.Log(share) + float64(worlds-k)*math.Log1p(-share))
	}
	return p < badLuck
}

// SchedulerHappenings are what is in each kind of SchedulerWorlds.
func SchedulerHappenings() []Happening {
	ofWorld := func(in func(*snapshot.Snapshot) bool) func(*snapshot.Snapshot, *schedule.Plan) bool {
		return func(s *snapshot.Snapshot, _ *schedule.Plan) bool { return in(s) }
	}
	ofPods := func(in func(*corev1.Pod) bool) func(*snapshot.Snapshot, *schedule.Plan) bool {
		return ofWorld(func(s *snapshot.Snapshot) bool { return slices.ContainsFunc(podsOf(s), in) })
	}
	ofSpreads := func(in func(*corev1.TopologySpreadConstraint) bool) func(*snapshot.Snapshot, *schedule.Plan) bool {
		return ofPods(func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return in(&c) })
		})
	}
	ofPools := func(in func(*snapshot.Pool) bool) func(*snapshot.Snapshot, *schedule.Plan) bool {
		return ofWorld(func(s *snapshot.Snapshot) bool {
			return slices.ContainsFunc(s.Pools, func(p snapshot.Pool) bool { return in(&p) })
		})
	}
	return []Happening{
		{"a pod on an existing node", 0.15, func(_ *snapshot.Snapshot, plan *schedule.Plan) bool { return len(plan.Placements) > 0 }},
		{"a new node", 0.2, func(_ *snapshot.Snapshot, plan *schedule.Plan) bool { return len(plan.Launches) > 0 }},
		{"a rejected pod", 0.45, func(_ *snapshot.Snapshot, plan *schedule.Plan) bool { return len(plan.Rejected) > 0 }},
		{"a DaemonSet", 0.4, ofWorld(func(s *snapshot.Snapshot) bool { return len(s.DaemonSets) > 0 })},
		{"a DaemonSet with a host port", 0.06, ofWorld(func(s *snapshot.Snapshot) bool {
			return slices.ContainsFunc(s.DaemonSets, func(d snapshot.DaemonSet) bool { return len(d.Pod.Spec.Containers[0].Ports) > 0 })
		})},
		{"a pool with a taint", 0.25, ofPools(func(p *snapshot.Pool) bool { return len(p.NodePool.Spec.Template.Spec.Taints) > 0 })},
		{"a pool with a limit", 0.15, ofPools(func(p *snapshot.Pool) bool { return len(p.NodePool.Spec.Limits) > 0 })},
		{"a pod that terminates", 0.12, ofPods(func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })},
		{"an affinity", 0.3, ofPods(func(p *corev1.Pod) bool { return len(nearOf(p)) > 0 })},
		{"an anti-affinity", 0.3, ofPods(func(p *corev1.Pod) bool { return len(antiTerms(p)) > 0 })},
		{"a node selector", 0.4, ofPods(func(p *corev1.Pod) bool { return len(p.Spec.NodeSelector) > 0 })},
		{"a host port", 0.07, ofPods(func(p *corev1.Pod) bool { return len(p.Spec.Containers[0].Ports) > 0 })},
		{"a pod of another namespace", 0.13, ofPods(func(p *corev1.Pod) bool { return p.Namespace != "default" })},
		{"a spread", 0.5, ofSpreads(func(*corev1.TopologySpreadConstraint) bool { return true })},
		{"minDomains", 0.07, ofSpreads(func(c *corev1.TopologySpreadConstraint) bool { return c.MinDomains != nil })},
		{"nodeTaintsPolicy", 0.3, ofSpreads(func(c *corev1.TopologySpreadConstraint) bool { return c.NodeTaintsPolicy != nil })},
		{"nodeAffinityPolicy", 0.3, ofSpreads(func(c *corev1.TopologySpreadConstraint) bool { return c.NodeAffinityPolicy != nil })},
		{"matchLabelKeys", 0.07, ofSpreads(func(c *corev1.TopologySpreadConstraint) bool { return len(c.MatchLabelKeys) > 0 })},
	}
}
