package termination

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// reasonTermination is the reason of the conditions that this package writes on Nodes: those with others are of other actors.
const reasonTermination = "KarpenterTermination"

// announceDrain publishes on the Node that its pods are being evicted, until it is drained.
func (r *NodeReconciler) announceDrain(ctx context.Context, t *termination) (time.Duration, error) {
	for _, c := range t.node.Status.Conditions {
		if c.Type == corev1.NodeDrained && c.Status == corev1.ConditionTrue {
			return 0, nil
		}
	}
	r.announce(ctx, t, nodeCondition{corev1.NodeDrainInProgress, true, "The node's pods are evicted, since the node is being deleted."})
	return 0, nil
}

// announceDrained publishes on the Node that no pod is left to evict. The instance terminates next.
func (r *NodeReconciler) announceDrained(ctx context.Context, t *termination) (time.Duration, error) {
	r.announce(ctx, t,
		nodeCondition{corev1.NodeDrained, true, "The node's pods have gone. Its instance is terminated next."},
		nodeCondition{corev1.NodeDrainInProgress, false, "The node's pods have gone."},
	)
	return 0, nil
}

// nodeCondition is a condition that a Node should have.
type nodeCondition struct {
	kind    corev1.NodeConditionType
	is      bool
	message string
}

// announce writes conditions on a Node with our taint (KEP-5683), if the feature gate is on. What another actor has stated stays. A drain
// does not wait for a write that fails: it is tried again with the next step. Without the right to write, later steps leave it out: a drain
// takes a step each second.
func (r *NodeReconciler) announce(ctx context.Context, t *termination, want ...nodeCondition) {
	if !r.LifecycleConditions || !slices.ContainsFunc(t.node.Spec.Taints, karpv1.IsTaintDisrupted) {
		return
	}
	var write []corev1.NodeCondition
	for _, c := range want {
		status := corev1.ConditionFalse
		if c.is {
			status = corev1.ConditionTrue
		}
		at := slices.IndexFunc(t.node.Status.Conditions, func(has corev1.NodeCondition) bool { return has.Type == c.kind })
		if at >= 0 {
			has := &t.node.Status.Conditions[at]
			if has.Status == status || has.Reason != reasonTermination && has.Status == corev1.ConditionTrue {
				continue
			}
		} else if !c.is {
			continue // nobody has stated that it is
		}
		now := metav1.NewTime(r.Now())
		write = append(write, corev1.NodeCondition{
			Type: c.kind, Status: status, Reason: reasonTermination, Message: c.message, LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	if len(write) == 0 || !r.refused.mayTry(r.Now()) {
		return
	}
	err := r.patchConditions(ctx, t.node, write)
	forbidden := apierrors.IsForbidden(err)
	if first := r.refused.note(forbidden, r.Now()); client.IgnoreNotFound(err) != nil && (first || !forbidden) {
		r.Events.Warn(t.node, "ConditionsNotWritten",
			"The feature gate NodeLifecycleConditions needs the right to patch nodes/status: %v", err)
	}
}

// patchConditions writes these conditions of a Node, and leaves the others alone: the kubelet writes its own all the time.
func (r *NodeReconciler) patchConditions(ctx context.Context, node *corev1.Node, write []corev1.NodeCondition) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"conditions": write},
	})
	if err != nil {
		return fmt.Errorf("write conditions of node %q: %w", node.Name, err)
	}
	written := node.DeepCopy() // the answer must not replace what this pass has observed
	if err := r.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		return fmt.Errorf("write conditions of node %q: %w", node.Name, err)
	}
	node.ResourceVersion, node.Status.Conditions = written.ResourceVersion, written.Status.Conditions
	return nil
}
