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

// lateQuiet is for how long it is not repeated that a taint is late: there may be a thousand such nodes, each looked at again every
// two minutes.
const lateQuiet = 15 * time.Minute

// waiting is what keeps a node from being initialized.
type waiting struct {
	reason, message string
	// again is when that is worth another look though nothing has changed; zero if it is not.
	again time.Duration
	// over is true where it was removed just now.
	over bool
}

// ownerOf says who removes a startup taint.
func ownerOf(t *corev1.Taint) string {
	if owner, known := snapshot.TaintOwner(t); known {
		return owner
	}
	return "whoever the NodePool's startupTaints were written for"
}

// stuck says, of a taint that is overdue, whose it is.
func stuck(node *corev1.Node, t *corev1.Taint, owner string, after time.Duration) string {
	message := fmt.Sprintf("taint %q is still on Node %s after %v; it is for %s to remove", t.ToString(), node.Name, after.Round(time.Second), owner)
	if t.Key == snapshot.TaintUninitialized && !cloudControllerDone(node) {
		message += ", which has not finished with this node: see its logs, its permissions (ec2:DescribeInstances), and whether EC2 throttles it"
	}
	return message + "; to use the node at once, run the command that `dovetail doctor` prints for it"
}

// cloudControllerDone reports whether the cloud controller manager has written onto the node all that it writes. It
// does so together with removing its taint: a taint that is there nevertheless was put back by a writer with a stale list.
// The labels looked at are written by nobody else.
func cloudControllerDone(node *corev1.Node) bool {
	named := slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalDNS })
	return named && node.Spec.ProviderID != "" && node.Labels[corev1.LabelFailureDomainBetaZone] != "" && node.Labels[corev1.LabelInstanceType] != ""
}

// removeTaint takes one taint off the node, on the condition that the node is as it was read. The list is never sent.
func (r *Reconciler) removeTaint(ctx context.Context, node *corev1.Node, t *corev1.Taint) error {
	at := slices.IndexFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(t) })
	if at < 0 {
		return nil
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	path := fmt.Sprintf("/spec/taints/%d", at)
	patch, err := json.Marshal([]operation{
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

// overdue looks at what a node has been waiting for since it has registered. Beyond its time, a node that is not Ready is named with
// kubelet's reason, a taint with its owner; a taint that its owner has removed and a stale write has put back is removed again.
func (r *Reconciler) overdue(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, w waiting) (waiting, error) {
	ready, taint := cluster.NodeReady(node), cluster.StartupTaint(claim, node)
	if ready && taint == nil {
		return w, nil
	}
	if w.again = waitsSince(claim, node, taint).Add(r.patience()).Sub(r.Now()); w.again > 0 {
		return w, nil
	}
	w.again = 0
	if !ready {
		w.reason, w.message = cluster.ReasonNotReadyStuck, neverReady(node, r.patience())
		r.Events.Warn(claim, w.reason, "NodeClaim %s: %s", claim.Name, w.message)
		return w, nil
	}
	if taint.Key == snapshot.TaintUninitialized && r.MendLostTaints && cloudControllerDone(node) {
		return waiting{over: true}, r.mend(ctx, claim, node, taint)
	}
	// A claim that was named stays so until its node is initialized: its pods have another node by now.
	named, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if named.Reason != cluster.ReasonTaintStuck {
		if err := r.Removals.Prime(ctx, r.Client); err != nil {
			return w, err
		}
		if rest := r.Removals.LateUntil(node, taint).Sub(r.Now()); rest > 0 {
			w.again, w.message = rest, late(node, taint, r.patience())
			r.Events.NormalEvery(lateQuiet, claim, "TaintLate", "NodeClaim %s: %s", claim.Name, w.message)
			return w, nil
		}
	}
	w.reason, w.message = cluster.ReasonTaintStuck, stuck(node, taint, ownerOf(taint), r.patience())
	r.Events.Warn(claim, w.reason, "NodeClaim %s: %s", claim.Name, w.message)
	return w, nil
}

// waitsSince is when the time began that a node has for becoming Ready, or for losing a taint: when it registered. The taints that the
// node lifecycle controller removes once the node is Ready cannot go before.
func waitsSince(claim *karpv1.NodeClaim, node *corev1.Node, taint *corev1.Taint) time.Time {
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

// late says of a taint that its owner is slow.
func late(node *corev1.Node, t *corev1.Taint, after time.Duration) string {
	return fmt.Sprintf("taint %q is still on Node %s after %v; it is for %s to remove, which has removed it from other nodes in the last %v: "+
		"it is slow, and the node will come later; its pods wait for it, and no other node is launched for them",
		t.ToString(), node.Name, after.Round(time.Second), ownerOf(t), cluster.RemoverAtWork)
}

// neverReady says of a node that is not Ready what its kubelet reports.
func neverReady(node *corev1.Node, after time.Duration) string {
	why := "kubelet has reported no status"
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			why = c.Reason + ": " + c.Message
		}
	}
	return fmt.Sprintf("Node %s has registered, and is not Ready after %v: %s; see the pods of the network plugin on it: "+
		"kubectl get pods -A -o wide --field-selector spec.nodeName=%s", node.Name, after.Round(time.Second), why, node.Name)
}

// mend removes the taint of a cloud controller manager that is done with the node.
func (r *Reconciler) mend(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, t *corev1.Taint) error {
	if err := r.removeTaint(ctx, node, t); err != nil {
		return err
	}
	r.Events.Warn(node, "LostTaintRemoved",
		"Removed taint %s: the cloud controller manager is done with Node %s, and another writer has put its taint back", t.ToString(), node.Name)
	r.Log.Warn("removed a taint that a stale write had put back", "Node", node.Name, "NodeClaim", claim.Name, "taint", t.ToString())
	return nil
}

func (r *Reconciler) patience() time.Duration {
	if r.Patience > 0 {
		return r.Patience
	}
	return time.Minute
}
