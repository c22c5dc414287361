// Package disrupt decides which nodes can be disrupted, which are empty, which to replace for drift, and what budgets
// allow. It calls no API and changes nothing: it takes a Snapshot, and returns candidates and commands, with a reason
// for every node that is blocked. Package consolidate searches among the candidates.
package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Blocked is a node that is blocked from disruption.
type Blocked struct {
	Node *snapshot.Node
	Why
}

// View is a snapshot with its nodes classified for disruption.
type View struct {
	Snapshot *snapshot.Snapshot
	// Candidates are the nodes that nothing blocks from disruption, in the order of the snapshot.
	Candidates []*Candidate
	// BoundedDrain are the nodes that only their pods block, and with claims that have a terminationGracePeriod: drift and
	// expiration may still replace them, unless it is for the size of a pod.
	BoundedDrain []*Candidate
	// BlockedNodes are the other managed nodes, and those of Bounded.
	BlockedNodes []Blocked
	// Expirations are those of the pools.
	Expirations Expirations

	pools       map[string]*karpv1.NodePool
	prices      *catalog.Index
	pdbs        *pdbIndex
	groups      snapshot.Groups
	pendingPods map[types.UID]bool
	// leavingClaims are the claims of nodes that are deleting, or will be once their replacements are initialized.
	leavingClaims map[string]bool
}

// NewView classifies the nodes of a snapshot. It costs O(nodes + pods), and for each pod the PodDisruptionBudgets that
// share a label with it.
func NewView(s *snapshot.Snapshot) *View {
	v := &View{
		Snapshot: s, Expirations: ExpirationsOf(s),
		pools: make(map[string]*karpv1.NodePool, len(s.Pools)+len(s.Closed)), prices: catalog.NewIndex(),
		pdbs: newPDBIndex(s), groups: snapshot.ReadGroups(s),
		pendingPods: make(map[types.UID]bool, len(s.Pods)), leavingClaims: map[string]bool{},
	}
	for i := range s.Pools {
		p := s.Pools[i].NodePool
		v.pools[p.Name] = p
		v.prices.Add(p.Name, s.Pools[i].InstanceTypes)
	}
	for _, p := range s.Closed {
		v.pools[p.Name] = p
	}
	for _, p := range s.Pods {
		v.pendingPods[p.UID] = true
	}
	for _, p := range s.Arriving {
		v.pendingPods[p.UID] = true
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" && (n.Deleting || n.Disrupting) {
			v.leavingClaims[n.Claim] = true
		}
	}
	for i := range s.Nodes {
		v.classify(i)
	}
	return v
}

func (v *View) classify(i int) {
	n := &v.Snapshot.Nodes[i]
	if n.Claim == "" {
		return
	}
	if why := v.nodeBlocks(n); why.Reason != "" {
		v.BlockedNodes = append(v.BlockedNodes, Blocked{n, why})
		return
	}
	if why := v.podsBlock(n.Pods); why.Reason != "" {
		v.BlockedNodes = append(v.BlockedNodes, Blocked{n, why})
		if drainEnds(n) {
			v.BoundedDrain = append(v.BoundedDrain, v.candidate(i))
		}
		return
	}
	if pod, group := v.groups.Tied(n.Pods); group != nil {
		v.BlockedNodes = append(v.BlockedNodes, Blocked{n, Because(PodGroupTogether,
			"PodGroup has disruptionMode all and pods on %d nodes (Pod=%s/%s)", len(group.Nodes()), pod.Namespace, pod.Name)})
		if drainEnds(n) {
			v.BoundedDrain = append(v.BoundedDrain, v.candidate(i))
		}
		return
	}
	c := v.candidate(i)
	if b := v.pdbs.exhausted(c.podsPerPDB); b != nil {
		v.BlockedNodes = append(v.BlockedNodes, Blocked{n, Because(PDB,
			"pdb prevents pod evictions (PDB=%s/%s): it lets %d pods go, and nodes that are leaving hold %d",
			b.Namespace, b.Name, b.Status.DisruptionsAllowed, v.pdbs.evicting[b])})
		return
	}
	v.Candidates = append(v.Candidates, c)
}

// drainEnds reports whether drift may replace a node that its pods block: its drain is bounded, and it did not drift for one pod.
func drainEnds(n *snapshot.Node) bool { return n.Bounded && !n.DriftedForResize }

