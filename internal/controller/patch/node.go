package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Node reads a Node from the cache and writes what mutate changed in its labels, annotations, taints, finalizers and owners. Kubelet,
// cloud controller manager and Kubernetes' own controllers write a Node that joins many times within a second, so one that is locked to
// the version in the cache is mostly refused. The precondition here is what the change rests on: the same Node, not being deleted,
// with the same lists, which are written whole. If mutate only removes taints, the others may change: each operation tests the taint
// that it removes, and no taint is written. If the precondition does not hold, the Node is read from the API server, and the change
// is written as by ObjectWithRetry, locked to that version.
func Node(ctx context.Context, clients Clients, node *corev1.Node, mutate func(*corev1.Node) error) error {
	if err := clients.Client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return err
	}
	before := node.DeepCopy()
	if err := mutate(node); err != nil {
		return err
	}
	operations := nodeOperations(before, node)
	if len(operations) == 0 {
		return nil
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	err = clients.Client.Patch(ctx, node, client.RawPatch(types.JSONPatchType, data))
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) { // the API server calls a failed test invalid
		return err
	}
	clients.SkipCache = true
	return ObjectWithRetry(ctx, clients, node, mutate)
}

// operation is one of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

const (
	ownersPath     = "/metadata/ownerReferences"
	finalizersPath = "/metadata/finalizers"
	taintsPath     = "/spec/taints"
)

// sameNode are the preconditions of every change: it is the same Node, and not being deleted. An absent field equals null.
func sameNode(n *corev1.Node) []operation {
	return []operation{{"test", "/metadata/uid", n.UID}, {"test", "/metadata/deletionTimestamp", n.DeletionTimestamp}}
}

// nodeLists are the lists of a Node that are written whole; an empty list is null.
func nodeLists(n *corev1.Node) []operation {
	out := []operation{{"add", ownersPath, nil}, {"add", finalizersPath, nil}, {"add", taintsPath, nil}}
	if len(n.OwnerReferences) > 0 {
		out[0].Value = n.OwnerReferences
	}
	if len(n.Finalizers) > 0 {
		out[1].Value = n.Finalizers
	}
	if len(n.Spec.Taints) > 0 {
		out[2].Value = n.Spec.Taints
	}
	return out
}

// nodeOperations are the changes from before to after, with their preconditions; none if nothing changes.
func nodeOperations(before, after *corev1.Node) []operation {
	changes := append(mapOperations("/metadata/labels", before.Labels, after.Labels),
		mapOperations("/metadata/annotations", before.Annotations, after.Annotations)...)
	tests, had := sameNode(before), nodeLists(before)
	for i, list := range nodeLists(after) {
		if list.Path == taintsPath {
			if removed, only := removedTaints(before.Spec.Taints, after.Spec.Taints); only && len(removed) > 0 {
				changes = append(changes, removeTaints(before.Spec.Taints, removed)...)
				continue
			}
		}
		tests = append(tests, operation{"test", list.Path, had[i].Value})
		switch {
		case equality.Semantic.DeepEqual(had[i].Value, list.Value):
		case list.Value == nil:
			changes = append(changes, operation{Op: "remove", Path: list.Path})
		default:
			changes = append(changes, list)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return append(tests, changes...)
}

// removedTaints returns the indexes of the taints that after lacks. It is only a removal if after has no others, in the same order.
func removedTaints(before, after []corev1.Taint) (indexes []int, only bool) {
	for i := range before {
		if len(after) > 0 && equality.Semantic.DeepEqual(before[i], after[0]) {
			after = after[1:]
		} else {
			indexes = append(indexes, i)
		}
	}
	return indexes, len(after) == 0
}

// removeTaints removes the taints at these ascending indexes, the last one first: the indexes of the others stay as they are.
func removeTaints(taints []corev1.Taint, indexes []int) (out []operation) {
	for _, i := range slices.Backward(indexes) {
		path := fmt.Sprintf("%s/%d", taintsPath, i)
		out = append(out, operation{"test", path, taints[i]}, operation{Op: "remove", Path: path})
	}
	return out
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// mapOperations are the changes of a map, key by key: what others write under other keys is kept.
func mapOperations(path string, before, after map[string]string) (out []operation) {
	if len(before) == 0 && len(after) > 0 {
		return []operation{{"test", path, nil}, {"add", path, after}}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, ok := before[key]; !ok || value != after[key] {
			out = append(out, operation{"add", path + "/" + pointerEscapes.Replace(key), after[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			out = append(out, operation{Op: "remove", Path: path + "/" + pointerEscapes.Replace(key)})
		}
	}
	return out
}
