package podreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// bound explains a pod that has a node.
func (e *explanation) bound() {
	name := e.pod.Spec.NodeName
	e.Node = e.nodeNamed(name)
	where := "node " + name + described(e.Node)
	switch {
	case snapshot.Terminal(e.pod):
		e.conclude(Finished, "has finished (%s) on %s.", e.pod.Status.Phase, where)
	case snapshot.Terminating(e.pod):
		e.conclude(Deleting, "is being deleted%s on %s.", prefixed(" for ", e.since(e.pod.DeletionTimestamp.Time)), where)
	case e.pod.Status.Phase == corev1.PodPending:
		e.conclude(Starting, "has %s, and its containers have not started%s.", where, prefixed(" for ", e.since(scheduledAt(e.pod))))
	default:
		e.conclude(Running, "runs on %s%s.", where, prefixed(" for ", e.since(scheduledAt(e.pod))))
	}
	if e.snapshotNode(name) == nil {
		e.Notes = append(e.Notes, "node "+name+" does not exist, or is not known yet")
	}
	e.whyHere()
	e.constraints()
	e.blocks()
}

// described returns what is known about a node, in parentheses.
func described(p *Place) string {
	if p == nil {
		return ""
	}
	var parts []string
	for _, s := range []string{p.InstanceType, p.CapacityType, p.Zone} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if p.NodePool != "" {
		parts = append(parts, "NodePool "+p.NodePool)
	}
	if p.HourlyCost > 0 {
		parts = append(parts, dollars(p.HourlyCost))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// dollars prints a price per hour.
func dollars(price float64) string { return report.Dollars(price) + "/h" }

// scheduledAt returns when the pod got its node; zero if it is not known.
func scheduledAt(pod *corev1.Pod) (at time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return at
}

// snapshotNode is the snapshot's node with the name; nil if there is none.
func (e *explanation) snapshotNode(name string) *snapshot.Node {
	for i := range e.view.Snapshot.Nodes {
		if n := &e.view.Snapshot.Nodes[i]; n.Name == name {
			return n
		}
	}
	return nil
}

// nodeNamed is the place of an existing node.
func (e *explanation) nodeNamed(name string) *Place {
	n := e.snapshotNode(name)
	if n == nil {
		return &Place{Name: name}
	}
	return placeOf(e.view.PriceList(), n)
}

// placeOf is an existing node.
func placeOf(prices *fleet.Prices, n *snapshot.Node) *Place {
	p := &Place{
		Name: n.Name, Claim: n.Claim, NodePool: n.Pool, InstanceType: n.Labels[corev1.LabelInstanceTypeStable],
		Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.Labels[karpv1.LabelCapacityType],
	}
	if !n.Registered {
		p.Name = "" // the snapshot has the claim's name in its place
	}
	p.HourlyCost, _ = prices.OfNode(n)
	return p
}

// claimNamed is the NodeClaim with the name; nil if there is none.
func (e *explanation) claimNamed(name string) *karpv1.NodeClaim {
	for _, c := range e.view.NodeClaims {
		if c.Name == name && name != "" {
			return c
		}
	}
	return nil
}

// whyHere states why the pod runs on its node, as far as objects show it.
func (e *explanation) whyHere() {
	why := func(format string, args ...any) { e.Why = append(e.Why, fmt.Sprintf(format, args...)) }
	n := e.snapshotNode(e.pod.Spec.NodeName)
	if n == nil {
		return
	}
	if snapshot.DaemonOwned(e.pod) {
		why("Its DaemonSet has a pod on every node that suits it.")
		return
	}
	if snapshot.Mirror(e.pod) {
		why("It is a static pod of this node: kubelet reads it from a file there.")
		return
	}
	claim := e.claimNamed(n.Claim)
	if claim == nil {
		why("No NodeClaim owns the node: it was not launched for pods, and kube-scheduler chose it for its free room.")
		return
	}
	if nominated := claim.Nominated(karpv1.AnnotationNominatedPods); slices.Contains(nominated, e.pod.UID) {
		why("NodeClaim %s was launched for it%s.", claim.Name, andOthers(len(nominated)-1))
	} else if reason := claim.Annotations[karpv1.AnnotationLaunchReason]; reason != "" {
		why("NodeClaim %s was launched to replace %s (%s).", claim.Name, orOtherNodes(claim.Replaces()), reason)
	} else if e.pod.CreationTimestamp.After(claim.CreationTimestamp.Time) {
		why("The node existed before the pod: kube-scheduler chose it for its free room.")
	} else {
		why("NodeClaim %s was created after the pod, and kube-scheduler chose its node.", claim.Name)
	}
	if types := allowedTypes(claim); len(types) > 1 {
		why("EC2 chose %s among the %d instance types that the NodeClaim allows.", n.Labels[corev1.LabelInstanceTypeStable], len(types))
	}
}

func andOthers(n int) string {
	if n <= 0 {
		return ""
	}
	return " and " + report.Plural(n, "other pod")
}

func orOtherNodes(claims []string) string {
	if len(claims) == 0 {
		return "other nodes"
	}
	return some(slices.Clone(claims))
}

// allowedTypes are the instance types that a claim lists.
func allowedTypes(claim *karpv1.NodeClaim) []string {
	for _, r := range claim.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			return r.Values
		}
	}
	return nil
}

