package disrupt

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Unhealthy are the nodes that are due for repair and that nothing but budgets, the breaker or a lack of room keeps
// from it, in the order of their repair: by score, then by the cost of moving their pods. Blocked are the others that
// are due.
func (v *View) Unhealthy() (due []*Candidate, blocked []Blocked) {
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		if n.Repair == nil || n.Claim == "" || n.Disrupting || n.Deleting || n.Rebooting || !n.Registered {
			continue
		}
		if why := v.repairBlocks(n); why.Reason != "" {
			blocked = append(blocked, Blocked{n, why})
			continue
		}
		due = append(due, v.repairCandidate(i))
	}
	slices.SortFunc(due, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Node.Repair.Score, a.Node.Repair.Score), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	return due, blocked
}

// repairBlocks returns the first reason why a node that is due is not repaired; empty if there is none. The annotation
// do-not-disrupt of a Node does not protect it: that of its pods does, unless something bounds the drain.
func (v *View) repairBlocks(n *snapshot.Node) Why {
	switch {
	case n.Unplannable != "":
		return Why{Reason: Unplannable, Message: n.Unplannable}
	case n.Initialized && v.nominated(n):
		return Why{Reason: Nominated, Message: "node is nominated for a pending pod"}
	case n.Pool == "":
		return Because(NoLabel, "node doesn't have required label (label=%s)", karpv1.LabelNodePool)
	case v.pools[n.Pool] == nil:
		return Because(NoNodePool, "nodepool not found (NodePool=%s)", n.Pool)
	case n.DoNotRepair != "":
		return Because(DoNotRepair, "repair is blocked through the %q annotation of %s", karpv1.AnnotationDoNotRepair, n.DoNotRepair)
	case n.Bounded || n.Repair.Bound != nil:
		return Why{}
	}
	if why := v.podsBlock(n.Pods); why.Reason != "" {
		return why
	}
	if b := v.pdbs.exhausted(v.pdbs.podsPerPDB(n.Pods)); b != nil {
		return Because(PDB, "pdb prevents pod evictions (PDB=%s/%s)", b.Namespace, b.Name)
	}
	return Why{}
}

// repairCandidate is a candidate. All of its pods must be scheduled elsewhere, also those that cannot be evicted now.
func (v *View) repairCandidate(i int) *Candidate {
	c := v.candidate(i)
	c.Pods = nil
	for _, pod := range c.Node.Pods {
		if snapshot.Reschedulable(pod) {
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

// NewBreaker counts the nodes of pools for a breaker, with the nodes that are due.
func (v *View) NewBreaker(due []*Candidate) *repair.Breaker {
	b := repair.NewBreaker()
	for i := range v.Snapshot.Nodes {
		if n := &v.Snapshot.Nodes[i]; n.Pool != "" && n.Registered {
			b.Count(repair.Health{
				Pool: n.Pool, Zone: n.Labels[corev1.LabelTopologyZone], Unhealthy: n.Unhealthy,
				Repairing: n.Rebooting || n.Unhealthy && (n.Disrupting || n.Deleting),
			})
		}
	}
	for _, c := range due {
		b.NoteDue(c.Node.Name, c.Node.Pool, c.Node.Repair.EligibleAt)
	}
	return b
}
