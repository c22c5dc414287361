package initialization

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// taintLateEventWindow is the dedupe window of the event about a late taint. There may be a thousand such nodes, each
// checked again every two minutes.
const taintLateEventWindow = 15 * time.Minute

// waiting describes what keeps a node from being initialized.
type waiting struct {
	reason, message string
	// recheckAfter is the time when to check again though nothing has changed; zero for not at all.
	recheckAfter time.Duration
	// resolved is true if this reconcile has just removed the obstacle.
	resolved bool
}

// ownerOf returns who removes a startup taint.
func ownerOf(t *corev1.Taint) string {
	if owner, known := snapshot.TaintOwner(t); known {
		return owner
	}
	return "the component that the NodePool's startupTaints are for"
}

// stuckMessage describes a taint that has outlived the grace period: its owner, and what to do.
func stuckMessage(node *corev1.Node, t *corev1.Taint, owner string, after time.Duration) string {
	message := fmt.Sprintf(
		"taint %q is still on Node %s after %v; %s must remove it",
		t.ToString(),
		node.Name,
		after.Round(time.Second),
		owner,
	)
	if t.Key == snapshot.TaintUninitialized && !cloudControllerDone(node) {
		message += " and has not finished with this node: check its logs, its permissions (ec2:DescribeInstances), and whether EC2 throttles it"
	}
	return message + "; to use the node at once, run the command that `dovetail doctor` prints for it"
}

// cloudControllerDone reports whether the cloud controller manager has written everything that it writes onto the node.
// It removes its taint in the same step: a taint that is still there was put back by a writer with a stale list. Nobody
// else writes the labels checked here.
func cloudControllerDone(node *corev1.Node) bool {
	named := slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalDNS })
	return named && node.Spec.ProviderID != "" && node.Labels[corev1.LabelFailureDomainBetaZone] != "" &&
		node.Labels[corev1.LabelInstanceType] != ""
}

// removeTaint removes one taint from the node if the node has not changed since it was read. It never sends the whole
// list.
func (r *Reconciler) removeTaint(ctx context.Context, node *corev1.Node, t *corev1.Taint) error {
	at := slices.IndexFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(t) })
	if at < 0 {
		return nil
	}
	path := fmt.Sprintf("/spec/taints/%d", at)
	patch, err := json.Marshal([]jsonPatchOperation{
		{"test", "/metadata/resourceVersion", node.ResourceVersion},
		{"test", path + "/key", t.Key},
		{"test", path + "/effect", string(t.Effect)},
		{"remove", path, nil},
	})
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
}

// overdue checks what a registered node waits for. After the grace period it reports a node that is not Ready with the
// kubelet's reason, and a taint with its owner. It removes a taint again that its owner has removed and a stale write
// has put back.
func (r *Reconciler) overdue(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, w waiting) (waiting, error) {
	ready, taint := cluster.NodeReady(node), cluster.StartupTaint(claim, node)
	if ready && taint == nil {
		return w, nil
	}
	if w.recheckAfter = graceStart(claim, node, taint).Add(r.gracePeriod()).Sub(r.Now()); w.recheckAfter > 0 {
		return w, nil
	}
	w.recheckAfter = 0
	if !ready {
		w.reason, w.message = cluster.ReasonNotReadyStuck, notReadyMessage(node, r.gracePeriod())
		r.Events.Warn(claim, w.reason, "NodeClaim %s: %s", claim.Name, w.message)
		return w, nil
	}
	if taint.Key == snapshot.TaintUninitialized && r.RepairStaleTaints && cloudControllerDone(node) {
		return waiting{resolved: true}, r.repairStaleTaint(ctx, claim, node, taint)
	}
	// A claim reported as stuck stays so until its node is initialized: its pods have another node by now.
	current, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if current.Reason != cluster.ReasonTaintStuck {
		if err := r.Removals.Prime(ctx, r.Client); err != nil {
			return w, err
		}
		if rest := r.Removals.LateUntil(node, taint).Sub(r.Now()); rest > 0 {
			w.recheckAfter, w.message = rest, lateMessage(node, taint, r.gracePeriod())
			r.Events.NormalEvery(taintLateEventWindow, claim, "TaintLate", "NodeClaim %s: %s", claim.Name, w.message)
			return w, nil
		}
	}
	w.reason, w.message = cluster.ReasonTaintStuck, stuckMessage(node, taint, ownerOf(taint), r.gracePeriod())
	r.Events.Warn(claim, w.reason, "NodeClaim %s: %s", claim.Name, w.message)
	return w, nil
}

// graceStart returns when the grace period of a node begins: at its registration. The node lifecycle controller removes its
// taints only after the node is Ready, so theirs begins then.
func graceStart(claim *karpv1.NodeClaim, node *corev1.Node, taint *corev1.Taint) time.Time {
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	since := registered.LastTransitionTime.Time
	if taint == nil || taint.Key != corev1.TaintNodeNotReady && taint.Key != corev1.TaintNodeUnreachable {
		return since
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// lateMessage describes a taint that its owner is slow to remove.
func lateMessage(node *corev1.Node, t *corev1.Taint, after time.Duration) string {
	return fmt.Sprintf("taint %q is still on Node %s after %v; %s must remove it and has removed it from other nodes in the last %v: "+
		"it is slow; the pods of the node wait, and no other node is launched for them",
		t.ToString(), node.Name, after.Round(time.Second), ownerOf(t), cluster.TaintOwnerWindow)
}

// notReadyMessage describes a node that is not Ready, with what its kubelet reports.
func notReadyMessage(node *corev1.Node, after time.Duration) string {
	why := "kubelet has reported no status"
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			why = c.Reason + ": " + c.Message
		}
	}
	return fmt.Sprintf("Node %s has registered but is not Ready after %v: %s; check the pods of the network plugin on it: "+
		"kubectl get pods -A -o wide --field-selector spec.nodeName=%s", node.Name, after.Round(time.Second), why, node.Name)
}

// repairStaleTaint removes the taint of a cloud controller manager that has finished with the node.
func (r *Reconciler) repairStaleTaint(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, t *corev1.Taint) error {
	if err := r.removeTaint(ctx, node, t); err != nil {
		return err
	}
	r.Events.Warn(
		node,
		"StaleTaintRemoved",
		"Removed taint %s: the cloud controller manager has finished with Node %s, and another writer put the taint back",
		t.ToString(),
		node.Name,
	)
	r.Log.Warn("removed a taint that a stale write had put back", "Node", node.Name, "NodeClaim", claim.Name, "taint", t.ToString())
	return nil
}

func (r *Reconciler) gracePeriod() time.Duration {
	if r.GracePeriod > 0 {
		return r.GracePeriod
	}
	return time.Minute
}

// jsonPatchOperation is one operation of an RFC 6902 patch.
type jsonPatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}