// blocks states what keeps the pod's node from being disrupted.
func (e *explanation) blocks() {
	block := func(format string, args ...any) { e.Blocks = append(e.Blocks, fmt.Sprintf(format, args...)) }
	pod, now := e.pod, e.view.Now
	if !snapshot.Active(pod) || snapshot.DaemonOwned(pod) || snapshot.Mirror(pod) {
		return
	}
	switch protection, until := snapshot.DoNotDisrupt(pod, now); {
	case protection == snapshot.ProtectedForever:
		block("Its annotation %s: \"true\" keeps its node from being disrupted.", karpv1.AnnotationDoNotDisrupt)
	case protection == snapshot.ProtectedUntil && until.IsZero():
		block("Its annotation %s: %q protects its node for that long after it starts.",
			karpv1.AnnotationDoNotDisrupt, pod.Annotations[karpv1.AnnotationDoNotDisrupt])
	case protection == snapshot.ProtectedUntil:
		block("Its annotation %s: %q protects its node for %s more.",
			karpv1.AnnotationDoNotDisrupt, pod.Annotations[karpv1.AnnotationDoNotDisrupt], age(until.Sub(now)))
	case protection == snapshot.ProtectionInvalid:
		block("Its annotation %s: %q is neither true nor a duration, and protects nothing.",
			karpv1.AnnotationDoNotDisrupt, pod.Annotations[karpv1.AnnotationDoNotDisrupt])
	}
	e.budgets(block)
	if metav1.GetControllerOf(pod) == nil {
		block("No workload owns it: nothing creates it anew when its node goes.")
	}
}

// budgets states which PodDisruptionBudgets keep the pod from being evicted.
func (e *explanation) budgets(block func(format string, args ...any)) {
	var selecting []snapshot.Budget
	for _, b := range snapshot.Budgets(e.view.PDBs) {
		if b.Selects(e.pod) {
			selecting = append(selecting, b)
		}
	}
	if len(selecting) > 1 {
		block("%d PodDisruptionBudgets select it (%s and %s): the API server refuses to evict such a pod.",
			len(selecting), selecting[0].Name, selecting[1].Name)
		return
	}
	for _, b := range selecting {
		switch {
		case snapshot.FullyBlocked(e.pod, selecting, e.view.Now):
			block("PodDisruptionBudget %s never allows an eviction (%s).", b.Name, allowance(b))
		case b.Blocks(e.pod):
			block("PodDisruptionBudget %s allows no eviction now: %d of %d pods are healthy, and it wants %d.",
				b.Name, b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Status.DesiredHealthy)
		}
	}
}

// allowance is the field of a budget that decides.
func allowance(b snapshot.Budget) string {
	if b.Spec.MaxUnavailable != nil {
		return "maxUnavailable: " + b.Spec.MaxUnavailable.String()
	}
	return "minAvailable: " + b.Spec.MinAvailable.String() + fmt.Sprintf(" of %d", b.Status.ExpectedPods)
}

// claimState returns how far a NodeClaim without a ready node has come, as the rest of a sentence.
func (e *explanation) claimState(claim *karpv1.NodeClaim) string {
	old := e.since(claim.CreationTimestamp.Time)
	for _, step := range []struct{ condition, state string }{
		{karpv1.ConditionLaunched, "is not launched"},
		{karpv1.ConditionRegistered, "is launched, and its instance has not become a node"},
		{karpv1.ConditionInitialized, "is a node that is not initialized"},
	} {
		c, _ := condition.Get(claim, step.condition)
		if c.Status == metav1.ConditionTrue {
			continue
		}
		out := step.state + prefixed(" after ", old)
		if c.Message != "" && c.Reason != condition.ReasonAwaitingReconciliation {
			out += ": " + strings.TrimSuffix(c.Message, ".")
		}
		return out
	}
	return "is ready"
}
