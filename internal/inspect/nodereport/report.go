// Package nodereport explains one node: why it was launched as what it is, why it stays or when it goes, and what its
// removal would do to its pods. Every decision in it is the engine's, made again on the cluster as it is; it needs no
// annotation of Dovetail.
package nodereport

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
)

// State describes what happens to a node.
type State string

// The states of a node.
const (
	// Stays: nothing would remove it now.
	Stays State = "stays"
	// Goes: the next pass would remove it.
	Goes State = "goes"
	// Leaving: its removal has begun.
	Leaving State = "leaving"
	// Starting: it is not initialized yet, or reboots.
	Starting State = "starting"
	// Unmanaged: no NodeClaim stands for it, so nothing here launches or removes it.
	Unmanaged State = "unmanaged"
)

// Report explains a node. Prices are in $/h.
type Report struct {
	// Kind is Node or NodeClaim, whichever was requested.
	Kind    string  `json:"objectKind"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`

	// Node is empty until one has joined, NodeClaim for a node that is not managed.
	Node         string    `json:"node"`
	NodeClaim    string    `json:"nodeClaim"`
	NodePool     string    `json:"nodePool"`
	InstanceType string    `json:"instanceType"`
	Zone         string    `json:"zone"`
	CapacityType string    `json:"capacityType"`
	HourlyCost   float64   `json:"hourlyCost"`
	CreatedAt    time.Time `json:"createdAt"`
	// ExpiresAt is nil if the node never does.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Expiration is nil if the node is deleted then.
	Expiration *Expiration `json:"expiration,omitempty"`
	Use        []Use       `json:"use"`
	// Stages are nil for a node that is not managed.
	Stages []Stage `json:"stages"`
	// Launch is nil if nothing is known of it.
	Launch *Launch `json:"launch,omitempty"`
	// Blockers keep the node, the first that the engine meets first.
	Blockers []Blocker      `json:"blockers"`
	Drift    *drifted.Drift `json:"drift,omitempty"`
	// Removal holds what would become of its pods; nil for a node that is not managed, in flight, of a static pool, or still empty
	// and meant for pending pods.
	Removal *Removal `json:"removal,omitempty"`
	// Drain forecasts how long its pods need to leave; nil for a node that is not managed, or in flight.
	Drain *Drain `json:"drain,omitempty"`
	Pods  []Pod  `json:"pods"`
	// Computing is true for a report of what is known without a plan. Its Verdict has no state then, its Blockers are those of the node and
	// its pods, and Removal is nil.
	Computing bool `json:"computing,omitempty"`
	// Prices states where prices come from, Now when the cluster was read.
	Prices string    `json:"prices"`
	Now    time.Time `json:"now"`
	// PricesProblem states why prices are not those that were requested, or not all of them.
	PricesProblem string `json:"pricesProblem,omitempty"`
}

// Verdict is the answer in one sentence.
type Verdict struct {
	State State `json:"state"`
	// Reason states why it goes: a DisruptionReason, Expired, or what has begun; or the Reason of the first blocker.
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Use states how much of a resource the pods of a node request.
type Use struct {
	Resource    string `json:"resource"`
	Requested   string `json:"requested"`
	Allocatable string `json:"allocatable"`
	// Share of what is allocatable, from 0 to 1, and above where pods request more.
	Share float64 `json:"share"`
}

// Pod is a pod on a node.
type Pod struct {
	Name string `json:"name"`
	// Note states what is special about it when its node goes; empty for most.
	Note string `json:"note"`
	// Warns is true if the note is about what its owner may not expect.
	Warns bool `json:"-"`
}

// OfNode explains the node of a name.
func OfNode(v *inspect.View, name string) (*Report, error) { return Decide(v).OfNode(name) }

// OfNode explains the node of a name. Several of the same decisions share their plan and their pass of consolidation.
func (d *Decisions) OfNode(name string) (*Report, error) { return d.ofNode(name, (*builder).report) }

// OfNode returns what is known of the node of a name.
func (k *Known) OfNode(name string) (*Report, error) {
	return k.decisions.ofNode(name, (*builder).known)
}

// ofNode makes a report of the node of a name.
func (d *Decisions) ofNode(name string, report func(b *builder, kind, name string) *Report) (*Report, error) {
	v := d.View
	i := slices.IndexFunc(v.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, inspect.NotFound("Node", name, v.Nodes)
	}
	for k := range v.Snapshot.Nodes {
		if n := &v.Snapshot.Nodes[k]; n.Name == name && (n.Claim == "" || n.Registered) {
			return report(newBuilder(d, k), "Node", name), nil
		}
	}
	// Its claim is not registered, or it has none: the snapshot names such an entry after the claim.
	for k := range v.Snapshot.Nodes {
		c := claimOf(v, v.Snapshot.Nodes[k].Claim)
		if c != nil && c.Status.ProviderID != "" && c.Status.ProviderID == v.Nodes[i].Spec.ProviderID {
			return report(newBuilder(d, k), "Node", name), nil
		}
	}
	return withoutClaim(v, v.Nodes[i]), nil
}

// OfClaim explains the node of a NodeClaim.
func OfClaim(v *inspect.View, name string) (*Report, error) { return Decide(v).OfClaim(name) }

// OfClaim explains the node of a NodeClaim.
func (d *Decisions) OfClaim(name string) (*Report, error) { return d.ofClaim(name, (*builder).report) }

// OfClaim returns what is known of the node of a NodeClaim.
func (k *Known) OfClaim(name string) (*Report, error) {
	return k.decisions.ofClaim(name, (*builder).known)
}

func (d *Decisions) ofClaim(name string, report func(b *builder, kind, name string) *Report) (*Report, error) {
	for k := range d.Snapshot.Nodes {
		if d.Snapshot.Nodes[k].Claim == name && name != "" {
			return report(newBuilder(d, k), "NodeClaim", name), nil
		}
	}
	return nil, inspect.NotFound("NodeClaim", name, d.NodeClaims)
}

func claimOf(v *inspect.View, name string) *karpv1.NodeClaim {
	if i := slices.IndexFunc(v.NodeClaims, func(c *karpv1.NodeClaim) bool { return c.Name == name }); i >= 0 && name != "" {
		return v.NodeClaims[i]
	}
	return nil
}

// withoutClaim is a node with the label of a pool, and without a NodeClaim.
func withoutClaim(v *inspect.View, node *corev1.Node) *Report {
	b := &builder{Decisions: &Decisions{View: v}, n: &snapshot.Node{
		Name: node.Name, Labels: node.Labels, Allocatable: node.Status.Allocatable, CreatedAt: node.CreationTimestamp.Time,
	}, node: node}
	for _, p := range v.Pods {
		if p.Spec.NodeName == node.Name && !snapshot.Terminal(p) {
			b.n.Pods = append(b.n.Pods, p)
		}
	}
	r := b.facts("Node", node.Name)
	r.NodePool = node.Labels[karpv1.LabelNodePool]
	r.Verdict = Verdict{Unmanaged, "NoNodeClaim", fmt.Sprintf(
		"node %s has the label %s=%s, but no NodeClaim stands for it: it takes no part in planning, and nothing removes it",
		node.Name, karpv1.LabelNodePool, r.NodePool,
	)}
	return r
}
