package refusal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ownLabels are the labels by which controllers and the API server report the pods of one owner, or of one schedule, from each other.
var ownLabels = []string{
	"batch.kubernetes.io/job-name", "job-name", "batch.kubernetes.io/controller-uid", "controller-uid",
	"batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
}

// ClassOf identifies pods that are equal for this purpose: those of one template, whatever owner has made them, and those that were
// made again under another name. It differs if a person changes the template: then there is a revision, or another image or request.
func ClassOf(pod *corev1.Pod) string {
	type container struct {
		Image     string
		Resources corev1.ResourceRequirements
		Ports     []corev1.ContainerPort
	}
	of := func(list []corev1.Container) (out []container) {
		for i := range list {
			out = append(out, container{list[i].Image, list[i].Resources, list[i].Ports})
		}
		return out
	}
	labels := maps.Clone(pod.Labels)
	for _, key := range ownLabels {
		delete(labels, key)
	}
	spec := &pod.Spec
	data, err := json.Marshal([]any{
		pod.Namespace, labels, of(spec.InitContainers), of(spec.Containers), spec.Resources, spec.Overhead, spec.NodeSelector, spec.Affinity,
		spec.Tolerations, spec.TopologySpreadConstraints, spec.RuntimeClassName, spec.PriorityClassName, spec.SchedulerName,
	})
	if err != nil {
		return string(pod.UID) // then the pod is like no other
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Classes caches the classes of pods for one pass: a class costs more than planning an ordinary pod.
type Classes map[*corev1.Pod]string

// Of is ClassOf.
func (c Classes) Of(pod *corev1.Pod) string {
	class, known := c[pod]
	if !known {
		class = ClassOf(pod)
		c[pod] = class
	}
	return class
}

// split iterates over a comma-separated list.
func split(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item != "" && !yield(item) {
				return
			}
		}
	}
}
