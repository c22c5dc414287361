// Package disrupt decides which nodes are no longer worth their price. It asks nobody and acts on nothing:
// Snapshot in, candidates and commands out, with a reason for every node that stays.
package disrupt

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Kept is a node that stays.
type Kept struct {
	Node   *snapshot.Node
	Reason Reason
	// Message is for people; it begins in lower case.
	Message string
}

// Reason is why a node stays.
type Reason string

// The reasons in the order in which they are looked for; Unplannable comes after Deleting. Those after it in this list keep a
// node from being ended as empty only.
const (
	AlreadyDisrupting Reason = "AlreadyDisrupting"
	NoNode            Reason = "NoNode"
	NotInitialized    Reason = "NotInitialized"
	Deleting          Reason = "Deleting"
	Nominated         Reason = "Nominated"
	NodeDoNotDisrupt  Reason = "NodeDoNotDisrupt"
	NoLabel           Reason = "NoNodePoolLabel"
	NoNodePool        Reason = "NoNodePool"
	PodDoNotDisrupt   Reason = "PodDoNotDisrupt"
	PDB               Reason = "PDB"
	Unplannable       Reason = "Unplannable"

	NotEmpty          Reason = "NotEmpty"
	BufferPods        Reason = "BufferPods"
	Disabled          Reason = "ConsolidationDisabled"
	NotConsolidatable Reason = "NotConsolidatable"
)

// View is a snapshot as disruption looks at it.
type View struct {
	Snapshot *snapshot.Snapshot
	// Candidates are the nodes that nothing forbids to disrupt, in the order of the snapshot.
	Candidates []*Candidate
	// Bounded are those that only their pods protect, and whose claims bound how long they can: drift may take them.
	Bounded []*Candidate
	// Kept are the other nodes of ours, and those of Bounded.
	Kept []Kept

	pools   map[string]*pool
	guards  *guards
	pending map[types.UID]bool
	// leaving are the claims whose nodes are going, or will when their replacements are up.
	leaving map[string]bool
}

// pool is a NodePool with its types by name, if it has any.
type pool struct {
	*karpv1.NodePool
	types map[string]*catalog.InstanceType
}

// Look finds the candidates of a snapshot.
func Look(s *snapshot.Snapshot) *View {
	v := &View{
		Snapshot: s, pools: make(map[string]*pool, len(s.Pools)+len(s.Closed)), guards: newGuards(s),
		pending: make(map[types.UID]bool, len(s.Pods)), leaving: map[string]bool{},
	}
	for i := range s.Pools {
		byName := make(map[string]*catalog.InstanceType, len(s.Pools[i].InstanceTypes))
		for _, t := range s.Pools[i].InstanceTypes {
			if byName[t.Name] == nil {
				byName[t.Name] = t
			}
		}
		v.pools[s.Pools[i].NodePool.Name] = &pool{s.Pools[i].NodePool, byName}
	}
	for _, p := range s.Closed {
		v.pools[p.Name] = &pool{NodePool: p}
	}
	for _, p := range s.Pods {
		v.pending[p.UID] = true
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" && (n.Deleting || n.Disrupting) {
			v.leaving[n.Claim] = true
		}
	}
	for i := range s.Nodes {
		v.consider(i)
	}
	return v
}

func (v *View) consider(i int) {
	n := &v.Snapshot.Nodes[i]
	if n.Claim == "" {
		return
	}
	if reason, message := v.nodeForbids(n); reason != "" {
		v.Kept = append(v.Kept, Kept{n, reason, message})
		return
	}
	reason, message := v.podsForbid(n.Pods)
	if reason != "" {
		v.Kept = append(v.Kept, Kept{n, reason, message})
		if n.Bounded {
			v.Bounded = append(v.Bounded, v.candidate(i))
		}
		return
	}
	c := v.candidate(i)
	if b := v.guards.crowded(c.asks); b != nil {
		v.Kept = append(v.Kept, Kept{n, PDB, fmt.Sprintf("pdb prevents pod evictions (PDB=%s/%s): it lets %d pods go, and nodes that are leaving hold %d",
			b.Namespace, b.Name, b.Status.DisruptionsAllowed, v.guards.busy[b])})
		return
	}
	v.Candidates = append(v.Candidates, c)
}

// nodeForbids returns the first reason but for its pods for which a node stays; empty if there is none.
func (v *View) nodeForbids(n *snapshot.Node) (Reason, string) {
	switch {
	case n.Disrupting:
		return AlreadyDisrupting, "candidate is already being disrupted"
	case !n.Registered:
		return NoNode, "nodeclaim does not have an associated node"
	case !n.Initialized:
		return NotInitialized, "node isn't initialized"
	case n.Deleting:
		return Deleting, "node is deleting or marked for deletion"
	case n.Unplannable != "":
		return Unplannable, n.Unplannable
	case v.nominated(n):
		return Nominated, "node is nominated for a pending pod"
	case n.Annotations[karpv1.AnnotationDoNotDisrupt] == "true":
		return NodeDoNotDisrupt, fmt.Sprintf("disruption is blocked through the %q annotation", karpv1.AnnotationDoNotDisrupt)
	case n.Pool == "":
		return NoLabel, fmt.Sprintf("node doesn't have required label (label=%s)", karpv1.LabelNodePool)
	case v.pools[n.Pool] == nil:
		return NoNodePool, fmt.Sprintf("nodepool not found (NodePool=%s)", n.Pool)
	}
	return "", ""
}

