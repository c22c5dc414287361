package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster/admission"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// admitPods completes pods, and templates of DaemonSets, as the API server does on admission.
func (r *reader) admitPods() error {
	rules := r.rules()
	missing := map[string]int{}
	admitted := func(err error) error {
		if unknown := (*admission.UnknownRuntimeClassError)(nil); errors.As(err, &unknown) {
			missing[unknown.Name]++
			return nil
		}
		return err
	}
	for _, pod := range r.world.Pods {
		if r.takenPod(pod) {
			continue
		}
		if err := admitted(rules.Complete(pod.Namespace, &pod.Spec)); err != nil {
			return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	for _, set := range r.plainDaemonSets() {
		if err := admitted(rules.Complete(set.Namespace, &set.Spec.Template.Spec)); err != nil {
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

// rules returns those by which the API server completes objects.
func (r *reader) rules() *admission.Rules {
	return admission.New(admission.Objects{
		LimitRanges: r.world.LimitRanges, RuntimeClasses: r.world.RuntimeClasses, PriorityClasses: all[*schedulingv1.PriorityClass](r),
	})
}

// completePodGroups gives PodGroups the priority of their class. Without any among the inputs, pods that name one are planned one by one,
// as where the API server serves none.
func (r *reader) completePodGroups() {
	if r.world.PodGroups != nil {
		rules := r.rules()
		for _, g := range r.world.PodGroups.Groups {
			if !r.taken("PodGroup", g.Namespace, g.Name) {
				rules.CompletePodGroup(g)
			}
		}
		return
	}
	for _, pod := range r.world.Pods {
		if name, in := snapshot.PodGroupOf(pod); in && !r.takenPod(pod) {
			r.note("pod %s/%s names PodGroup %q, and there is no PodGroup among the inputs: its pods are planned one by one; to plan them "+
				"together, add the PodGroup (kubectl get podgroups -o yaml)", pod.Namespace, pod.Name, name.Name)
			return
		}
	}
}

// plainDaemonSets are the DaemonSets that do not come from a snapshot.
func (r *reader) plainDaemonSets() []*appsv1.DaemonSet {
	return slices.DeleteFunc(slices.Clone(r.world.DaemonSets), func(set *appsv1.DaemonSet) bool {
		return r.taken("DaemonSet", set.Namespace, set.Name)
	})
}
