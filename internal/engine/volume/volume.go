package volume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	ebsDriver = "ebs.csi.aws.com"
	// ebsInTree is the same driver under the name that it had inside Kubernetes.
	ebsInTree = "kubernetes.io/aws-ebs"
	// bindCompleted is the annotation of a claim with a binding that is done.
	bindCompleted = "pv.kubernetes.io/bind-completed"
	// selectedNode is the annotation of a claim with a volume that a provisioner is to make for a pod on that node.
	selectedNode = "volume.kubernetes.io/selected-node"
	// noProvisioner is the provisioner of storage classes with volumes that exist before their claims.
	noProvisioner = "kubernetes.io/no-provisioner"
	// maxChoices bounds the combinations of topologies of one pod's volumes. Eight volumes with two zones each have 256
	// before those that exclude each other are dropped.
	maxChoices = 256
)

// Attachment is a volume that counts against the attach limit of its CSI driver on a node.
type Attachment struct {
	Driver string
	Claim  types.NamespacedName
}

// Volume is one claim of a pod, with its objects.
type Volume struct {
	key       types.NamespacedName
	pod       *corev1.Pod
	ephemeral bool
	claim     *corev1.PersistentVolumeClaim
	pv        *corev1.PersistentVolume
	className string
	class     *storagev1.StorageClass
}

// Key is the name of the claim.
func (v Volume) Key() types.NamespacedName { return v.key }

// lookUp finds the objects of a claim of the pod.
func lookUp(s *snapshot.Snapshot, pod *corev1.Pod, name string) Volume {
	v := Volume{pod: pod, key: types.NamespacedName{Namespace: pod.Namespace, Name: name}}
	v.claim = s.Volumes.Claims[v.key]
	if v.claim == nil {
		return v
	}
	if v.claim.Spec.VolumeName != "" {
		v.pv = s.Volumes.Volumes[v.claim.Spec.VolumeName]
	}
	if v.className = ClassName(v.claim); v.className != "" {
		v.class = s.Volumes.StorageClasses[v.className]
	}
	return v
}

// ClassName is the storage class of a claim; empty if it names none.
func ClassName(claim *corev1.PersistentVolumeClaim) string {
	return className(claim.Annotations, claim.Spec.StorageClassName)
}

// className is the storage class of a claim or a volume: that of the beta annotation, which wins, else that of the field.
func className(annotations map[string]string, field *string) string {
	if name, found := annotations[corev1.BetaStorageClassAnnotation]; found || field == nil {
		return name
	}
	return *field
}

// reason is a Reason about the volume's claim, of which it sets the name.
func (v Volume) reason(code rejection.Code, why rejection.VolumeClaim) rejection.Reason {
	why.Name = v.key.Name
	return rejection.Reason{Code: code, Rule: &rejection.Rule{VolumeClaim: &why}}
}

// unsupported is the reason why nodes of this cloud cannot use the volume; the zero Reason if they can.
func (v Volume) unsupported(u snapshot.UnsupportedStorage) rejection.Reason {
	if driver := v.driver(); slices.Contains(u.Provisioners, driver) {
		return v.reason(rejection.Unsupported, rejection.VolumeClaim{Cause: rejection.ForeignDriver, Provisioner: driver})
	}
	if v.pv != nil || v.class == nil {
		return rejection.Reason{}
	}
	for _, term := range v.class.AllowedTopologies {
		for _, e := range term.MatchLabelExpressions {
			if slices.Contains(u.TopologyKeys, e.Key) {
				return v.reason(rejection.Unsupported, rejection.VolumeClaim{Cause: rejection.ForeignTopology, Class: v.class.Name, Label: e.Key})
			}
		}
	}
	return rejection.Reason{}
}

// blocked is the reason why a pod with this volume must wait; the zero Reason if it need not.
func (v Volume) blocked(x *Index) rejection.Reason {
	var cause rejection.VolumeCause
	switch {
	case v.claim == nil:
		cause = rejection.ClaimMissing
	case v.claim.DeletionTimestamp != nil:
		cause = rejection.ClaimDeleting
	case v.claim.Status.Phase == corev1.ClaimLost:
		cause = rejection.ClaimLost
	case v.ephemeral && !metav1.IsControlledBy(v.claim, v.pod):
		cause = rejection.ClaimOfAnother
	case v.claim.Spec.VolumeName != "":
		return v.blockedBound(x)
	default:
		return v.blockedUnbound(x)
	}
	return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: cause})
}

