package deletioncost

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Change is the annotation that a pod is to get.
type Change struct {
	Pod *corev1.Pod
	// Value replaces the pod's value; nil removes it.
	Value *int32
}

// Own returns the value that this package chose for the pod earlier. A value that somebody else has set, or changed, is
// not ours.
func Own(p *corev1.Pod) (value int32, ours bool) {
	text, set := p.Annotations[corev1.PodDeletionCost]
	if !set || p.Annotations[karpv1.AnnotationOwnDeletionCost] != text {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err == nil
}

// placed is a pod of a ReplicaSet that runs on a node.
type placed struct {
	pod  *corev1.Pod
	node *snapshot.Node
	// value is the present one, 0 without the annotation, as the ReplicaSet reads it.
	value int64
}

// Changes returns the writes that put the pods of each ReplicaSet in the order of their nodes: those of leaving nodes
// have the lowest values, then those of the next nodes, and those of nodes that stay have none. The order of the result
// is that of the ReplicaSets' UIDs. With a nil ranking all own values are removed.
//
// It costs O(p log p) for p pods, and for each ReplicaSet with topology spread constraints its pods times their domains.
func Changes(nodes []snapshot.Node, r *Ranking) []Change {
	position := map[string]int{}
	if r != nil {
		for i, name := range r.Next {
			position[name] = i + 1
		}
		for name := range r.Leaving {
			position[name] = 0
		}
	}
	owners := byReplicaSet(nodes)
	var out []Change
	for _, uid := range slices.Sorted(maps.Keys(owners)) {
		out = append(out, changesOf(owners[uid], position)...)
	}
	return out
}

// byReplicaSet returns the pods that values are chosen for. Pods with values of others keep these.
func byReplicaSet(nodes []snapshot.Node) map[types.UID][]placed {
	out := map[types.UID][]placed{}
	for i := range nodes {
		for _, p := range nodes[i].Pods {
			owner := metav1.GetControllerOfNoCopy(p)
			if owner == nil || owner.Kind != "ReplicaSet" || !snapshot.Active(p) {
				continue
			}
			value, ours := Own(p)
			if _, set := p.Annotations[corev1.PodDeletionCost]; set && !ours {
				continue
			}
			out[owner.UID] = append(out[owner.UID], placed{p, &nodes[i], int64(value)})
		}
	}
	return out
}

// changesOf returns the changes of the pods of one ReplicaSet.
func changesOf(pods []placed, position map[string]int) []Change {
	var ranked, staying []placed
	for _, p := range pods {
		if _, ok := position[p.node.Name]; ok {
			ranked = append(ranked, p)
		} else {
			staying = append(staying, p)
		}
	}
	slices.SortStableFunc(ranked, func(a, b placed) int {
		return cmp.Or(
			cmp.Compare(position[a.node.Name], position[b.node.Name]),
			cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	groups, kept := spreadGroups(ranked, staying, position)
	staying = append(staying, kept...)
	if len(groups) == 1 && len(staying) == 0 {
		return nil // any values are in order
	}
	var out []Change
	for i, value := range chooseValues(groups, len(staying) > 0, len(groups) > 0 && position[groups[0][0].node.Name] == 0) {
		for _, p := range groups[i] {
			out = p.change(out, value)
		}
	}
	for _, p := range staying {
		out = p.change(out, 0)
	}
	return out
}

// change appends the change that gives the pod a value, unless it has that.
func (p placed) change(out []Change, value int64) []Change {
	_, set := p.pod.Annotations[corev1.PodDeletionCost]
	switch {
	case value == 0 && set:
		return append(out, Change{Pod: p.pod})
	case value == 0 || p.value == value:
		return out
	}
	v := int32(value)
	return append(out, Change{p.pod, &v})
}
