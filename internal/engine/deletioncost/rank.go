package deletioncost

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// Ranking is the order in which nodes are likely to go.
type Ranking struct {
	// Leaving are the nodes that are being disrupted or deleted, by name.
	Leaving map[string]bool
	// Next are the names of the nodes that may go next, the first to go first. All other nodes stay.
	Next []string
}

// Budgets describes what budgets still allow.
type Budgets struct{ Drifted, Underutilized *disrupt.RemainingBudgets }

// Rank orders the managed nodes of a view: drifted nodes before others, each within its budget, and those first that
// save the most for what their disruption costs ($/h per plain pod). The groups are Karpenter's. It costs O(nodes log
// nodes + pods).
func Rank(v *disrupt.View, left Budgets) Ranking {
	out := Ranking{Leaving: map[string]bool{}}
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		if n.Claim != "" && (n.Deleting || n.Disrupting || slices.ContainsFunc(n.Taints, karpv1.IsTaintDisrupted)) {
			out.Leaving[n.Name] = true
		}
	}
	var drifted, others []*disrupt.Candidate
	for _, c := range v.Candidates {
		switch {
		case out.Leaving[c.Node.Name], c.Type == nil, c.Pool.Spec.Replicas != nil, hasLastingPod(c.Node.Pods):
		case !c.Node.DriftedAt.IsZero():
			drifted = append(drifted, c)
		case !c.Pool.Spec.Disruption.ConsolidateAfter.IsNever():
			others = append(others, c)
		}
	}
	out.Next = append(within(drifted, left.Drifted), within(others, left.Underutilized)...)
	return out
}

// hasLastingPod reports whether the node has a pod that is not of a ReplicaSet, Job or DaemonSet: scaling down other
// workloads does not free the node. Those of kube-system do not count.
func hasLastingPod(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(p)
		return p.Namespace != metav1.NamespaceSystem &&
			(owner == nil || owner.Kind != "ReplicaSet" && owner.Kind != "Job" && owner.Kind != "DaemonSet")
	})
}

// within returns the names of as many candidates of each pool as its budget allows, those with the best ratio of price
// to cost first.
func within(candidates []*disrupt.Candidate, left *disrupt.RemainingBudgets) []string {
	slices.SortFunc(candidates, func(a, b *disrupt.Candidate) int {
		return cmp.Or(cmp.Compare(b.Price/b.Cost, a.Price/a.Cost), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	used := map[string]int{}
	var out []string
	for _, c := range candidates {
		if used[c.Node.Pool] < left.Remaining(c.Node.Pool) {
			used[c.Node.Pool]++
			out = append(out, c.Node.Name)
		}
	}
	return out
}
