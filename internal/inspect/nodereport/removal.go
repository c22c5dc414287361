package nodereport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Removal describes what would become of the pods of a node if it were removed now, whatever protects it.
type Removal struct {
	// Blocks states why its pods cannot all run elsewhere; empty if they can.
	Blocks string `json:"blocks"`
	// WithoutNode names these pods, each with its reason; empty if they wait for something else.
	WithoutNode string `json:"-"`
	// Accepted is true if consolidation would remove the node if nothing protected it; Why states why not.
	Accepted bool   `json:"accepted"`
	Why      string `json:"why"`
	// HourlySavings holds what the removal saves, in $/h; negative if it costs more.
	HourlySavings float64   `json:"hourlySavings"`
	Launches      []NewNode `json:"launches"`
	Pods          []Move    `json:"pods"`
}

// NewNode is a node that would be launched.
type NewNode struct {
	InstanceType string `json:"instanceType"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	NodePool     string `json:"nodePool"`
	// HourlyCost in $/h.
	HourlyCost float64 `json:"hourlyCost"`
}

// Move states where a pod would run.
type Move struct {
	Pod string `json:"pod"`
	// Node is the existing node that takes it, or the instance type of the new one; empty if the pod goes nowhere.
	Node string `json:"node"`
	// New is true for a node that would be launched.
	New bool `json:"new"`
	// Why is set if it does not move: it finishes with the node, or fits nowhere.
	Why string `json:"why"`
	// Nowhere is true if no node has room for it.
	Nowhere bool `json:"-"`
}

// cost returns what the launches cost, in $/h, and their names.
func (m *Removal) cost() (float64, string) {
	sum := 0.0
	names := make([]string, 0, len(m.Launches))
	for i := range m.Launches {
		sum += m.Launches[i].HourlyCost
		names = append(names, m.Launches[i].InstanceType)
	}
	slices.Sort(names)
	return sum, strings.Join(slices.Compact(names), " and ")
}

// without is the snapshot in which nothing protects a node. The engine answers for it as for any other. It is as before if
// the Problem of the snapshot is that of the result, too: its pods, its pools, and the room that it promises are the same.
func without(s *snapshot.Snapshot, index int) (changed *snapshot.Snapshot, asBefore bool) {
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	n := &out.Nodes[index]
	asBefore = len(n.Nominated) == 0
	n.Annotations = maps.Clone(n.Annotations)
	delete(n.Annotations, karpv1.AnnotationDoNotDisrupt)
	n.NominatedUntil, n.Nominated, n.Replaces, n.Virtual = time.Time{}, nil, nil, 0
	n.Consolidatable, n.CreatedAt = true, s.Now.Add(-24*time.Hour)
	n.Pods = slices.Clone(n.Pods)
	for i, p := range n.Pods {
		if !snapshot.Disruptable(p, s.Now) {
			free := p.DeepCopy()
			delete(free.Annotations, karpv1.AnnotationDoNotDisrupt)
			n.Pods[i], asBefore = free, false
		}
	}
	selecting := map[*policyv1.PodDisruptionBudget]bool{}
	for _, b := range snapshot.Budgets(s.PDBs) {
		selecting[b.PodDisruptionBudget] = slices.ContainsFunc(n.Pods, b.Selects)
	}
	out.PDBs = slices.DeleteFunc(slices.Clone(s.PDBs), func(p *policyv1.PodDisruptionBudget) bool { return selecting[p] })
	out.Pools = slices.Clone(s.Pools)
	for i := range out.Pools {
		if p := &out.Pools[i]; p.NodePool.Name == n.Pool && p.NodePool.Spec.Replicas == nil {
			before := p.NodePool
			p.NodePool = consolidating(before)
			asBefore = asBefore && p.NodePool == before
		}
	}
	return &out, asBefore
}

// consolidating is the pool without what its own rules keep: the pool itself if they keep nothing.
func consolidating(pool *karpv1.NodePool) *karpv1.NodePool {
	if d := &pool.Spec.Disruption; !d.ConsolidateAfter.IsNever() && d.ConsolidationPolicy != karpv1.ConsolidationWhenEmpty {
		return pool
	}
	out := *pool
	d := &out.Spec.Disruption
	if d.ConsolidateAfter.IsNever() {
		d.ConsolidateAfter = karpv1.After(0)
	}
	if d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty {
		d.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
	}
	return &out
}

// removal simulates the removal of the node alone. It is nil for a node without a pool, since nothing could be stated of its
// price, for one of a static pool, which launches another in its place, and for one without pods that pending pods will get.
func (b *builder) removal() *Removal {
	if b.pool == nil || b.pool.Spec.Replicas != nil || b.n.Unplannable != "" {
		return nil
	}
	s, asBefore := without(b.Snapshot, b.index)
	view := disrupt.NewView(s)
	at := slices.IndexFunc(view.Candidates, func(c *disrupt.Candidate) bool { return c.Index == b.index })
	if at < 0 {
		return nil
	}
	c := view.Candidates[at]
	out := &Removal{Launches: []NewNode{}, Pods: []Move{}}
	problem := b.problemOf(s, asBefore)
	found := pass.Alone(problem, view, c, consolidate.Settings{
		SpotToSpot: b.Search.SpotToSpot, MaxSteps: consolidate.DefaultMaxSteps,
	})
	outcome := disrupt.EvaluateRemoval(s, []*disrupt.Candidate{c}, problem.WhatIf([]int{c.Index}, c.Pods, schedule.DefaultBudget()))
	switch {
	case len(found.Commands) > 0:
		out.Accepted, out.HourlySavings = true, found.Commands[0].Savings
		outcome = disrupt.RemovalOutcome{Plan: found.Commands[0].Plan}
	case len(c.Pods) == 0 && b.awaited():
		return nil // what it would cost to launch another for the pods that it will get is not known
	case len(c.Pods) == 0:
		out.Accepted, out.HourlySavings = c.Cost <= 1, b.price()
	default:
		out.Blocks, out.WithoutNode = outcome.Why().Message, outcome.WithoutNode()
		out.HourlySavings = b.price() - disrupt.LaunchCost(outcome.Plan)
		if len(found.Unconsolidatable) > 0 {
			out.Why = found.Unconsolidatable[0].Message
		}
	}
	out.fill(b.n.Pods, &outcome)
	b.alone, b.unprotected, b.freed = out, s, problem
	return out
}

// problemOf is the Problem of a snapshot that without returned. To compile it takes a second in a cluster of 2,000 nodes.
func (b *builder) problemOf(s *snapshot.Snapshot, asBefore bool) *schedule.Problem {
	if asBefore {
		return b.compiled()
	}
	return consolidate.Compile(s)
}

// awaited reports whether pending pods will get the node.
func (b *builder) awaited() bool { return b.incoming[b.n.Name] != nil || len(b.n.Nominated) > 0 }

// fill lists the launches and where each pod goes.
func (m *Removal) fill(pods []*corev1.Pod, o *disrupt.RemovalOutcome) {
	to := map[types.UID]Move{}
	for _, pl := range o.Plan.Placements {
		for _, p := range pl.Pods {
			to[p.UID] = Move{Node: pl.Node}
		}
	}
	for i := range o.Plan.Launches {
		l := &o.Plan.Launches[i]
		m.Launches = append(m.Launches, NewNode{l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, l.Pool.Name, l.Offering.Price})
		for _, p := range l.Pods {
			to[p.UID] = Move{Node: l.InstanceTypes[0].Name, New: true}
		}
	}
	for i := range o.Unschedulable {
		r := &o.Unschedulable[i]
		to[r.Pod.UID] = Move{Why: "fits nowhere: " + reasons(r), Nowhere: true}
	}
	for _, p := range pods {
		move, moves := to[p.UID]
		switch {
		case moves:
		case snapshot.DaemonOwned(p), snapshot.Mirror(p):
			move.Why = "ends with the node"
		case !snapshot.Active(p):
			move.Why = "has ended, or is terminating"
		default:
			move.Why = "stays until the node is gone"
		}
		move.Pod = podName(p)
		m.Pods = append(m.Pods, move)
	}
}

func reasons(r *schedule.Rejection) string {
	parts := make([]string, 0, len(r.Reasons))
	for _, why := range r.Reasons {
		if why.NodePool == "" {
			parts = append(parts, wording.Reason(why))
			continue
		}
		parts = append(parts, fmt.Sprintf("nodepool %s: %s", why.NodePool, wording.Reason(why)))
	}
	return cmp.Or(strings.Join(parts, "; "), "no reason is known")
}
