package volume

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Index finds the nodes that volumes name, and the volumes that claims can be bound to. It reads the snapshot on first use, and is for one
// goroutine. The snapshot must not change.
type Index struct {
	s *snapshot.Snapshot
	// names are the names of all nodes, hosts their host names.
	names, hosts map[string]bool
	// free are the volumes that are not bound, smallest first, by storage class.
	free map[string][]*corev1.PersistentVolume
}

// NewIndex is the index of the snapshot.
func NewIndex(s *snapshot.Snapshot) *Index { return &Index{s: s} }

func (x *Index) readNodes() {
	if x.names != nil {
		return
	}
	x.names, x.hosts = make(map[string]bool, len(x.s.Nodes)), make(map[string]bool, len(x.s.Nodes))
	for i := range x.s.Nodes {
		n := &x.s.Nodes[i]
		if !n.Named() {
			continue
		}
		x.names[n.Name] = true
		x.hosts[cmp.Or(n.Labels[corev1.LabelHostname], n.Name)] = true
	}
}

// hasNode reports whether the cluster has a Node with the name.
func (x *Index) hasNode(name string) bool {
	x.readNodes()
	return x.names[name]
}

// lostHost is the host without which the volume cannot be used, if there is no such node any more; empty if there is, or if the volume can
// be used elsewhere.
func (x *Index) lostHost(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	lost := ""
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		at := slices.IndexFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) > 0
		})
		if at < 0 {
			return ""
		}
		x.readNodes()
		values := term.MatchExpressions[at].Values
		if slices.ContainsFunc(values, func(host string) bool { return x.hosts[host] }) {
			return ""
		}
		lost = cmp.Or(lost, values[0])
	}
	return lost
}

// unbound are the volumes that exist and that the claim of v can be bound to, smallest first. The rules are those of the volume binder:
// class, attributes class, mode, access modes, size, and the claim's selector; a volume that is reserved for a claim is for that one.
func (x *Index) unbound(v Volume) []*corev1.PersistentVolume {
	if x.free == nil {
		x.readFree()
	}
	selector, err := metav1.LabelSelectorAsSelector(v.claim.Spec.Selector)
	if err != nil {
		return nil
	}
	if v.claim.Spec.Selector == nil {
		selector = labels.Everything()
	}
	var out []*corev1.PersistentVolume
	for _, pv := range x.free[v.className] {
		if canBind(pv, v.claim) && selector.Matches(labels.Set(pv.Labels)) {
			out = append(out, pv)
		}
	}
	return out
}

func (x *Index) readFree() {
	x.free = map[string][]*corev1.PersistentVolume{}
	for _, pv := range x.s.Volumes.Volumes {
		if pv.DeletionTimestamp == nil && (pv.Status.Phase == corev1.VolumeAvailable || pv.Status.Phase == "") {
			class := className(pv.Annotations, &pv.Spec.StorageClassName)
			x.free[class] = append(x.free[class], pv)
		}
	}
	for _, list := range x.free {
		slices.SortFunc(list, func(a, b *corev1.PersistentVolume) int {
			return cmp.Or(a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()), cmp.Compare(a.Name, b.Name))
		})
	}
}

// canBind reports whether the volume has what the claim requests for, apart from class and selector.
func canBind(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if ref := pv.Spec.ClaimRef; ref != nil &&
		(ref.Namespace != claim.Namespace || ref.Name != claim.Name || ref.UID != "" && ref.UID != claim.UID) {
		return false
	}
	if or(pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != or(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) ||
		or(pv.Spec.VolumeAttributesClassName, "") != or(claim.Spec.VolumeAttributesClassName, "") {
		return false
	}
	for _, mode := range claim.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, mode) {
			return false
		}
	}
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return pv.Spec.Capacity.Storage().Cmp(asked) >= 0
}

// or returns what the pointer is to, or the default if it is nil.
func or[T any](p *T, standard T) T {
	if p == nil {
		return standard
	}
	return *p
}
