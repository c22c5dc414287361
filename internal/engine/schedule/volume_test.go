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

// disk is a PersistentVolumeClaim with what it is bound to.
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
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms = append(
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms,
			corev1.NodeSelectorTerm{MatchExpressions: exprs},
		)
	}
	return pv
}

func zoned(zones ...string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{Expr(Zone, in, zones...)}
}

func storageClass(name string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{
			{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "topology.ebs.csi.aws.com/zone", Values: zones}}},
		}
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
	oneVolume := func(d disk, edit ...func(*corev1.Pod)) *snapshot.Snapshot {
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
		{"no such claim", storage(world(Pod("a", Claims("data")), Pod("b"))), []string{"unschedulable (Volume): a", "general m.small: b"}},
		{"bound, class empty", oneVolume(disk{volume: volumeIn()}), []string{"general m.small: a"}},
		{"bound, class missing", oneVolume(disk{volume: volumeIn(), class: "lost"}), []string{"general m.small: a"}},
		{"unbound, class empty", oneVolume(disk{}), []string{"unschedulable (VolumeUnbound): a"}},
		{"unbound, class missing", oneVolume(disk{class: "lost"}), []string{"unschedulable (Volume): a"}},
		{"zones of the class", oneVolume(disk{class: "zonal"}, allow("z1", "z2")), []string{"general m.small z1: a"}},
		{"none in common", oneVolume(disk{class: "zonal"}, allow("z2")), []string{"unschedulable (Volume): a"}},
		{
			"ephemeral volume",
			storage(world(ephemeral), disk{name: "a-tmp", class: "zonal", edit: madeFor(ephemeral)}),
			[]string{"general m.small z1: a"},
		},
		{
			"a claim with the name of the ephemeral volume's, of another pod",
			storage(world(ephemeral), disk{name: "a-tmp", class: "zonal", edit: madeFor(Pod("b"))}),
			[]string{"unschedulable (Volume): a"},
		},
		{"a claim of nobody", storage(world(ephemeral), disk{name: "a-tmp", class: "zonal"}), []string{"unschedulable (Volume): a"}},
		{"zone of the volume", oneVolume(disk{volume: volumeIn(zoned("z3"))}, allow("z3")), []string{"general m.small z3: a"}},
		{"another zone", oneVolume(disk{volume: volumeIn(zoned("z3"))}, allow("z1")), []string{"unschedulable (Volume): a"}},
		{
			"a local volume is lost with its host",
			oneVolume(disk{volume: local(append(zoned("z2"), host...))}),
			[]string{"unschedulable (Volume): a"},
		},
		{"so is a hostPath volume", oneVolume(disk{volume: onHost(append(zoned("z2"), host...))}), []string{"unschedulable (Volume): a"}},
		{"one that is on a host or in a zone", oneVolume(disk{volume: local(host, zoned("z1"))}), []string{"general m.small z1: a"}},
		{"other volumes are lost, too", oneVolume(disk{volume: volumeIn(host)}), []string{"unschedulable (Volume): a"}},
		{
			"preferences yield to the volume",
			oneVolume(disk{volume: volumeIn(zoned("z3"))}, Prefers(1, Expr(Zone, in, "z1"))),
			[]string{"general m.small z3: a"},
		},
		{"so do alternatives", oneVolume(disk{volume: volumeIn(zoned("z3"))}, allow("z1"), allow("z3")), []string{"general m.small z3: a"}},
		{"either of two zones", oneVolume(disk{volume: volumeIn(zoned("z1"), zoned("z2"))}, allow("z2")), []string{"general m.small z2: a"}},
		{
			"the common zone",
			two(disk{volume: volumeIn(zoned("z1", "z2"))}, disk{volume: volumeIn(zoned("z2", "z3"))}),
			[]string{"general m.small z2: a"},
		},
		{
			"no common zone",
			two(disk{volume: volumeIn(zoned("z1"))}, disk{volume: volumeIn(zoned("z2"))}),
			[]string{"unschedulable (Requirements): a"},
		},
		{"bound at once, but not yet", oneVolume(disk{class: "now"}), []string{"unschedulable (VolumeUnbound): a"}},
		{
			"claim deleting",
			oneVolume(disk{class: "wait", edit: func(c *corev1.PersistentVolumeClaim) { deleting(&c.ObjectMeta) }}),
			[]string{"unschedulable (Volume): a"},
		},
		{"volume deleting", oneVolume(disk{volume: goingVolume}), []string{"general m.small: a"}},
		{
			"claim lost",
			oneVolume(disk{volume: volumeIn(), edit: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }}),
			[]string{"unschedulable (Volume): a"},
		},
		{"bound", oneVolume(disk{volume: volumeIn()}), []string{"general m.small: a"}},
		{
			"a class of a provisioner that is not supported",
			without(oneVolume(disk{class: "wait"}), "ebs.csi.aws.com"),
			[]string{"unschedulable (Unsupported): a"},
		},
		{"a volume of one", without(oneVolume(disk{volume: volumeIn()}), "ebs.csi.aws.com"), []string{"unschedulable (Unsupported): a"}},
		{"a volume of another", without(oneVolume(disk{volume: volumeIn()}), "other.csi"), []string{"general m.small: a"}},
		{
			"a topology key that is not supported",
			without(oneVolume(disk{class: "zonal"}), "topology.ebs.csi.aws.com/zone"),
			[]string{"unschedulable (Unsupported): a"},
		},
		{
			"on a volume that is bound it does not matter",
			without(oneVolume(disk{class: "zonal", volume: volumeIn(zoned("z3"))}), "topology.ebs.csi.aws.com/zone"),
			[]string{"general m.small z3: a"},
		},
		{"named, not bound", oneVolume(disk{volume: volumeIn(), pending: true}), []string{"unschedulable (VolumeUnbound): a"}},
	})
}

