package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// mount is one volume claim of a pod.
type mount struct {
	claim types.NamespacedName
	// missing states why the volume is unavailable at all; empty if it can.
	missing string
	// somewhere is true if the volume can only be used where one of the terms holds. Terms are conjunctions of labels.
	somewhere bool
	terms     [][]expr
	driver    string
}

const (
	ebs       = "ebs.csi.aws.com"
	ebsInTree = "kubernetes.io/aws-ebs"
	boundMark = "pv.kubernetes.io/bind-completed"
)

// mounts are the claims of the pod, and where kube-scheduler's plugins VolumeBinding and VolumeZone let it use them.
func (c *check) mounts(pod *corev1.Pod) []mount {
	var out []mount
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, c.mount(pod, types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}))
		case v.Ephemeral != nil:
			m := c.mount(pod, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name})
			if claim := c.s.Volumes.Claims[m.claim]; claim != nil {
				if owner := metav1.GetControllerOfNoCopy(claim); owner == nil || owner.UID != pod.UID {
					m.missing = "was made for another pod"
				}
			}
			out = append(out, m)
		}
	}
	return out
}

func (c *check) mount(pod *corev1.Pod, key types.NamespacedName) mount {
	m := mount{claim: key}
	claim := c.s.Volumes.Claims[key]
	if claim == nil {
		m.missing = "does not exist"
		return m
	}
	if claim.Spec.VolumeName == "" {
		c.toBind(&m, pod, claim)
	} else {
		c.bound(&m, pod, claim)
	}
	if slices.Contains(c.s.Volumes.Unsupported.Provisioners, m.driver) {
		m.missing = "has a driver of another cloud"
	}
	switch {
	case claim.DeletionTimestamp != nil:
		m.missing = "is being deleted"
	case claim.Status.Phase == corev1.ClaimLost:
		m.missing = "has lost its volume"
	}
	return m
}

// bound reads a claim that has a volume.
func (c *check) bound(m *mount, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	pv := c.s.Volumes.Volumes[claim.Spec.VolumeName]
	if pv == nil {
		m.missing = "is bound to a volume that is not there"
		return
	}
	if _, ok := claim.Annotations[boundMark]; !ok {
		m.missing = "is not bound for good"
	}
	switch {
	case pv.Spec.CSI != nil:
		m.driver = pv.Spec.CSI.Driver
	case pv.Spec.AWSElasticBlockStore != nil:
		m.driver = ebs
	}
	m.somewhere, m.terms = c.placesOf(pv, pod, c.zonesOf(pv))
}

// zonesOf is what the labels of a volume state of zone and region. VolumeZone reads those of the volume that a claim is bound to.
func (c *check) zonesOf(pv *corev1.PersistentVolume) (labeled []expr) {
	for key, value := range pv.Labels {
		switch key {
		case "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
			"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region":
			// VolumeZone looks a label up by either name.
			labeled = append(labeled, expr{key: c.s.Labels.Normalize(key), op: corev1.NodeSelectorOpIn, values: strings.Split(value, "__")})
		}
	}
	return labeled
}

// placesOf are the terms of a volume: those of its node affinity, each with the demands besides.
func (c *check) placesOf(pv *corev1.PersistentVolume, pod *corev1.Pod, labeled []expr) (somewhere bool, terms [][]expr) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return len(labeled) > 0, [][]expr{labeled}
	}
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue // matches nothing
		}
		exprs, err := c.exprs(t.MatchExpressions)
		fields, why := nameFields(t.MatchFields)
		if err != nil || why != nil {
			continue // nor does what cannot be read
		}
		if exprs = append(exprs, fields...); pod.Spec.NodeName != "" && (pv.Spec.Local != nil || pv.Spec.HostPath != nil) {
			// The pod leaves the host of its data: what the plan is about is a successor with other data.
			exprs = slices.DeleteFunc(exprs, func(e expr) bool { return e.key == corev1.LabelHostname })
		}
		terms = append(terms, append(exprs, labeled...))
	}
	return true, terms
}

// class is the storage class of a claim or of a volume, by name: the old annotation counts before the field.
func class(o metav1.Object, field string) string {
	if name, ok := o.GetAnnotations()["volume.beta.kubernetes.io/storage-class"]; ok {
		return name
	}
	return field
}

