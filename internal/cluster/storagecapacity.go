package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// nodeLocalDrivers are CSI drivers that are known to make volumes of the disks of a node. Others are recognized by what they publish.
var nodeLocalDrivers = []string{"lis.csi.aws.com", "local.csi.openebs.io", "topolvm.io"}

// addCapacities adds what drivers publish of the storage that is left.
func (w *snapshotBuilder) addCapacities(v *snapshot.Volumes) {
	v.ChecksCapacity, v.NodeLocal = map[string]bool{}, map[string]bool{}
	for _, driver := range w.CSIDrivers {
		if driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity {
			v.ChecksCapacity[driver.Name] = true
			v.NodeLocal[driver.Name] = slices.Contains(nodeLocalDrivers, driver.Name)
		}
	}
	if len(v.ChecksCapacity) == 0 {
		return
	}
	v.Capacities = map[string][]*storagev1.CSIStorageCapacity{}
	for _, c := range slices.SortedFunc(slices.Values(w.CSIStorageCapacities), byNamespacedName) {
		v.Capacities[c.StorageClassName] = append(v.Capacities[c.StorageClassName], c)
	}
	for class, list := range v.Capacities {
		if of := v.StorageClasses[class]; of != nil && v.ChecksCapacity[of.Provisioner] && w.eachOfOneNode(list) {
			v.NodeLocal[of.Provisioner] = true
		}
	}
}

// eachOfOneNode reports whether each of the objects with a topology is about a single node, by a label with a value that is the node's
// name: that is how drivers for the disks of nodes distinguish them . Objects of nodes that are gone do not count.
func (w *snapshotBuilder) eachOfOneNode(list []*storagev1.CSIStorageCapacity) bool {
	found := false
	for _, c := range list {
		if c.NodeTopology == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err != nil {
			continue
		}
		values := slices.Collect(maps.Values(c.NodeTopology.MatchLabels))
		for _, e := range c.NodeTopology.MatchExpressions {
			values = append(values, e.Values...)
		}
		for i := range w.snap.Nodes {
			n := &w.snap.Nodes[i]
			if !selector.Matches(labels.Set(n.Labels)) {
				continue
			}
			if !slices.Contains(values, n.Name) && !slices.Contains(values, n.Labels[corev1.LabelHostname]) {
				return false
			}
			found = true
		}
	}
	return found
}
