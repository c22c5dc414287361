// Package disrupt decides which nodes are no longer worth their price. It asks nobody and acts on nothing:
// Snapshot in, Decision out, with a reason for every node that stays.
package disrupt

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Decision is which nodes to end, and why the others stay.
type Decision struct {
	// Nodes to end at once, dearest first.
	Nodes []*snapshot.Node
	// Eligible is how many nodes qualify, whether or not the budgets let them go now.
	Eligible int
	Budgets  []Allowance
	// Kept are the nodes of ours that stay, in the order of the snapshot.
	Kept []Kept
}

// Kept is a node that stays.
type Kept struct {
	Node   *snapshot.Node
	Reason Reason
	// Message is for people; it begins in lower case.
	Message string
}

// Reason is why a node stays.
type Reason string

// The reasons in the order in which they are looked for.
const (
	NoNode            Reason = "NoNode"
	NotInitialized    Reason = "NotInitialized"
	Deleting          Reason = "Deleting"
	Nominated         Reason = "Nominated"
	NodeDoNotDisrupt  Reason = "NodeDoNotDisrupt"
	NoNodePool        Reason = "NoNodePool"
	PodDoNotDisrupt   Reason = "PodDoNotDisrupt"
	PDB               Reason = "PDB"
	NotEmpty          Reason = "NotEmpty"
	BufferPods        Reason = "BufferPods"
	Disabled          Reason = "ConsolidationDisabled"
	NotConsolidatable Reason = "NotConsolidatable"
	Budget            Reason = "Budget"
)

// blocks reports whether the reason keeps the node from any disruption, not only from being ended as empty.
func (r Reason) blocks() bool {
	return slices.Contains([]Reason{NoNode, NotInitialized, Deleting, Nominated, NodeDoNotDisrupt, NoNodePool, PodDoNotDisrupt, PDB}, r)
}

// Blocked are the kept nodes that nothing voluntary may disrupt.
func (d Decision) Blocked() []Kept {
	var out []Kept
	for _, k := range d.Kept {
		if k.Reason.blocks() {
			out = append(out, k)
		}
	}
	return out
}

