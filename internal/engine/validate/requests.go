package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// requests returns what a pod takes of its node: the containers that run together, or the most that its init containers
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

// compared are the requests of a pod that its scheduler compares with what nodes have.
func (c *check) compared(pod *corev1.Pod, limits bool) corev1.ResourceList {
	out := requests(pod, limits)
	for resource := range out {
		if c.s.Settings.Ignores(&pod.Spec, resource) {
			delete(out, resource)
		}
	}
	return out
}

// port is a host port of a pod.
type port struct {
	pod      *corev1.Pod
	ip       string
	number   int32
	protocol corev1.Protocol
	disk     string // an EBS volume instead of a port
}

// ports are those of the containers that run as long as the pod does, and EBS volumes that the pod names itself.
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
			out = append(out, port{pod: pod, ip: p.HostIP, number: p.HostPort, protocol: protocol})
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.AWSElasticBlockStore != nil { // two pods of a node never share one that they name themselves
			out = append(out, port{pod: pod, disk: v.AWSElasticBlockStore.VolumeID})
		}
	}
	return out
}

func (p port) String() string {
	if p.disk != "" {
		return "EBS volume " + p.disk
	}
	return fmt.Sprintf("host port %d", p.number)
}

func (p port) conflicts(o port) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" } // "::" is one address to NodePorts
	return p.disk == o.disk && p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || all(p.ip) || all(o.ip))
}

// daemonRequests returns what the pods of DaemonSets take of a node that each of them belongs on. Of those that want one host port, one
// comes, and the others stay pending: NodePorts refuses them.
func (c *check) daemonRequests(daemons []*corev1.Pod) amounts {
	var together [][]*corev1.Pod // each list are pods of which just one comes
	for _, d := range daemons {
		at := slices.IndexFunc(together, func(list []*corev1.Pod) bool {
			return !slices.ContainsFunc(list, func(o *corev1.Pod) bool { _, found := portConflict(ports(d), ports(o)); return !found })
		})
		if at < 0 {
			together = append(together, nil)
			at = len(together) - 1
		}
		together[at] = append(together[at], d)
	}
	out := amounts{}
	for _, list := range together {
		most := amounts{}
		for _, d := range list {
			most.raise(amounts(c.compared(d, true)))
		}
		out.add(most.list())
	}
	return out
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
