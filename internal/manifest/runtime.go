package manifest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// completeRuntimes does what the API server does on admission of a pod with a RuntimeClass: it adds the overhead and
// the node selector. It does the same for templates of DaemonSets, and sets the host ports of pods in the host network.
func (r *reader) completeRuntimes() error {
	classes := map[string]*nodev1.RuntimeClass{}
	for _, class := range all[*nodev1.RuntimeClass](r) {
		classes[class.Name] = class
	}
	missing := map[string]int{}
	for _, pod := range r.world.Pods {
		if r.takenPod(pod) {
			continue
		}
		if err := admit(&pod.Spec, classes, missing); err != nil {
			return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	for _, set := range r.world.DaemonSets {
		if r.taken("DaemonSet", set.Namespace, set.Name) {
			continue
		}
		if err := admit(&set.Spec.Template.Spec, classes, missing); err != nil {
			return fmt.Errorf("daemonset %s/%s: %w", set.Namespace, set.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		r.note(
			"runtime class %q is not among the inputs: its overhead and nodeSelector do not count for %d pods; to count them, add it (kubectl get runtimeclass %s -o yaml)",
			name,
			missing[name],
			name,
		)
	}
	return nil
}

// admit completes the spec; missing counts pods by unknown runtime class.
func admit(spec *corev1.PodSpec, classes map[string]*nodev1.RuntimeClass, missing map[string]int) error {
	defaultHostPorts(spec)
	if spec.RuntimeClassName == nil {
		return nil
	}
	class := classes[*spec.RuntimeClassName]
	if class == nil {
		missing[*spec.RuntimeClassName]++
		return nil
	}
	if class.Overhead != nil && len(spec.Overhead) == 0 {
		spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if own, set := spec.NodeSelector[key]; set && own != value {
			return fmt.Errorf(
				"spec.nodeSelector has %s=%s, and runtime class %q selects nodes with %s=%s; remove one of them",
				key,
				own,
				class.Name,
				key,
				value,
			)
		}
		spec.NodeSelector = with(spec.NodeSelector, key, value)
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(spec.Tolerations, func(own corev1.Toleration) bool { return own == t }) {
			spec.Tolerations = append(slices.Clone(spec.Tolerations), t)
		}
	}
	return nil
}

// defaultHostPorts sets the host port of each port of a pod in the host network.
func defaultHostPorts(spec *corev1.PodSpec) {
	if !spec.HostNetwork {
		return
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Ports = slices.Clone(list[i].Ports)
			for k := range list[i].Ports {
				if p := &list[i].Ports[k]; p.HostPort == 0 {
					p.HostPort = p.ContainerPort
				}
			}
		}
	}
}