// madeFor makes the pod the owner of the claim, as the controller of ephemeral volumes does.
func madeFor(pod *corev1.Pod) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	}
}

// The plugins VolumeBinding and VolumeZone of kube-scheduler decide where a pod can use its volumes. A node that they refuse is launched
// again and again.
func TestVolumesAreUsedWhereKubeSchedulerAllows(t *testing.T) {
	labeled := func(key, value string) *corev1.PersistentVolume {
		pv := volumeIn()
		pv.Labels = map[string]string{key: value}
		return pv
	}
	selected := func(node string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
		}
	}
	annotated := func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "zonal"}
	}
	local := func(host string) *corev1.PersistentVolume {
		pv := volumeIn([]corev1.NodeSelectorRequirement{Expr(Host, in, host)})
		pv.Spec.CSI, pv.Spec.Local = nil, &corev1.LocalVolumeSource{Path: "/data"}
		return pv
	}
	s := func(d disk, pod ...func(*corev1.Pod)) *snapshot.Snapshot {
		d.name = "data"
		return storage(world(Pod("a", append(pod, Claims("data"))...)), d)
	}
	small := Requests("cpu", "100m")
	edit := func(s *snapshot.Snapshot, e func(*snapshot.Snapshot)) *snapshot.Snapshot {
		e(s)
		return s
	}
	static := func(name, size string, terms ...[]corev1.NodeSelectorRequirement) func(*snapshot.Snapshot) {
		return func(s *snapshot.Snapshot) {
			s.Volumes.StorageClasses["static"] = storageClass("static", storagev1.VolumeBindingWaitForFirstConsumer)
			s.Volumes.StorageClasses["static"].Provisioner = "kubernetes.io/no-provisioner"
			if name == "" {
				return
			}
			pv := volumeIn(terms...)
			pv.Name, pv.Spec.StorageClassName, pv.Spec.Capacity = name, "static", Resources("storage", size)
			pv.Status.Phase = corev1.VolumeAvailable
			s.Volumes.Volumes[name] = pv
		}
	}
	ten := func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = Resources("storage", "10Gi") }
	noTerms := func(s *snapshot.Snapshot) {
		s.Volumes.StorageClasses["wait"].AllowedTopologies = []corev1.TopologySelectorTerm{{}}
	}
	onNode := func(s *snapshot.Snapshot) *snapshot.Snapshot { return withNodes(s, Node("n", "general")) }
	moving := func(pv *corev1.PersistentVolume) *snapshot.Snapshot {
		pod := Bound(Pod("a", Claims("data")), "n")
		s := withNodes(storage(world(pod), disk{name: "data", volume: pv}), Node("n", "general", func(n *snapshot.Node) {
			n.Deleting, n.Pods = true, []*corev1.Pod{pod}
		}))
		return s
	}
	checkPlans(t, []planCase{
		{"the zone that a label of the volume names", s(disk{volume: labeled(Zone, "z3")}), []string{"general m.small z3: a"}},
		{"by its old name", s(disk{volume: labeled("failure-domain.beta.kubernetes.io/zone", "z2")}), []string{"general m.small z2: a"}},
		{"one of several zones", s(disk{volume: labeled(Zone, "z2__z3")}, Needs(Expr(Zone, in, "z3"))), []string{"general m.small z3: a"}},
		{"not another zone", s(disk{volume: labeled(Zone, "z2__z3")}, Needs(Expr(Zone, in, "z1"))), []string{"unschedulable (Volume): a"}},
		{"the node for which its volume is being made", onNode(s(disk{class: "wait", edit: selected("n")}, small)), []string{"on n: a"}},
		{"no node else", onNode(s(disk{class: "wait", edit: selected("n")}, Requests("cpu", "5"))), []string{"unschedulable (Volume): a"}},
		{"no node while that one is gone", onNode(s(disk{class: "wait", edit: selected("gone")})), []string{"unschedulable (VolumeUnbound): a"}},
		{"the class of the annotation", s(disk{edit: annotated}, Needs(Expr(Zone, in, "z1", "z2"))), []string{"general m.small z1: a"}},
		{"the class of the annotation before the field's", s(disk{class: "wait", edit: annotated}, Needs(Expr(Zone, in, "z1", "z2"))), []string{"general m.small z1: a"}},
		{"a class whose topologies allow no node", edit(s(disk{class: "wait"}), noTerms), []string{"unschedulable (Volume): a"}},
		{"a volume on the node", onNode(s(disk{volume: local("n")}, small)), []string{"on n: a"}},
		{"which is full", onNode(s(disk{volume: local("n")}, Requests("cpu", "5"))), []string{"unschedulable (Volume): a"}},
		{"a pod that leaves the node of its data", moving(local("n")), []string{"general m.small: a"}},
		{"no volume of a class that makes none", edit(s(disk{class: "static"}), static("", "")), []string{"unschedulable (Volume): a"}},
		{"one that is free", edit(s(disk{class: "static", edit: ten}), static("pv", "10Gi", zoned("z2"))), []string{"general m.small z2: a"}},
		{"of one that is free its labels decide nothing", edit(s(disk{class: "static", edit: ten}, Selects(Zone, "z1")), func(s *snapshot.Snapshot) {
			static("pv", "10Gi", zoned("z1", "z2"))(s)
			s.Volumes.Volumes["pv"].Labels = map[string]string{Zone: "z3"}
		}), []string{"general m.small z1: a"}},
		{"one that is too small", edit(s(disk{class: "static", edit: ten}), static("pv", "9Gi")), []string{"unschedulable (Volume): a"}},
		{"one of another", edit(s(disk{class: "static", edit: ten}), func(s *snapshot.Snapshot) {
			static("pv", "10Gi")(s)
			s.Volumes.Volumes["pv"].Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "other"}
		}), []string{"unschedulable (Volume): a"}},
	})
}

// without is a snapshot in which the cloud does not support a provisioner, or topology key, of this name.
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
	leftover := each(6, 2, nil)
	leftover.Nodes[0].LeftoverVolumes = map[string]int32{"ebs.csi.aws.com": 3}
	checkPlans(t, []planCase{
		{"volumes that are left over count until they are detached", leftover, []string{"on n: a x3", "general m.small: a x3"}},
		{"ten to a node", each(6, 2, nil), []string{"on n: a x5", "general m.small: a"}},
		{
			"shared volumes count once",
			withNodes(storage(world(Pods(12, "a", Claims("data"))...), disk{name: "data", class: "wait"}), limited),
			[]string{"on n: a x12"},
		},
		{"NFS is not attached", each(12, 1, nfs), []string{"on n: a x12"}},
		{"in-tree EBS counts as the driver's", each(11, 1, inTree), []string{"on n: a x10", "general m.small: a"}},
	})
}
