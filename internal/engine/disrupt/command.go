package disrupt

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Candidate is a node that nothing forbids to disrupt.
type Candidate struct {
	// Index of Node in its snapshot's Nodes.
	Index int
	Node  *snapshot.Node
	Pool  *karpv1.NodePool
	// Type is nil if the node's label names none that its pool can launch.
	Type *catalog.InstanceType
	// Zone and CapacityType are the node's labels, empty where missing.
	Zone, CapacityType string
	// Price in $/h of the first offering of Type in Zone of CapacityType, available or not; 0 if unknown.
	Price float64
	// Pods are those that need another place when the node goes.
	Pods []*corev1.Pod
	// Cost of moving the pods, in plain pods, and 1 for the node itself.
	Cost float64

	// asks is how many of the pods each PodDisruptionBudget speaks about.
	asks map[*policyv1.PodDisruptionBudget]int
}

// Command is one decision: end the candidates once the plan's launches are initialized.
type Command struct {
	Reason karpv1.DisruptionReason
	// Kind is the consolidation_type of metrics: empty, multi, single; "" for drift.
	Kind       string
	Candidates []*Candidate
	// Plan says where the pods go. Its launches are the replacements.
	Plan schedule.Plan
	// Savings in $/h.
	Savings float64
	// Verdicts of the pools that weigh savings against disruption.
	Verdicts []Verdict
}

// Verdict is what a NodePool says of a command whose nodes are partly its own.
type Verdict struct {
	Pool     *karpv1.NodePool
	Approved bool
	// Score is Savings over Disruption, both as shares of the pool's totals; +Inf if nothing is disrupted.
	Score, Savings, Disruption float64
	// Saved is the pool's part of what is saved, in $/h, Disturbed that of what is disturbed, in plain pods; of PoolCost and
	// PoolDisruption they are the shares.
	Saved, Disturbed, PoolCost, PoolDisruption float64
}

// Left is a candidate that stays.
type Left struct {
	Candidate *Candidate
	// Why is what its event Unconsolidatable says. Quiet ones are for whoever asks, and no event.
	Why   string
	Quiet bool
}