// nominated tells whether pods are on their way to the node: a plan has just put them there, or it was bought for pods that
// have not come yet, or in place of nodes that are not gone yet.
func (v *View) nominated(n *snapshot.Node) bool {
	return v.Snapshot.Now.Before(n.NominatedUntil) ||
		slices.ContainsFunc(n.Nominated, func(uid types.UID) bool { return v.pending[uid] }) ||
		slices.ContainsFunc(n.Replaces, func(claim string) bool { return v.leaving[claim] })
}

// podsForbid returns the first reason among the pods for which their node must not be disrupted. All pods are asked for
// do-not-disrupt before any budget is.
func (v *View) podsForbid(pods []*corev1.Pod) (Reason, string) {
	for _, p := range pods {
		if !snapshot.Disruptable(p, v.Snapshot.Now) {
			return PodDoNotDisrupt, fmt.Sprintf("pod has %q annotation (Pod=%s/%s)", karpv1.AnnotationDoNotDisrupt, p.Namespace, p.Name)
		}
	}
	return v.guards.forbid(pods)
}

func (v *View) candidate(i int) *Candidate {
	n := &v.Snapshot.Nodes[i]
	p := v.pools[n.Pool]
	c := &Candidate{
		Index: i, Node: n, Pool: p.NodePool, Type: p.types[n.Labels[corev1.LabelInstanceTypeStable]],
		Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.Labels[karpv1.LabelCapacityType],
		Cost: 1, asks: v.guards.asks(n.Pods),
	}
	c.Price = price(c.Type, c.Zone, c.CapacityType)
	for _, pod := range n.Pods {
		if snapshot.Reschedulable(pod) {
			c.Cost += max(0, EvictionCost(pod))
		}
		if snapshot.CurrentlyReschedulable(pod, v.guards.selecting(pod), v.Snapshot.Now) {
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

// price is that of the first offering in the zone of the capacity type, whether or not it can be had now; 0 if it is not known.
func price(t *catalog.InstanceType, zone, capacityType string) float64 {
	if t == nil {
		return 0
	}
	for i := range t.Offerings {
		if o := &t.Offerings[i]; o.Zone == zone && o.CapacityType == capacityType {
			if math.IsNaN(o.Price) {
				return 0
			}
			return o.Price
		}
	}
	return 0
}

// Blocked are the kept nodes that nothing voluntary may disrupt.
func (v *View) Blocked() []Kept {
	return slices.DeleteFunc(slices.Clone(v.Kept), func(k Kept) bool { return k.Reason == AlreadyDisrupting })
}

// Load reports whether a pod keeps its node from being empty: it would have to move, and that costs something.
func Load(p *corev1.Pod) bool { return snapshot.Reschedulable(p) && EvictionCost(p) > 0 }

// EvictionCost is how much a pod's move counts, in plain pods: 1, raised and lowered by what
// controller.kubernetes.io/pod-deletion-cost (2^27 is one) and its priority (2^25 is one) say, within ±10.
// A cost that is not a number counts as none.
func EvictionCost(p *corev1.Pod) float64 {
	const perDeletionCost, perPriority, most = 1 << 27, 1 << 25, 10.0
	cost := 1.0
	if deletion, err := strconv.ParseFloat(p.Annotations[corev1.PodDeletionCost], 64); err == nil && !math.IsNaN(deletion) {
		cost += deletion / perDeletionCost
	}
	if p.Spec.Priority != nil {
		cost += float64(*p.Spec.Priority) / perPriority
	}
	return min(max(cost, -most), most)
}

// Room tells what the budgets of pools and of pods have left, while commands are started one after another.
type Room struct {
	allowances []Allowance
	left       map[string]int
	guards     guards
}

// Room returns what the allowances, and the budgets of pods, have left before anything is started.
func (v *View) Room(allowances []Allowance) *Room {
	r := &Room{allowances: allowances, left: make(map[string]int, len(allowances)), guards: guards{busy: make(map[*policyv1.PodDisruptionBudget]int, len(v.guards.busy))}}
	for i := range allowances {
		r.left[allowances[i].Pool.Name] = allowances[i].Available()
	}
	r.guards.add(v.guards.busy)
	return r
}

// Left is how many more nodes of the pool may be disrupted.
func (r *Room) Left(pool string) int { return max(r.left[pool], 0) }

// Allowances are those that the room was made of, less what has been taken.
func (r *Room) Allowances() []Allowance {
	out := slices.Clone(r.allowances)
	for i := range out {
		out[i].Allowed = out[i].Disrupting + r.Left(out[i].Pool.Name)
	}
	return out
}

// Holds tells whether all of the candidates may be disrupted at once. A single node may have more pods of a budget than that
// lets go; a second one must wait then.
func (r *Room) Holds(candidates []*Candidate) bool {
	need := map[string]int{}
	for _, c := range candidates {
		if need[c.Node.Pool]++; need[c.Node.Pool] > r.Left(c.Node.Pool) || r.guards.crowded(c.asks) != nil {
			return false
		}
	}
	return true
}

// Take notes that candidates are disrupted.
func (r *Room) Take(candidates []*Candidate) {
	for _, c := range candidates {
		r.left[c.Node.Pool]--
		r.guards.add(c.asks)
	}
}
