package validate

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// withStorage narrows where a claim can get its volume to where its driver has published that there is room for it, for drivers that
// publish it. Room on the disks of nodes is for hasLocalStorage: new nodes have published none.
func (c *check) withStorage(m *mount, claim *corev1.PersistentVolumeClaim, of *storagev1.StorageClass) {
	if !c.s.Volumes.ChecksCapacity[of.Provisioner] || c.s.Volumes.NodeLocal[of.Provisioner] {
		return
	}
	var terms [][]expr
	for _, o := range c.s.Volumes.Capacities[of.Name] {
		if room, published := roomOf(o); !published || room.Cmp(claim.Spec.Resources.Requests[corev1.ResourceStorage]) < 0 {
			continue
		}
		var list []corev1.NodeSelectorRequirement
		for k, v := range o.NodeTopology.MatchLabels {
			list = append(list, corev1.NodeSelectorRequirement{Key: k, Operator: corev1.NodeSelectorOpIn, Values: []string{v}})
		}
		for _, e := range o.NodeTopology.MatchExpressions {
			list = append(list, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
		}
		exprs, err := c.exprs(list)
		if err != nil {
			continue
		}
		if !m.somewhere {
			terms = append(terms, exprs)
		}
		for _, allowed := range m.terms {
			terms = append(terms, append(append([]expr{}, allowed...), exprs...))
		}
	}
	if m.somewhere, m.terms = true, terms; len(terms) == 0 {
		m.missing = "is larger than what its driver has published anywhere"
	}
}

// roomOf returns what an object states; false if it is about no node.
func roomOf(o *storagev1.CSIStorageCapacity) (resource.Quantity, bool) {
	switch {
	case o.NodeTopology == nil:
		return resource.Quantity{}, false
	case o.MaximumVolumeSize != nil:
		return *o.MaximumVolumeSize, true
	case o.Capacity != nil:
		return *o.Capacity, true
	}
	return resource.Quantity{}, true
}

// localClaims returns how many bytes the pod's claims request of the disks of its node, by storage class. Claims with a volume, and those
// with a volume that is being made, request none.
func (c *check) localClaims(pod *corev1.Pod) map[string]int64 {
	out := map[string]int64{}
	for _, m := range c.mounts(pod) {
		claim := c.s.Volumes.Claims[m.claim]
		if claim == nil || claim.Spec.VolumeName != "" || claim.Annotations["volume.kubernetes.io/selected-node"] != "" {
			continue
		}
		if of := c.classOf(claim); of != nil && c.s.Volumes.ChecksCapacity[of.Provisioner] && c.s.Volumes.NodeLocal[of.Provisioner] {
			q := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			out[of.Name] += q.Value()
		}
	}
	return out
}

// hasLocalStorage: the volumes that pods get of the disks of a new node fit on those of each type that it may become; and an existing node
// has published room for each of them. Pods that are nominated to a node keep their place.
func (c *check) hasLocalStorage(pl *host) {
	total := map[string]int64{}
	for _, pod := range pl.pods {
		for class, n := range c.localClaims(pod) {
			total[class] += n
			if pl.node != nil && pl.node.Initialized && !pl.node.KeepsNominated(pod.UID) && n > c.publishedOn(pl.node, class) {
				c.failAt([]*host{pl}, "pod %s: storage class %s has less than %d bytes left on %s", name(pod), class, n, pl.name)
			}
		}
	}
	if pl.launch == nil {
		return
	}
	for class, n := range total {
		for _, it := range pl.launch.InstanceTypes {
			if n > it.LocalStorage {
				c.failAt([]*host{pl}, "%s: volumes of class %s take %d bytes, and the disks of type %s have %d", pl.name, class, n, it.Name, it.LocalStorage)
			}
		}
	}
}

// publishedOn is the most that any object states of the node.
func (c *check) publishedOn(n *snapshot.Node, class string) (most int64) {
	for _, o := range c.s.Volumes.Capacities[class] {
		room, published := roomOf(o)
		if !published {
			continue
		}
		matches := true
		for k, v := range o.NodeTopology.MatchLabels {
			got, has := n.Labels[k]
			matches = matches && has && got == v
		}
		for _, e := range o.NodeTopology.MatchExpressions {
			got, has := n.Labels[e.Key]
			listed := false
			for _, v := range e.Values {
				listed = listed || v == got
			}
			switch corev1.NodeSelectorOperator(e.Operator) {
			case corev1.NodeSelectorOpIn:
				matches = matches && has && listed
			case corev1.NodeSelectorOpNotIn:
				matches = matches && !(has && listed)
			case corev1.NodeSelectorOpExists:
				matches = matches && has
			case corev1.NodeSelectorOpDoesNotExist:
				matches = matches && !has
			}
		}
		if matches {
			most = max(most, room.Value())
		}
	}
	return most
}