// nodeBlocks returns the first reason, apart from its pods, why a node is blocked; empty if there is none.
func (v *View) nodeBlocks(n *snapshot.Node) Why {
	switch {
	case n.Disrupting:
		return Why{Reason: AlreadyDisrupting, Message: "candidate is already being disrupted"}
	case !n.Registered:
		return Why{Reason: NoNode, Message: "nodeclaim does not have an associated node"}
	case n.Rebooting:
		return Why{Reason: Rebooting, Message: "node is rebooting"}
	case !n.Initialized:
		return Why{Reason: NotInitialized, Message: "node isn't initialized"}
	case n.Deleting:
		return Why{Reason: Deleting, Message: "node is deleting or marked for deletion"}
	case n.Unplannable != "":
		return Why{Reason: Unplannable, Message: n.Unplannable}
	case v.nominated(n):
		return Why{Reason: Nominated, Message: "node is nominated for a pending pod"}
	case n.Annotations[karpv1.AnnotationDoNotDisrupt] == "true":
		return Because(NodeDoNotDisrupt, "disruption is blocked through the %q annotation", karpv1.AnnotationDoNotDisrupt)
	case n.Pool == "":
		return Because(NoLabel, "node doesn't have required label (label=%s)", karpv1.LabelNodePool)
	case v.pools[n.Pool] == nil:
		return Because(NoNodePool, "nodepool not found (NodePool=%s)", n.Pool)
	}
	return Why{}
}

// nominated reports whether pods will come to the node: a plan has just placed pods there, or it was launched for
// pods that are still pending, or to replace nodes that still exist.
func (v *View) nominated(n *snapshot.Node) bool {
	return v.Snapshot.Now.Before(n.NominatedUntil) ||
		slices.ContainsFunc(n.Nominated, func(uid types.UID) bool { return v.pendingPods[uid] }) ||
		slices.ContainsFunc(n.Replaces, func(claim string) bool { return v.leavingClaims[claim] })
}

// podsBlock returns the first reason among the pods why their node is blocked. All pods are checked for
// do-not-disrupt before any PodDisruptionBudget is.
func (v *View) podsBlock(pods []*corev1.Pod) Why {
	for _, p := range pods {
		if !snapshot.Disruptable(p, v.Snapshot.Now) {
			return Because(PodDoNotDisrupt, "pod has %q annotation (Pod=%s/%s)", karpv1.AnnotationDoNotDisrupt, p.Namespace, p.Name)
		}
	}
	return v.pdbs.blocks(pods)
}

func (v *View) candidate(i int) *Candidate {
	n := &v.Snapshot.Nodes[i]
	c := &Candidate{
		Index: i, Node: n, Pool: v.pools[n.Pool], Type: v.prices.Type(n.Pool, n.Labels[corev1.LabelInstanceTypeStable]),
		Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.Labels[karpv1.LabelCapacityType],
		PoolClosed: !v.prices.Has(n.Pool), Cost: 1 + v.groups.EvictionCost(n.Pods), podsPerPDB: v.pdbs.podsPerPDB(n.Pods),
	}
	c.Price, _ = v.prices.Price(n.Pool, offeringOf(n))
	for _, pod := range n.Pods {
		if snapshot.CurrentlyReschedulable(pod, v.pdbs.selecting(pod), v.Snapshot.Now) {
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

// offeringOf is the offering that a node was launched from, by its labels.
func offeringOf(n *snapshot.Node) catalog.OfferingKey {
	return catalog.OfferingKey{
		InstanceType: n.Labels[corev1.LabelInstanceTypeStable],
		Zone:         n.Labels[corev1.LabelTopologyZone],
		CapacityType: n.Labels[karpv1.LabelCapacityType],
	}
}

// DisruptionBlocked are the blocked nodes that the event DisruptionBlocked reports: all but those that are being disrupted
// already.
func (v *View) DisruptionBlocked() []Blocked {
	return slices.DeleteFunc(slices.Clone(v.BlockedNodes), func(k Blocked) bool { return k.Reason == AlreadyDisrupting })
}

// PreventsEmptiness reports whether a pod keeps its node from being empty: it would have to move, and its eviction has a cost.
func PreventsEmptiness(p *corev1.Pod) bool {
	return snapshot.Reschedulable(p) && snapshot.EvictionCost(p) > 0
}

// Pool is a pool by its name, whether it launches nodes or not; nil if there is none.
func (v *View) Pool(name string) *karpv1.NodePool { return v.pools[name] }
