package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// StorageCapacityWorld is a SchedulerWorld with pods that have claims of a driver which publishes how much storage is left, by zone or
// everywhere. Storage of single nodes is not in it: there a plan adds up claims that kube-scheduler compares one by one.
func StorageCapacityWorld(next func() byte) *snapshot.Snapshot {
	return random{next}.storageCapacityWorld()
}

func (d random) storageCapacityWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	d.emptyStorage(s)
	const driver = "net.csi.example.com"
	s.Volumes.ChecksCapacity, s.Volumes.Capacities = map[string]bool{driver: !d.maybe(10)}, map[string][]*storagev1.CSIStorageCapacity{}
	for _, name := range []string{"fast", "slow"} {
		class := *s.Volumes.StorageClasses["wait"]
		class.Name, class.Provisioner = name, driver
		if d.maybe(12) {
			class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
				{Key: Zone, Values: some(d, 2, Zones()...)},
			}}}
		}
		s.Volumes.StorageClasses[name] = &class
		for i := range d.n(6) {
			s.Volumes.Capacities[name] = append(s.Volumes.Capacities[name], d.storageCapacity(fmt.Sprintf("%s-%d", name, i), name))
		}
	}
	edits := map[string]edit{}
	for _, p := range podsOf(s) {
		family := p.Name[:1]
		if edits[family] == nil {
			class, size := pick(d, "fast", "slow"), fmt.Sprintf("%dGi", 5*d.from(1, 4))
			edits[family] = func(p *corev1.Pod) {
				newClaim(s, p, "mine-"+p.Name, class).Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
			}
			if d.maybe(35) {
				edits[family] = func(*corev1.Pod) {}
			}
		}
		edits[family](p)
	}
	return s
}

func (d random) storageCapacity(name, class string) *storagev1.CSIStorageCapacity {
	out := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, StorageClassName: class}
	amount := func() *resource.Quantity {
		q := resource.MustParse(fmt.Sprintf("%dGi", 5*d.from(1, 8)))
		return &q
	}
	if !d.maybe(10) {
		out.Capacity = amount()
	}
	if d.maybe(20) {
		out.MaximumVolumeSize = amount()
	}
	switch d.n(10) {
	case 0: // of no node
	case 1:
		out.NodeTopology = &metav1.LabelSelector{} // of all nodes
	case 2, 3:
		out.NodeTopology = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: Zone, Operator: metav1.LabelSelectorOpIn, Values: some(d, 2, Zones()...)},
		}}
	default:
		out.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{Zone: pick(d, Zones()...)}}
	}
	return out
}
