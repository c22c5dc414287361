package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// StaticVolumesWorld is a SchedulerWorld with pods that use volumes which exist: with labels of zones, with node affinity, on the disks of
// a host, which may be gone, free ones, and ones that are being bound or deleted.
func StaticVolumesWorld(next func() byte) *snapshot.Snapshot {
	return random{next}.staticVolumesWorld()
}

func (d random) staticVolumesWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	d.emptyStorage(s)
	edits := map[string]edit{}
	for _, p := range podsOf(s) {
		family := p.Name[:1]
		if edits[family] == nil {
			edits[family] = d.staticVolume(s, family)
		}
		edits[family](p)
	}
	return s
}

// podsOf are the pending pods and those on nodes, but for those of DaemonSets.
func podsOf(s *snapshot.Snapshot) []*corev1.Pod {
	out := s.Pods[:len(s.Pods):len(s.Pods)]
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			if !snapshot.DaemonOwned(p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// emptyStorage has storage classes and no volumes.
func (d random) emptyStorage(s *snapshot.Snapshot) {
	s.Volumes = snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{},
	}
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	for name, provisioner := range map[string]string{"wait": ebsDriver, "local": "kubernetes.io/no-provisioner"} {
		s.Volumes.StorageClasses[name] = &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &wait,
		}
	}
}

// staticVolume gives the pods of a family a volume of one sort: one for all, or one for each.
func (d random) staticVolume(s *snapshot.Snapshot, family string) edit {
	volume := d.existingVolume()
	switch d.n(11) {
	case 0, 1, 2, 3: // none
		return func(*corev1.Pod) {}
	case 4, 5: // bound, and of all pods of the family
		deleting := d.maybe(6)
		return func(p *corev1.Pod) {
			claim := newClaim(s, p, "all-"+family, "wait")
			claim.Status.Phase, claim.Spec.VolumeName = corev1.ClaimBound, "pv-"+p.Namespace+"-"+family
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			if deleting {
				claim.DeletionTimestamp = &metav1.Time{Time: Now()}
			}
			s.Volumes.Volumes[claim.Spec.VolumeName] = volume(claim.Spec.VolumeName)
		}
	case 6, 7: // chosen for the claim, and not bound yet
		bound := d.maybe(80)
		return func(p *corev1.Pod) {
			claim := newClaim(s, p, "mine-"+p.Name, "wait")
			claim.Spec.VolumeName = "pv-" + p.Namespace + "-" + p.Name
			if bound {
				claim.Status.Phase, claim.Annotations = corev1.ClaimBound, map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			}
			s.Volumes.Volumes[claim.Spec.VolumeName] = volume(claim.Spec.VolumeName)
		}
	case 8: // a node is chosen, where the provisioner makes it
		node := pick(d, "n0", "n1", "n2", "gone")
		return func(p *corev1.Pod) {
			claim := newClaim(s, p, "mine-"+p.Name, "wait")
			claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
		}
	default: // free, one for each pod: its claim selects it
		size, missing := fmt.Sprintf("%dGi", 5*d.from(1, 3)), d.maybe(10)
		return func(p *corev1.Pod) {
			claim := newClaim(s, p, "mine-"+p.Name, "local")
			name := "pv-" + p.Namespace + "-" + p.Name
			claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": name}}
			if missing {
				return
			}
			pv := volume(name)
			pv.Labels["disk"], pv.Spec.StorageClassName = name, "local"
			pv.Status.Phase = corev1.VolumeAvailable
			pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
			s.Volumes.Volumes[name] = pv
		}
	}
}

// newClaim is a claim for 10Gi that the pod uses.
func newClaim(s *snapshot.Snapshot, p *corev1.Pod, name, class string) *corev1.PersistentVolumeClaim {
	Claims(name)(p)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	s.Volumes.Claims[types.NamespacedName{Namespace: p.Namespace, Name: name}] = claim
	return claim
}

// existingVolume makes volumes of one sort, by name.
func (d random) existingVolume() func(name string) *corev1.PersistentVolume {
	var terms []corev1.NodeSelectorTerm
	expr := func() corev1.NodeSelectorRequirement {
		if d.maybe(25) {
			return Expr(Host, in, some(d, 2, "n0", "n1", "n2", "gone")...)
		}
		return Expr(Zone, in, some(d, 2, Zones()...)...)
	}
	for range d.n(3) {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expr()}}
		if d.maybe(25) {
			term.MatchExpressions = append(term.MatchExpressions, expr())
		}
		terms = append(terms, term)
	}
	labels := map[string]string{}
	if d.maybe(30) {
		labels[pick(d, Zone, corev1.LabelFailureDomainBetaZone)] = pick(d, "z1", "z2", "z3", "z1__z2", "z2__z3")
	}
	local, deleting := d.maybe(30), d.maybe(15)
	return func(name string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "wait", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: name},
				},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
		for key, value := range labels {
			pv.Labels[key] = value
		}
		if local {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/disks/1"}}
		}
		if len(terms) > 0 {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		}
		if deleting {
			pv.DeletionTimestamp = &metav1.Time{Time: Now()}
		}
		return pv
	}
}
