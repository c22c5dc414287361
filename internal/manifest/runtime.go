package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster/admission"
)

// admitPods completes pods, and templates of DaemonSets, as the API server does on admission.
func (r *reader) admitPods() error {
	rules := admission.New(admission.Objects{
		LimitRanges: r.world.LimitRanges, RuntimeClasses: r.world.RuntimeClasses, PriorityClasses: all[*schedulingv1.PriorityClass](r),
	})
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

// plainDaemonSets are the DaemonSets that do not come from a snapshot.
func (r *reader) plainDaemonSets() []*appsv1.DaemonSet {
	return slices.DeleteFunc(slices.Clone(r.world.DaemonSets), func(set *appsv1.DaemonSet) bool {
		return r.taken("DaemonSet", set.Namespace, set.Name)
	})
}
