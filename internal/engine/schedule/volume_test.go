package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// disk is a PersistentVolumeClaim with whatever it is bound to.
type disk struct {
	name    string
	class   string
	edit    func(*corev1.PersistentVolumeClaim)
	volume  *corev1.PersistentVolume
	pending bool // the volume is named but not bound
}

func volumeIn(terms ...[]corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
	for _, exprs := range terms {
		if pv.Spec.NodeAffinity == nil {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		}
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms = append(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: exprs})
	}
	return pv
}

func zoned(zones ...string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{Expr(Zone, in, zones...)}
}

func storageClass(name string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "topology.ebs.csi.aws.com/zone", Values: zones}}}}
	}
	return c
}

func storage(s *snapshot.Snapshot, disks ...disk) *snapshot.Snapshot {
	s.Labels.Normalized["topology.ebs.csi.aws.com/zone"] = Zone
	s.Volumes = snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{},
	}
	for _, c := range []*storagev1.StorageClass{
		storageClass("wait", storagev1.VolumeBindingWaitForFirstConsumer),
		storageClass("zonal", storagev1.VolumeBindingWaitForFirstConsumer, "z1", "z3"),
		storageClass("now", storagev1.VolumeBindingImmediate),
	} {
		s.Volumes.StorageClasses[c.Name] = c
	}
	for _, d := range disks {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d.name}}
		if d.class != "" {
			pvc.Spec.StorageClassName = &d.class
		}
		if d.volume != nil {
			d.volume.Name = "pv-" + d.name
			pvc.Spec.VolumeName = d.volume.Name
			if !d.pending {
				pvc.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			}
			s.Volumes.Volumes[d.volume.Name] = d.volume
		}
		if d.edit != nil {
			d.edit(pvc)
		}
		s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: d.name}] = pvc
	}
	return s
}

func TestVolumes(t *testing.T) {
	oneReserved := func(d disk, edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		d.name = "data"
		return storage(world(Pod("a", append(edit, Claims("data"))...)), d)
	}
	two := func(a, b disk, edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		a.name, b.name = "data", "logs"
		return storage(world(Pod("a", append(edit, Claims("data"), Claims("logs"))...)), a, b)
	}
	allow := func(zones ...string) func(*corev1.Pod) { return Needs(Expr(Zone, in, zones...)) }
	deleting := func(m *metav1.ObjectMeta) { now := metav1.Time{Time: Now()}; m.DeletionTimestamp = &now }
	goingVolume := volumeIn()
	deleting(&goingVolume.ObjectMeta)
	local := func(terms ...[]corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
		pv := volumeIn(terms...)
		pv.Spec.CSI, pv.Spec.Local = nil, &corev1.LocalVolumeSource{Path: "/data"}
		return pv
	}
	onHost := func(terms ...[]corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
		pv := volumeIn(terms...)
		pv.Spec.CSI, pv.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/data"}
		return pv
	}
	host := []corev1.NodeSelectorRequirement{Expr(Host, in, "gone")}
	ephemeral := Pod("a", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}, allow("z1"))
	checkPlans(t, []planCase{
		{"row 146: no such claim", storage(world(Pod("a", Claims("data")), Pod("b"))), []string{"no place (Volume): a", "general m.small: b"}},
		{"row 147: bound, class empty", oneReserved(disk{volume: volumeIn()}), []string{"general m.small: a"}},
		{"row 147: bound, class missing", oneReserved(disk{volume: volumeIn(), class: "lost"}), []string{"general m.small: a"}},
		{"row 148: unbound, class empty", oneReserved(disk{}), []string{"no place (VolumeUnbound): a"}},
		{"row 148: unbound, class missing", oneReserved(disk{class: "lost"}), []string{"no place (Volume): a"}},
		{"row 149: zones of the class", oneReserved(disk{class: "zonal"}, allow("z1", "z2")), []string{"general m.small z1: a"}},
		{"row 149: none in common", oneReserved(disk{class: "zonal"}, allow("z2")), []string{"no place (Volume): a"}},
		{"row 150: ephemeral volume", storage(world(ephemeral), disk{name: "a-tmp", class: "zonal"}), []string{"general m.small z1: a"}},
		{"row 151: zone of the volume", oneReserved(disk{volume: volumeIn(zoned("z3"))}, allow("z3")), []string{"general m.small z3: a"}},
		{"row 151: another zone", oneReserved(disk{volume: volumeIn(zoned("z3"))}, allow("z1")), []string{"no place (Volume): a"}},
		{"row 152: a local volume's host does not matter", oneReserved(disk{volume: local(append(zoned("z2"), host...))}), []string{"general m.small z2: a"}},
		{"row 152: nor a hostPath volume's", oneReserved(disk{volume: onHost(append(zoned("z2"), host...))}), []string{"general m.small z2: a"}},
		{"row 153: nothing but its host", oneReserved(disk{volume: local(host, zoned("z1"))}), []string{"general m.small: a"}},
		{"row 154: other volumes keep theirs", oneReserved(disk{volume: volumeIn(host)}), []string{"no place (Volume): a"}},
		{"row 155: preferences yield to the volume", oneReserved(disk{volume: volumeIn(zoned("z3"))}, Prefers(1, Expr(Zone, in, "z1"))), []string{"general m.small z3: a"}},
		{"row 155: so do alternatives", oneReserved(disk{volume: volumeIn(zoned("z3"))}, allow("z1"), allow("z3")), []string{"general m.small z3: a"}},
		{"row 156: either of two zones", oneReserved(disk{volume: volumeIn(zoned("z1"), zoned("z2"))}, allow("z2")), []string{"general m.small z2: a"}},
		{"row 157: the common zone", two(disk{volume: volumeIn(zoned("z1", "z2"))}, disk{volume: volumeIn(zoned("z2", "z3"))}), []string{"general m.small z2: a"}},
		{"row 158: no common zone", two(disk{volume: volumeIn(zoned("z1"))}, disk{volume: volumeIn(zoned("z2"))}), []string{"no place (Requirements): a"}},
		{"row 159: bound at once, but not yet", oneReserved(disk{class: "now"}), []string{"no place (VolumeUnbound): a"}},
		{"row 160: claim deleting", oneReserved(disk{class: "wait", edit: func(c *corev1.PersistentVolumeClaim) { deleting(&c.ObjectMeta) }}), []string{"no place (Volume): a"}},
		{"row 160: volume deleting", oneReserved(disk{volume: goingVolume}), []string{"no place (Volume): a"}},
		{"row 160: claim lost", oneReserved(disk{volume: volumeIn(), edit: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }}), []string{"no place (Volume): a"}},
		{"row 161: bound", oneReserved(disk{volume: volumeIn()}), []string{"general m.small: a"}},
		{"row 162: a class of a provisioner that is not supported", without(oneReserved(disk{class: "wait"}), "ebs.csi.aws.com"), []string{"no place (Unsupported): a"}},
		{"row 162: a volume of one", without(oneReserved(disk{volume: volumeIn()}), "ebs.csi.aws.com"), []string{"no place (Unsupported): a"}},
		{"row 162: a volume of another", without(oneReserved(disk{volume: volumeIn()}), "other.csi"), []string{"general m.small: a"}},
		{"row 162: a topology key that is not supported", without(oneReserved(disk{class: "zonal"}), "topology.ebs.csi.aws.com/zone"), []string{"no place (Unsupported): a"}},
		{"row 162: on a volume that is bound it does not matter", without(oneReserved(disk{class: "zonal", volume: volumeIn(zoned("z3"))}), "topology.ebs.csi.aws.com/zone"), []string{"general m.small z3: a"}},
		{"row 161: named, not bound", oneReserved(disk{volume: volumeIn(), pending: true}), []string{"no place (VolumeUnbound): a"}},
	})
}

