package propertytest

import (
	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// evicting is a taint of effect NoExecute, by its key and its value.
const evicting = "evicting"

// PodFieldsWorld is a SchedulerWorld with pods that have what the rules of Cluster do not: host ports on single addresses, sidecars, init
// containers and overhead; and with taints that evict.
func PodFieldsWorld(next func() byte) *snapshot.Snapshot { return random{next}.podFieldsWorld() }

func (d random) podFieldsWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Pools {
		if d.maybe(25) {
			PoolTaint(evicting, corev1.TaintEffectNoExecute)(s.Pools[i].NodePool)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if len(n.Pods) == 0 && d.maybe(30) {
			n.Taints = append(n.Taints, corev1.Taint{Key: evicting, Value: "true", Effect: corev1.TaintEffectNoExecute})
		}
		for _, pod := range n.Pods {
			if d.maybe(25) {
				d.hostPort()(pod)
			}
		}
	}
	fields := map[string][]edit{}
	for _, pod := range s.Pods {
		app := pod.Labels["app"]
		if _, known := fields[app]; !known {
			fields[app] = d.podFields()
		}
		for _, e := range fields[app] {
			e(pod)
		}
	}
	return s
}

// hostPort is port 80 or 81 of an address of the node, or of all.
func (d random) hostPort() edit {
	protocol := pick(d, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	return HostPort(pick(d, "", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"), int32(d.from(80, 81)), protocol)
}

// podFields returns what the pods of an app have in common.
func (d random) podFields() []edit {
	var out []edit
	add := func(percent int, e edit) {
		if d.maybe(percent) {
			out = append(out, e)
		}
	}
	add(40, d.hostPort())
	add(40, Tolerates(evicting))
	add(30, initContainer(pick(d, "1", "3"), nil))
	always := corev1.ContainerRestartPolicyAlways
	add(30, initContainer(pick(d, "500m", "1"), &always))
	add(20, func(p *corev1.Pod) { p.Spec.Overhead = Resources("cpu", "250m") })
	return out
}

// initContainer adds an init container that requests so much CPU; a sidecar if it restarts.
func initContainer(cpu string, restarts *corev1.ContainerRestartPolicy) edit {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "init-" + cpu, RestartPolicy: restarts, Resources: corev1.ResourceRequirements{Requests: Resources("cpu", cpu)},
		})
	}
}