// blockedBound is blocked for a claim with a volume. A volume that is being deleted can be used for as long as its claim is bound to it.
func (v Volume) blockedBound(x *Index) rejection.Reason {
	name := v.claim.Spec.VolumeName
	if v.pv == nil {
		return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.VolumeMissing, Volume: name})
	}
	if _, ok := v.claim.Annotations[bindCompleted]; !ok {
		return v.reason(rejection.VolumePending, rejection.VolumeClaim{Cause: rejection.NotBoundYet, Volume: name})
	}
	if host := x.lostHost(v.pv); host != "" && !v.moves() {
		return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.HostGone, Volume: name, Node: host})
	}
	return rejection.Reason{}
}

// blockedUnbound is blocked for a claim without a volume.
func (v Volume) blockedUnbound(x *Index) rejection.Reason {
	switch {
	case v.className == "":
		return v.reason(rejection.VolumePending, rejection.VolumeClaim{Cause: rejection.NoClass})
	case v.class == nil:
		return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.ClassMissing, Class: v.className})
	case v.class.VolumeBindingMode != nil && *v.class.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		return v.reason(rejection.VolumePending, rejection.VolumeClaim{Cause: rejection.BindsAtOnce, Class: v.class.Name})
	}
	if node := v.claim.Annotations[selectedNode]; node != "" {
		if x.hasNode(node) {
			return rejection.Reason{}
		}
		return v.reason(rejection.VolumePending, rejection.VolumeClaim{
			Cause: rejection.NodeGone, Node: node, Provisioner: v.class.Provisioner, Annotation: selectedNode,
		})
	}
	if v.class.Provisioner == noProvisioner && len(x.unbound(v)) == 0 {
		return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.NoneFree, Class: v.class.Name})
	}
	return v.blockedByCapacity(x.s)
}

// moves reports whether the pod has a node, so that a plan for it is about its successor. What is lost with the node's disks is known then,
// and binds the successor no more.
func (v Volume) moves() bool { return v.pod.Spec.NodeName != "" }

// Alternatives are the label requirements of the volume's topology, one of which must hold; nil if there are none.
// The rules are those of kube-scheduler's plugins VolumeBinding and VolumeZone.
func (v Volume) Alternatives(x *Index) ([]requirement.Set, error) {
	switch {
	case v.pv != nil:
		return v.ofVolume(x.s.Labels, v.pv)
	case v.class == nil:
		return nil, nil
	case v.claim.Annotations[selectedNode] != "":
		return []requirement.Set{requirement.NewSet(requirement.In(requirement.FieldName, v.claim.Annotations[selectedNode]))}, nil
	case v.class.Provisioner == noProvisioner:
		return v.ofUnbound(x)
	}
	var out []requirement.Set
	for _, term := range v.class.AllowedTopologies {
		if len(term.MatchLabelExpressions) > 0 {
			out = append(out, x.s.Labels.FromTopologyTerm(term))
		}
	}
	if len(v.class.AllowedTopologies) > 0 && len(out) == 0 {
		return nil, fmt.Errorf("storage class %q: its allowed topologies have no expressions, so that they allow no node", v.class.Name)
	}
	if !v.measured(x.s) || v.onNode(x.s) {
		return out, nil
	}
	if stored, anywhere := v.ofCapacity(x.s); !anywhere && len(out) > 0 {
		return Combine(out, stored), nil
	} else if !anywhere {
		return stored, nil
	}
	return out, nil
}

// ofUnbound are the topologies of all volumes that the claim can be bound to.
func (v Volume) ofUnbound(x *Index) ([]requirement.Set, error) {
	var out []requirement.Set
	for _, pv := range x.unbound(v) {
		sets, err := v.ofVolume(x.s.Labels, pv)
		if err != nil {
			continue // this one fits nowhere
		}
		if len(sets) == 0 {
			return nil, nil
		}
		out = append(out, sets...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no node matches the volumes of storage class %q that are free", v.class.Name)
	}
	return out, nil
}

// ofVolume are the topologies of a PersistentVolume: the terms of its node affinity, each with the zone and the region that its labels
// name, if the claim is bound to it: of a volume that a claim may still be bound to, kube-scheduler does not read them. A term that cannot
// be read matches no node.
func (v Volume) ofVolume(labels requirement.Labels, pv *corev1.PersistentVolume) ([]requirement.Set, error) {
	zone, zonal := requirement.Set{}, false
	if v.pv != nil {
		zone, zonal = labeledTopology(labels, pv)
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		if !zonal {
			return nil, nil
		}
		return []requirement.Set{zone}, nil
	}
	var out []requirement.Set
	var unreadable error
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue
		}
		set, err := labels.FromTerm(term)
		if err != nil {
			unreadable = err
			continue
		}
		if v.moves() && (pv.Spec.Local != nil || pv.Spec.HostPath != nil) {
			set = set.Without(corev1.LabelHostname)
		}
		if zonal {
			set = set.Intersect(zone)
		}
		out = append(out, set)
	}
	switch {
	case len(out) > 0:
		return out, nil
	case unreadable != nil:
		return nil, fmt.Errorf("volume %q: %w", pv.Name, unreadable)
	}
	return nil, fmt.Errorf("volume %q: its node affinity has no expressions, so that no node matches it", pv.Name)
}

