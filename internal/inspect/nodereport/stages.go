package nodereport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Stage is one step of a node's start.
type Stage struct {
	Name string `json:"name"`
	// Done is true once the step is complete, since At.
	Done bool       `json:"done"`
	At   *time.Time `json:"at,omitempty"`
	// Message holds what its condition states; empty for most that are done.
	Message string `json:"message"`
}

// stages are the steps from the claim to a Ready node.
func (b *builder) stages() []Stage {
	out := []Stage{}
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
		c, _ := condition.Get(b.claim, typ)
		s := Stage{Name: typ, Done: c.Status == metav1.ConditionTrue}
		if !c.LastTransitionTime.IsZero() {
			at := c.LastTransitionTime.UTC()
			s.At = &at
		}
		if !s.Done && c.Reason != condition.ReasonAwaitingReconciliation {
			s.Message = words(c)
		}
		out = append(out, s)
	}
	if c, ok := b.nodeReady(); ok {
		s := Stage{Name: "Ready", Done: c.Status == corev1.ConditionTrue}
		if !c.LastTransitionTime.IsZero() {
			at := c.LastTransitionTime.UTC()
			s.At = &at
		}
		if !s.Done {
			s.Message = strings.TrimSpace(c.Reason + ": " + c.Message)
		}
		out = append(out, s)
	}
	return out
}

// words are reason and message of a condition.
func words(c metav1.Condition) string {
	if c.Reason == "" || c.Reason == c.Type || strings.Contains(c.Message, c.Reason) {
		return c.Message
	}
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

func (b *builder) nodeReady() (corev1.NodeCondition, bool) {
	if b.node == nil {
		return corev1.NodeCondition{}, false
	}
	i := slices.IndexFunc(b.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return corev1.NodeCondition{Type: corev1.NodeReady, Reason: "NotReported", Message: "kubelet has not reported yet"}, true
	}
	return b.node.Status.Conditions[i], true
}

// starting is the verdict on a node that is not initialized, or reboots; false if it is up.
func (b *builder) starting() (Verdict, bool) {
	age := report.Age(b.now().Sub(b.n.CreatedAt))
	launched, _ := condition.Get(b.claim, karpv1.ConditionLaunched)
	switch {
	case b.n.Rebooting:
		return Verdict{Starting, "Rebooting", "reboots, to repair it; its pods wait for it"}, true
	case !b.n.Launched && launched.Status == metav1.ConditionFalse:
		return Verdict{Starting, cmp.Or(launched.Reason, "NotLaunched"), fmt.Sprintf("has no instance after %s: %s", age, words(launched))}, true
	case !b.n.Launched:
		return Verdict{Starting, "NotLaunched", fmt.Sprintf("has been launching for %s%s", age, b.finding(launched))}, true
	case b.node == nil && condition.IsTrue(b.claim, karpv1.ConditionRegistered):
		return Verdict{Starting, "NodeGone", "had a Node, which was deleted: its instance runs, and nothing schedules on it"}, true
	case b.node == nil:
		c, _ := condition.Get(b.claim, karpv1.ConditionRegistered)
		return Verdict{Starting, "NotRegistered", fmt.Sprintf("has instance %s, which has not joined the cluster after %s%s", b.instance(), age, b.finding(c))}, true
	case !b.n.Registered:
		c, _ := condition.Get(b.claim, karpv1.ConditionRegistered)
		return Verdict{Starting, "NotRegistered", "has joined, and waits for its registration" + b.finding(c)}, true
	case !b.n.Initialized:
		reason, what := b.waitsFor()
		return Verdict{Starting, reason, fmt.Sprintf("is not initialized after %s: it waits for %s", age, what)}, true
	}
	return Verdict{}, false
}

// instance is the ID of the instance.
func (b *builder) instance() string {
	id := b.claim.Status.ProviderID
	return cmp.Or(id[strings.LastIndex(id, "/")+1:], "of unknown ID")
}

// finding returns what a condition, or the pool, states about a start that is late.
func (b *builder) finding(c metav1.Condition) string {
	if c.Message != "" && c.Reason != condition.ReasonAwaitingReconciliation {
		return ": " + words(c)
	}
	if b.pool != nil {
		if p, ok := condition.Get(b.pool, karpv1.ConditionNodesCanJoin); ok && p.Status == metav1.ConditionFalse {
			return fmt.Sprintf("; NodePool %s: %s", b.pool.Name, words(p))
		}
	}
	return ""
}

// waitsFor is the first thing that keeps a registered node from being initialized, as initialization checks them.
func (b *builder) waitsFor() (reason, text string) {
	if c, ok := b.nodeReady(); ok && c.Status != corev1.ConditionTrue {
		return "NotReady", fmt.Sprintf("kubelet to report Ready (%s: %s)", c.Reason, c.Message)
	}
	for i := range b.node.Spec.Taints {
		t := &b.node.Spec.Taints[i]
		if slices.ContainsFunc(b.claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(t) }) {
			return "StartupTaint", fmt.Sprintf("the startup taint %s, which another controller must remove", t.ToString())
		}
	}
	for i := range b.node.Spec.Taints {
		t := &b.node.Spec.Taints[i]
		if strings.HasPrefix(t.Key, "readiness.k8s.io/") || t.Key == "node.cloudprovider.kubernetes.io/uninitialized" {
			return "Taint", fmt.Sprintf("the taint %s, which its owner must remove", t.ToString())
		}
	}
	if name := b.missing(); name != "" {
		return "Resource", fmt.Sprintf("the resource %s, which its device plugin has not registered", name)
	}
	c, _ := condition.Get(b.claim, karpv1.ConditionInitialized)
	return cmp.Or(c.Reason, "NotInitialized"), cmp.Or(words(c), "the next look of its controller")
}

// missing is a resource that the claim expects and the node does not have.
func (b *builder) missing() string {
	var names []string
	for name := range b.claim.Status.Allocatable {
		if positive(b.claim.Status.Allocatable, name) && !positive(b.node.Status.Allocatable, name) {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
