package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	componentresource "k8s.io/component-helpers/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

// amounts are sums of resources.
type amounts map[corev1.ResourceName]resource.Quantity

func (a amounts) add(list corev1.ResourceList) {
	quantity.AddTo(a.list(), list)
}

// raise raises each amount to at least the list's.
func (a amounts) raise(list amounts) {
	for n, q := range list {
		if have, ok := a[n]; !ok || q.Cmp(have) > 0 {
			a[n] = q.DeepCopy()
		}
	}
}

func (a amounts) list() corev1.ResourceList { return corev1.ResourceList(a) }

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// requests is what a pod takes of its node: the containers that run together, or the most that its init containers
// take, unless the pod has pod-level resources; plus its overhead. With limits, a limit without a request counts as
// one.
func requests(pod *corev1.Pod, limits bool) corev1.ResourceList {
	pod = quantity.ClampPod(pod)
	if len(pod.Status.ContainerStatuses) > 0 || len(pod.Status.InitContainerStatuses) > 0 {
		// What a pod in the middle of a resize holds is a matter of its status; Kubernetes knows best.
		out := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		})
		out[corev1.ResourcePods] = one()
		return out
	}
	of := func(r *corev1.ResourceRequirements) corev1.ResourceList {
		out := amounts{}
		if limits {
			out.raise(amounts(r.Limits))
		}
		for n, q := range r.Requests {
			out[n] = q
		}
		return out.list()
	}
	running, starting := amounts{}, amounts{}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			running.add(of(&container.Resources))
			starting.raise(running)
			continue
		}
		peak := amounts{}
		peak.add(running.list())
		peak.add(of(&container.Resources))
		starting.raise(peak)
	}
	for i := range pod.Spec.Containers {
		running.add(of(&pod.Spec.Containers[i].Resources))
	}
	running.raise(starting)
	if whole := pod.Spec.Resources; whole != nil {
		for n, q := range of(whole) {
			if n == corev1.ResourceCPU || n == corev1.ResourceMemory || strings.HasPrefix(string(n), corev1.ResourceHugePagesPrefix) {
				running[n] = q
			}
		}
	}
	running.add(pod.Spec.Overhead)
	running[corev1.ResourcePods] = one()
	return running.list()
}

// port is a host port of a pod.
type port struct {
	pod      *corev1.Pod
	ip       string
	number   int32
	protocol corev1.Protocol
}

// ports are those of the containers that run as long as the pod does.
func ports(pod *corev1.Pod) []port {
	var out []port
	containers := slices.Clone(pod.Spec.Containers)
	for _, ic := range pod.Spec.InitContainers {
		if ic.RestartPolicy != nil && *ic.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, ic)
		}
	}
	for _, container := range containers {
		for _, p := range container.Ports {
			if p.HostPort == 0 {
				continue
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			out = append(out, port{pod, p.HostIP, p.HostPort, protocol})
		}
	}
	return out
}

func (p port) conflicts(o port) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || all(p.ip) || all(o.ip))
}

// portConflict finds two pods with the same host port.
func portConflict(mine, taken []port) (port, bool) {
	for _, a := range mine {
		for _, b := range taken {
			if a.pod != b.pod && a.conflicts(b) {
				return b, true
			}
		}
	}
	return port{}, false
}

// mount is one volume claim of a pod.
type mount struct {
	claim types.NamespacedName
	// missing says why the volume cannot be had at all; empty if it can.
	missing string
	// terms are alternatives of labels; none: anywhere.
	terms  [][]expr
	driver string
}

const (
	ebs       = "ebs.csi.aws.com"
	ebsInTree = "kubernetes.io/aws-ebs"
	boundMark = "pv.kubernetes.io/bind-completed"
)

func (c *check) mounts(pod *corev1.Pod) []mount {
	var out []mount
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, c.mount(types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}))
		case v.Ephemeral != nil:
			out = append(out, c.mount(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name}))
		}
	}
	return out
}

func (c *check) mount(key types.NamespacedName) mount {
	m := mount{claim: key}
	claim := c.s.Volumes.Claims[key]
	switch {
	case claim == nil:
		m.missing = "does not exist"
		return m
	case claim.DeletionTimestamp != nil:
		m.missing = "is being deleted"
	case claim.Status.Phase == corev1.ClaimLost:
		m.missing = "has lost its volume"
	}
	if claim.Spec.VolumeName == "" {
		c.toBind(&m, claim)
		c.unsupportedDriver(&m)
		return m
	}
	pv := c.s.Volumes.Volumes[claim.Spec.VolumeName]
	if pv == nil || pv.DeletionTimestamp != nil {
		m.missing = "is bound to a volume that is not there"
		return m
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
	c.unsupportedDriver(&m)
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return m
	}
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(t.MatchExpressions) == 0 {
			continue
		}
		exprs, err := c.exprs(t.MatchExpressions)
		if err != nil {
			m.missing = "has a volume whose node affinity cannot be read"
			return m
		}
		if pv.Spec.Local != nil || pv.Spec.HostPath != nil { // what is on a host's disk is made anew on another
			exprs = slices.DeleteFunc(exprs, func(e expr) bool { return e.key == corev1.LabelHostname })
		}
		m.terms = append(m.terms, exprs)
	}
	return m
}

// toBind reads a claim with WaitForFirstConsumer.
func (c *check) toBind(m *mount, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		m.missing = "is not bound and has no storage class"
		return
	}
	class := c.s.Volumes.StorageClasses[*claim.Spec.StorageClassName]
	if class == nil {
		m.missing = "has a storage class that does not exist"
		return
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == "Immediate" {
		m.missing = "is about to be bound"
	}
	if m.driver = class.Provisioner; m.driver == ebsInTree {
		m.driver = ebs
	}
	for _, t := range class.AllowedTopologies {
		if len(t.MatchLabelExpressions) == 0 {
			continue
		}
		var exprs []expr
		for _, e := range t.MatchLabelExpressions {
			if slices.Contains(c.s.Volumes.Unsupported.TopologyKeys, e.Key) {
				m.missing = "has a storage class for nodes of another cloud"
			}
			exprs = append(exprs, expr{key: c.s.Labels.Normalize(e.Key), op: corev1.NodeSelectorOpIn, values: e.Values})
		}
		m.terms = append(m.terms, exprs)
	}
}

// unsupportedDriver: nodes of this cloud do not have every driver.
func (c *check) unsupportedDriver(m *mount) {
	if slices.Contains(c.s.Volumes.Unsupported.Provisioners, m.driver) {
		m.missing = "has a driver of another cloud"
	}
}

// labelDemands are the places of the volume as demands on labels.
func (m *mount) labelDemands() *labelDemands {
	return &labelDemands{affinity: len(m.terms) > 0, terms: m.terms}
}

// tolerates reports whether the tolerations cover the taint; a soft taint never excludes a pod.
func tolerates(list []corev1.Toleration, taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectPreferNoSchedule ||
		slices.ContainsFunc(list, func(t corev1.Toleration) bool { return covers(&t, taint) })
}

func covers(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		e, err := newExpr(t.Key, corev1.NodeSelectorOperator(t.Operator), []string{t.Value})
		return err == nil && e.has(taint.Value)
	}
	return false
}