func (c *check) classOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	field := ""
	if claim.Spec.StorageClassName != nil {
		field = *claim.Spec.StorageClassName
	}
	return c.s.Volumes.StorageClasses[class(claim, field)]
}

// toBind reads a claim that gets its volume once the pod has a node.
func (c *check) toBind(m *mount, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	of := c.classOf(claim)
	if of == nil {
		m.missing = "is not bound and has no storage class that exists"
		return
	}
	if of.VolumeBindingMode != nil && *of.VolumeBindingMode == storagev1.VolumeBindingImmediate {
		m.missing = "is about to be bound"
	}
	if m.driver = of.Provisioner; m.driver == ebsInTree {
		m.driver = ebs
	}
	if node, found := claim.Annotations["volume.kubernetes.io/selected-node"]; found && node != "" {
		m.somewhere, m.terms = true, [][]expr{{{key: nodeName, op: corev1.NodeSelectorOpIn, values: []string{node}}}}
		if !slices.ContainsFunc(c.s.Nodes, func(n snapshot.Node) bool { return n.Named() && n.Name == node }) {
			m.missing = "gets its volume on a node that is gone"
		}
		return
	}
	if of.Provisioner == "kubernetes.io/no-provisioner" {
		c.fromExisting(m, pod, claim, of.Name)
		return
	}
	m.somewhere = len(of.AllowedTopologies) > 0
	for _, t := range of.AllowedTopologies {
		if len(t.MatchLabelExpressions) == 0 {
			continue // matches nothing
		}
		var exprs []expr
		for _, e := range t.MatchLabelExpressions {
			if slices.Contains(c.s.Volumes.Unsupported.TopologyKeys, e.Key) {
				m.missing = "has a storage class for nodes of another cloud"
			}
			exprs = append(exprs, expr{key: c.s.Labels.Normalize(e.Key), stated: e.Key, op: corev1.NodeSelectorOpIn, values: e.Values})
		}
		m.terms = append(m.terms, exprs)
	}
	c.withStorage(m, claim, of)
}

// fromExisting reads a claim with a class that makes no volumes: it is bound to one that exists, of the class and as the claim requests.
func (c *check) fromExisting(m *mount, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, of string) {
	m.missing, m.somewhere = "has no volume to be bound to", true
	selector, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
	for _, pv := range c.s.Volumes.Volumes {
		matches := claim.Spec.Selector == nil || err == nil && selector.Matches(labels.Set(pv.Labels))
		if !matches || class(pv, pv.Spec.StorageClassName) != of || !isFreeFor(pv, claim) {
			continue
		}
		m.missing = ""
		somewhere, terms := c.placesOf(pv, pod, nil)
		if !somewhere {
			m.somewhere, m.terms = false, nil
			return
		}
		m.terms = append(m.terms, terms...)
	}
}

// isFreeFor reports whether the volume is nobody else's and has the size, the modes and the attributes that the claim requests for.
func isFreeFor(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if pv.DeletionTimestamp != nil || pv.Status.Phase != "" && pv.Status.Phase != corev1.VolumeAvailable {
		return false
	}
	if r := pv.Spec.ClaimRef; r != nil {
		if r.Name != claim.Name || r.Namespace != claim.Namespace || r.UID != "" && r.UID != claim.UID {
			return false
		}
	}
	block := func(m *corev1.PersistentVolumeMode) bool { return m != nil && *m == corev1.PersistentVolumeBlock }
	attributes := func(name *string) string {
		if name == nil {
			return ""
		}
		return *name
	}
	if block(pv.Spec.VolumeMode) != block(claim.Spec.VolumeMode) ||
		attributes(pv.Spec.VolumeAttributesClassName) != attributes(claim.Spec.VolumeAttributesClassName) {
		return false
	}
	if slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(pv.Spec.AccessModes, m)
	}) {
		return false
	}
	have, asked := pv.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return have.Cmp(asked) >= 0
}

// labelDemands are the places of the volume as demands on labels.
func (m *mount) labelDemands() *labelDemands {
	return &labelDemands{affinity: m.somewhere, terms: m.terms}
}
