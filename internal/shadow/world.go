package shadow

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
)

// carryOutTime sets how long a removed node counts as one that is being disrupted, and so against budgets: about as long as a
// replacement takes to come up and the pods to move.
const carryOutTime = 2 * time.Minute

// pendingNode is a node that Dovetail would have launched, while its pods still wait for one.
type pendingNode struct {
	Name         string              `json:"name"`
	Launch       Launch              `json:"launch"`
	Labels       map[string]string   `json:"labels"`
	Taints       []corev1.Taint      `json:"taints,omitempty"`
	Capacity     corev1.ResourceList `json:"capacity"`
	Allocatable  corev1.ResourceList `json:"allocatable"`
	VolumeLimits map[string]int32    `json:"volumeLimits,omitempty"`
	CreatedAt    time.Time           `json:"createdAt"`
	// Pods are the pods that it was launched for.
	Pods []types.UID `json:"pods"`
}

// node is it in a Snapshot: in flight, and full of its pods as far as they still wait.
func (p *pendingNode) node() snapshot.Node {
	return snapshot.Node{
		Name: p.Name, Claim: p.Name, ClaimUID: types.UID(p.Name), Pool: p.Launch.NodePool, Labels: p.Labels, Taints: p.Taints,
		Capacity: p.Capacity, Allocatable: p.Allocatable, VolumeLimits: p.VolumeLimits, CreatedAt: p.CreatedAt,
		Price: p.Launch.HourlyCost, Launched: true, Nominated: p.Pods,
	}
}

// removal is a node that Dovetail would have removed, and that still exists.
type removal struct {
	Claim types.UID `json:"claim"`
	At    time.Time `json:"at"`
	// Both is true while the acting controller removes the node, too: it counts, and the rest of the world treats it as that one's.
	Both bool `json:"both,omitempty"`
}

// removed are the nodes that Dovetail would have removed and the acting controller does not, with the time.
func (l *Ledger) removed() map[types.UID]time.Time {
	out := map[types.UID]time.Time{}
	for _, r := range l.state.Removals {
		if !r.Both {
			out[r.Claim] = r.At
		}
	}
	return out
}

// leaves reports whether the acting controller removes a node.
func leaves(n *snapshot.Node) bool {
	return n.Deleting || n.Disrupting || slices.ContainsFunc(n.Taints, karpv1.IsTaintDisrupted)
}

// inFlight reports whether the acting controller has launched a node for pods, and nothing runs on it yet. A replacement of nodes that
// leave is none: the pods of those are to run on it, whatever Dovetail would have done.
func inFlight(n *snapshot.Node) bool {
	return n.Claim != "" && !n.Initialized && !leaves(n) && len(n.Replaces) == 0 && !slices.ContainsFunc(n.Pods, snapshot.Reschedulable)
}

// world returns the cluster as it would be if Dovetail acted. It forgets the nodes that Dovetail would have launched once none of
// their pods waits.
func (l *Ledger) world(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	out.Nodes = make([]snapshot.Node, 0, len(s.Nodes)+len(l.state.Pending))
	removed := l.removed()
	for _, n := range s.Nodes {
		if inFlight(&n) && n.CreatedAt.After(l.state.Report.Since) {
			continue // Dovetail has launched its own
		}
		at, gone := removed[n.ClaimUID]
		if gone && n.Claim != "" {
			for _, p := range n.Pods {
				if snapshot.Reschedulable(p) {
					out.Pods = append(out.Pods, p)
				}
			}
			if s.Now.Sub(at) >= carryOutTime {
				continue
			}
			n.Deleting = true
		}
		n.Disrupting = n.Disrupting || leaves(&n)
		out.Nodes = append(out.Nodes, n)
	}
	waiting := make(map[types.UID]bool, len(out.Pods))
	for _, p := range out.Pods {
		waiting[p.UID] = true
	}
	l.state.Pending = slices.DeleteFunc(l.state.Pending, func(p pendingNode) bool {
		return !slices.ContainsFunc(p.Pods, func(uid types.UID) bool { return waiting[uid] })
	})
	for i := range l.state.Pending {
		out.Nodes = append(out.Nodes, l.state.Pending[i].node())
	}
	return &out
}

// priced returns the snapshot with a price for each node of a NodePool that has none, by its labels. A node that its NodePool no longer
// launches keeps the price at which it was last seen.
func priced(s *snapshot.Snapshot) *snapshot.Snapshot {
	prices := fleet.PricesOf(fleet.Source{Pools: s.Pools})
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; n.Claim != "" && !(n.Price > 0) {
			n.Price, _ = prices.OfNode(n)
		}
	}
	return &out
}
