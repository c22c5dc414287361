package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Candidate is a node that nothing blocks from disruption.
type Candidate struct {
	// Index of Node in its snapshot's Nodes.
	Index int
	Node  *snapshot.Node
	Pool  *karpv1.NodePool
	// PoolClosed is true while the pool can launch nothing, as while it or its node class is not Ready: its types are not known then.
	PoolClosed bool
	// Type is nil if the node's label names none that its pool can launch.
	Type *catalog.InstanceType
	// Zone and CapacityType are the node's labels, empty where missing.
	Zone, CapacityType string
	// Price in $/h of the first offering of Type in Zone of CapacityType, available or not; 0 if unknown.
	Price float64
	// Pods are the pods that must be scheduled elsewhere when the node is removed.
	Pods []*corev1.Pod
	// Cost of moving the pods, in plain pods, and 1 for the node itself.
	Cost float64

	// podsPerPDB counts how many of the pods each PodDisruptionBudget selects.
	podsPerPDB map[*policyv1.PodDisruptionBudget]int
}

// TypeEmpty is the consolidation type of a command that deletes empty nodes.
const TypeEmpty = "empty"

// Command is one decision: remove the candidates once the plan's launches are initialized.
type Command struct {
	// ID identifies the decision in logs, events and recordings. The caller that decides sets it; the engine does not read it.
	ID     string
	Reason karpv1.DisruptionReason
	// ConsolidationType is the label consolidation_type of metrics: TypeEmpty, multi, single; "" for drift.
	ConsolidationType string
	Candidates        []*Candidate
	// Plan places the pods. Its launches are the replacements.
	Plan plan.Plan
	// Savings in $/h.
	Savings float64
	// Verdicts of the pools of policy Balanced.
	Verdicts []Verdict
	// Bound of the drain, which counts from the deletion of the candidates; nil if only their NodeClaims bound it. A
	// command with a bound evicts protected pods in the end.
	Bound *time.Duration
	// Reboot is true if the candidate is rebooted instead of removed.
	Reboot bool
	// TerminateFirst states why the candidate is terminated before a replacement is launched; empty if it is not. The command
	// launches nothing: provisioning, or the static pool, launches the replacement in one of RefillPools.
	TerminateFirst TerminateFirstReason
	RefillPools    []string
}

// Replaces reports whether the candidates go since something is wrong with them, whatever their replacements cost.
func (c *Command) Replaces() bool { return ReplacesFor(c.Reason) }

// ReplacesFor reports whether nodes that go for a reason are replaced, whatever that costs.
func ReplacesFor(reason karpv1.DisruptionReason) bool {
	return reason == karpv1.DisruptionDrifted || reason == karpv1.DisruptionUnhealthy || reason == karpv1.DisruptionExpired
}

// Static reports whether the command launches the replacement of a node of a static pool: one that the plan does not have.
func (c *Command) Static() bool {
	return c.Replaces() && c.TerminateFirst == "" && !c.Reboot && c.Candidates[0].Pool.Spec.Replicas != nil
}

// Replacements is how many replacements the command launches.
func (c *Command) Replacements() int {
	switch {
	case c.Reboot:
		return 0
	case c.Static():
		return 1
	}
	return len(c.Plan.Launches)
}

// Pools are the pools that lose or gain nodes, sorted.
func (c *Command) Pools() []string {
	out := slices.Clone(c.RefillPools)
	for _, n := range c.Candidates {
		out = append(out, n.Pool.Name)
	}
	for i := range c.Plan.Launches {
		out = append(out, c.Plan.Launches[i].Pool.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Verdict is whether a NodePool of policy Balanced approves a command, as far as the command removes its nodes.
type Verdict struct {
	Pool     *karpv1.NodePool
	Approved bool
	// Score is Savings over Disruption, both as shares of the pool's totals; +Inf if nothing is disrupted.
	Score, Savings, Disruption float64
	// Saved is the pool's part of the savings, in $/h, Disturbed its part of the disruption cost, in plain pods.
	// Savings and Disruption are their shares of PoolCost and PoolDisruption.
	Saved, Disturbed, PoolCost, PoolDisruption float64
}

// Unconsolidatable is a candidate that no command removes.
type Unconsolidatable struct {
	Candidate *Candidate
	Why
	// Until is the time when the reason finishes by time alone; zero if it does not.
	Until time.Time
}

// LaunchCost returns what the launches of a plan cost in $/h, each at its cheapest offering.
func LaunchCost(plan plan.Plan) (sum float64) {
	for i := range plan.Launches {
		sum += plan.Launches[i].Offering.Price
	}
	return sum
}

// TerminateFirstReason states why a node is terminated before its replacement is launched: that cannot come first. The
// values are those of the label terminate_first_reason.
type TerminateFirstReason string

// The reasons. A launch that fails is none.
const (
	NoReservedCapacity TerminateFirstReason = "no-reserved-capacity"
	StaticAtLimit      TerminateFirstReason = "static-at-limit"
)