// zoneSeparator is between the zones of a volume that is in several.
const zoneSeparator = "__"

// labeledTopology is the zone and the region of a volume by its labels, which kube-scheduler compares with those of the node.
func labeledTopology(labels requirement.Labels, pv *corev1.PersistentVolume) (set requirement.Set, labeled bool) {
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if value, found := pv.Labels[key]; found {
			set, labeled = set.With(requirement.In(labels.Normalize(key), strings.Split(value, zoneSeparator)...)), true
		}
	}
	return set, labeled
}

// driver is the CSI driver that attaches the volume; empty if none counts it.
func (v Volume) driver() string {
	name := ""
	switch {
	case v.pv != nil && v.pv.Spec.CSI != nil:
		name = v.pv.Spec.CSI.Driver
	case v.pv != nil && v.pv.Spec.AWSElasticBlockStore != nil:
		name = ebsDriver
	case v.pv == nil && v.class != nil:
		name = v.class.Provisioner
	}
	if name == ebsInTree {
		return ebsDriver
	}
	return name
}

// Of looks up all claims of a pod.
func Of(s *snapshot.Snapshot, pod *corev1.Pod) []Volume {
	var out []Volume
	for i := range pod.Spec.Volumes {
		if name, ok := snapshot.ClaimName(pod, &pod.Spec.Volumes[i]); ok {
			v := lookUp(s, pod, name)
			v.ephemeral = pod.Spec.Volumes[i].Ephemeral != nil
			out = append(out, v)
		}
	}
	return out
}

// Alternatives combines the topologies of all the pod's volumes: every combination that one node can satisfy, or,
// if there is none, all combinations, so that the reason can be explained.
func Alternatives(x *Index, volumes []Volume) ([]requirement.Set, []rejection.Reason) {
	out := []requirement.Set{{}}
	for _, v := range volumes {
		for _, why := range []rejection.Reason{v.blocked(x), v.unsupported(x.s.Volumes.Unsupported)} {
			if why.Code != "" {
				return nil, []rejection.Reason{why}
			}
		}
		alternatives, err := v.Alternatives(x)
		if err != nil {
			return nil, []rejection.Reason{v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.FitsNoNode, Error: err.Error()})}
		}
		out = Combine(out, alternatives)
		if len(out) > maxChoices {
			return nil, []rejection.Reason{
				{Code: rejection.Unsupported, Rule: &rejection.Rule{Bound: &rejection.Bound{Of: rejection.VolumeTopology, Most: maxChoices}}},
			}
		}
	}
	return out, nil
}

// Combine are the pairs of both that one node can satisfy; all pairs if none can, so that the reason can be explained. Without any b, it
// is a.
func Combine(a, b []requirement.Set) (out []requirement.Set) {
	if len(b) == 0 {
		return a
	}
	var all []requirement.Set
	for _, one := range a {
		for _, other := range b {
			both := one.Intersect(other)
			all = append(all, both)
			if one.Overlaps(other) {
				out = append(out, both)
			}
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}

// MustBeInstalled are the CSI drivers of the volumes without which kube-scheduler refuses the pod on a node, sorted.
func MustBeInstalled(s *snapshot.Snapshot, volumes []Volume) (drivers []string) {
	if len(s.Volumes.MustBeInstalled) == 0 {
		return nil
	}
	for _, v := range volumes {
		if d := v.driver(); s.Volumes.MustBeInstalled[d] {
			drivers = append(drivers, d)
		}
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// Attachments are the volumes that count against an attach limit of the node.
func Attachments(volumes []Volume) []Attachment {
	var out []Attachment
	for _, v := range volumes {
		if d := v.driver(); d != "" {
			out = append(out, Attachment{d, v.key})
		}
	}
	return out
}