// Empty decides which nodes hold no pod that would have to move, have been so for as long as their pool wants,
// and may go under its budgets.
func Empty(s *snapshot.Snapshot) Decision {
	d := Decision{Budgets: Allowances(s, karpv1.DisruptionEmpty)}
	pools := make(map[string]*Allowance, len(d.Budgets))
	for i := range d.Budgets {
		pools[d.Budgets[i].Pool.Name] = &d.Budgets[i]
	}
	budgets := snapshot.Budgets(s.PDBs)
	pending := make(map[types.UID]bool, len(s.Pods))
	for _, p := range s.Pods {
		pending[p.UID] = true
	}
	var eligible []*snapshot.Node
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Claim == "" {
			continue
		}
		reason, message := why(n, pools[n.Pool], budgets, s.Now)
		if reason == "" && slices.ContainsFunc(n.Nominated, func(uid types.UID) bool { return pending[uid] }) {
			reason, message = Nominated, "node is nominated for a pending pod"
		}
		if reason == "" {
			eligible = append(eligible, n)
			continue
		}
		d.Kept = append(d.Kept, Kept{n, reason, message})
	}
	d.Eligible = len(eligible)
	slices.SortFunc(eligible, func(a, b *snapshot.Node) int {
		return cmp.Or(cmp.Compare(b.Price, a.Price), cmp.Compare(a.Name, b.Name))
	})
	left := map[string]int{}
	for name, a := range pools {
		left[name] = a.Available()
	}
	for _, n := range eligible {
		if left[n.Pool] == 0 {
			d.Kept = append(d.Kept, Kept{n, Budget, fmt.Sprintf("the budgets of NodePool %q allow no further disruption now", n.Pool)})
			continue
		}
		left[n.Pool]--
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

// why returns the first reason for which a node stays; empty if it may be ended. pool is nil when the snapshot
// has none of that name.
func why(n *snapshot.Node, pool *Allowance, budgets []snapshot.Budget, now time.Time) (Reason, string) {
	switch {
	case !n.Registered:
		return NoNode, "nodeclaim does not have an associated node"
	case !n.Initialized:
		return NotInitialized, "node isn't initialized"
	case n.Deleting:
		return Deleting, "node is deleting or marked for deletion"
	case now.Before(n.NominatedUntil):
		return Nominated, "node is nominated for a pending pod"
	case n.Annotations[karpv1.AnnotationDoNotDisrupt] == "true":
		return NodeDoNotDisrupt, fmt.Sprintf("disruption is blocked through the %q annotation", karpv1.AnnotationDoNotDisrupt)
	case pool == nil:
		return NoNodePool, fmt.Sprintf("nodepool not found (NodePool=%s)", n.Pool)
	}
	if reason, message := podsForbid(n.Pods, budgets, now); reason != "" {
		return reason, message
	}
	if at := slices.IndexFunc(n.Pods, Load); at >= 0 {
		return NotEmpty, fmt.Sprintf("pod %s/%s would have to move", n.Pods[at].Namespace, n.Pods[at].Name)
	}
	switch {
	case n.Virtual > 0:
		return BufferPods, fmt.Sprintf("node %q has buffer pods", n.Name)
	case pool.Pool.Spec.Replicas != nil:
		return Disabled, fmt.Sprintf("NodePool %q keeps a fixed number of nodes", n.Pool)
	case pool.Pool.Spec.Disruption.ConsolidateAfter.IsNever():
		return Disabled, fmt.Sprintf("NodePool %q has consolidation disabled", n.Pool)
	case !n.Consolidatable:
		return NotConsolidatable, fmt.Sprintf("consolidateAfter of NodePool %q has not passed since the last pod came or went", n.Pool)
	}
	return "", ""
}

// podsForbid returns the first reason among the pods for which their node must not be disrupted. All pods are
// asked for do-not-disrupt before any budget is.
func podsForbid(pods []*corev1.Pod, budgets []snapshot.Budget, now time.Time) (Reason, string) {
	for _, p := range pods {
		if !snapshot.Disruptable(p, now) {
			return PodDoNotDisrupt, fmt.Sprintf("pod has %q annotation (Pod=%s/%s)", karpv1.AnnotationDoNotDisrupt, p.Namespace, p.Name)
		}
	}
	for _, p := range pods {
		if !snapshot.Evictable(p, now) {
			continue
		}
		selecting := slices.DeleteFunc(slices.Clone(budgets), func(b snapshot.Budget) bool { return !b.Selects(p) })
		switch {
		case len(selecting) > 1:
			return PDB, fmt.Sprintf("eviction does not support multiple PDBs (Pod=%s/%s)", p.Namespace, p.Name)
		case len(selecting) == 1 && selecting[0].Blocks(p):
			return PDB, fmt.Sprintf("pdb prevents pod evictions (Pod=%s/%s)", p.Namespace, p.Name)
		}
	}
	return "", ""
}

// Load reports whether a pod keeps its node from being empty: it would have to move, and that costs something.
func Load(p *corev1.Pod) bool { return snapshot.Reschedulable(p) && EvictionCost(p) > 0 }

// EvictionCost is how much a pod's move counts, in plain pods: 1, raised and lowered by what
// controller.kubernetes.io/pod-deletion-cost (2^27 is one) and its priority (2^25 is one) say, within ±10.
// A cost that is not a number counts as none.
func EvictionCost(p *corev1.Pod) float64 {
	const perDeletionCost, perPriority, most = 1 << 27, 1 << 25, 10.0
	cost := 1.0
	if deletion, err := strconv.ParseFloat(p.Annotations[corev1.PodDeletionCost], 64); err == nil {
		cost += deletion / perDeletionCost
	}
	if p.Spec.Priority != nil {
		cost += float64(*p.Spec.Priority) / perPriority
	}
	return min(max(cost, -most), most)
}