// without is a world whose cloud does not know a provisioner, or topology key, of this name.
func without(s *snapshot.Snapshot, name string) *snapshot.Snapshot {
	s.Volumes.Unsupported = snapshot.UnsupportedStorage{Provisioners: []string{name}, TopologyKeys: []string{name}}
	return s
}

func TestAttachLimits(t *testing.T) {
	limited := Node("n", "general", func(n *snapshot.Node) { n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 10} })
	inTree := func() *corev1.PersistentVolume {
		pv := volumeIn()
		pv.Spec.CSI, pv.Spec.AWSElasticBlockStore = nil, &corev1.AWSElasticBlockStoreVolumeSource{}
		return pv
	}
	nfs := func() *corev1.PersistentVolume {
		pv := volumeIn()
		pv.Spec.CSI, pv.Spec.NFS = nil, &corev1.NFSVolumeSource{}
		return pv
	}
	each := func(pods, perPod int, volume func() *corev1.PersistentVolume) *snapshot.Snapshot {
		var disks []disk
		s := world()
		for i := range pods {
			p := Pod(fmt.Sprintf("a-%03d", i))
			for j := range perPod {
				name := fmt.Sprintf("data-%d-%d", i, j)
				d := disk{name: name, class: "wait"}
				if volume != nil {
					d.volume = volume()
				}
				disks = append(disks, d)
				Claims(name)(p)
			}
			s.Pods = append(s.Pods, p)
		}
		return withNodes(storage(s, disks...), limited)
	}
	checkPlans(t, []planCase{
		{"row 163: ten to a node", each(6, 2, nil), []string{"on n: a x5", "general m.small: a"}},
		{"row 164: shared volumes count once", withNodes(storage(world(Pods(12, "a", Claims("data"))...), disk{name: "data", class: "wait"}), limited), []string{"on n: a x12"}},
		{"row 165: NFS is not attached", each(12, 1, nfs), []string{"on n: a x12"}},
		{"row 166: in-tree EBS counts as the driver's", each(11, 1, inTree), []string{"on n: a x10", "general m.small: a"}},
	})
}
