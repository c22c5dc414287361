package podreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// podOfWorkload returns a pod of the workload that has the name, a pending one if there is any, and a sentence that states it; nil if no
// workload with pods has it. It costs one loop over the pods.
func podOfWorkload(view *inspect.View, name types.NamespacedName) (*corev1.Pod, string) {
	byKind := map[string][]*corev1.Pod{}
	for _, pod := range view.Pods {
		if kind := kindNamed(view, pod, name); kind != "" {
			byKind[kind] = append(byKind[kind], pod)
		}
	}
	kind := ""
	for k := range byKind {
		if kind == "" || k < kind {
			kind = k
		}
	}
	pods := byKind[kind]
	if len(pods) == 0 {
		return nil, ""
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name)) })
	var alsoPending []string
	for _, p := range pods[1:] {
		if rank(p) == 0 {
			alsoPending = append(alsoPending, key(p))
		}
	}
	text := fmt.Sprintf("%s is a %s with %s: this is %s", name, kind, report.Plural(len(pods), "pod"), key(pods[0]))
	if len(alsoPending) > 0 {
		text += "; also pending: " + some(alsoPending)
	}
	return pods[0], text
}

// isDaemonSet reports whether a DaemonSet has the name.
func isDaemonSet(view *inspect.View, name types.NamespacedName) bool {
	return slices.ContainsFunc(view.DaemonSets, func(d *appsv1.DaemonSet) bool { return d.Namespace == name.Namespace && d.Name == name.Name })
}

// rank is the order in which pods are worth an explanation: pending ones, those with a node, and those that have finished.
func rank(p *corev1.Pod) int {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return 2
	case p.Spec.NodeName != "":
		return 1
	}
	return 0
}

// kindNamed returns the kind of the pod's workload, or of its owner, that has the name; empty if neither has.
func kindNamed(view *inspect.View, pod *corev1.Pod, name types.NamespacedName) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || pod.Namespace != name.Namespace || !strings.HasPrefix(owner.Name, name.Name) {
		return ""
	}
	if owner.Kind == "ReplicaSet" {
		if of, kind := deployment(view, pod, owner); of == name.Name {
			return kind
		}
	}
	if owner.Name == name.Name {
		return owner.Kind
	}
	// A CronJob names its Jobs by itself and by their minute.
	minute, found := strings.CutPrefix(owner.Name, name.Name+"-")
	if found && owner.Kind == "Job" && minute != "" && strings.Trim(minute, "0123456789") == "" {
		return "CronJob"
	}
	return ""
}
