package initialize

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// lastTaint returns the taint that keeps a Ready node from being initialized, and who removes it; nil if none does.
func lastTaint(claim *karpv1.NodeClaim, node *corev1.Node) (*corev1.Taint, string) {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		startup := slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(t) })
		if !startup && !snapshot.KnownEphemeral(t) {
			continue
		}
		owner, known := snapshot.TaintOwner(t)
		if !known {
			owner = "whoever the NodePool's startupTaints were written for"
		}
		return t, owner
	}
	return nil, ""
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

// overdue handles a taint that should have gone: one that its owner has removed and a stale write has put back is
// removed again, any other is named. It returns reason and message, or nothing if the taint was removed.
func (r *Reconciler) overdue(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, t *corev1.Taint, owner string) (reason, message string, err error) {
	if t.Key == snapshot.TaintUninitialized && r.MendLostTaints && cloudControllerDone(node) {
		if err := r.removeTaint(ctx, node, t); err != nil {
			return "", "", err
		}
		r.Events.Warn(node, "LostTaintRemoved", "Removed taint %s: the cloud controller manager is done with Node %s, and another writer has put its taint back", t.ToString(), node.Name)
		r.Log.Warn("removed a taint that a stale write had put back", "Node", node.Name, "NodeClaim", claim.Name, "taint", t.ToString())
		return "", "", nil
	}
	message = stuck(node, t, owner, r.patience())
	r.Events.Warn(claim, cluster.ReasonTaintStuck, "NodeClaim %s: %s", claim.Name, message)
	return cluster.ReasonTaintStuck, message, nil
}

func (r *Reconciler) patience() time.Duration {
	if r.Patience > 0 {
		return r.Patience
	}
	return time.Minute
}
