// Package admission completes pods as the API server does before it stores them: what a pod that a controller makes from a template has
// and the template does not, as far as it decides where the pod fits.
//
// A pod in a cluster needs none of it. Templates do: those of DaemonSets that have no pod yet, of capacity buffers, and of workloads in
// files.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Objects are the API objects from which the API server completes pods.
type Objects struct {
	LimitRanges     []*corev1.LimitRange
	RuntimeClasses  []*nodev1.RuntimeClass
	PriorityClasses []*schedulingv1.PriorityClass
}

// Rules complete pods. They are immutable, and safe for concurrent use.
type Rules struct {
	limitRanges map[string][]*corev1.LimitRange
	runtimes    map[string]*nodev1.RuntimeClass
	priorities  map[string]int32
	// standard is the priority of pods without a class; nil if the cluster has no default.
	standard *schedulingv1.PriorityClass
}

// New returns the rules of a cluster. Where the API server leaves the order of two LimitRanges of a namespace open, the first by name
// counts.
func New(o Objects) *Rules {
	r := &Rules{
		limitRanges: map[string][]*corev1.LimitRange{},
		runtimes:    make(map[string]*nodev1.RuntimeClass, len(o.RuntimeClasses)),
		priorities:  map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000},
	}
	for _, l := range o.LimitRanges {
		r.limitRanges[l.Namespace] = append(r.limitRanges[l.Namespace], l)
	}
	for _, ranges := range r.limitRanges {
		slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, class := range o.RuntimeClasses {
		r.runtimes[class.Name] = class
	}
	for _, class := range o.PriorityClasses {
		r.priorities[class.Name] = class.Value
		// Of several defaults the API server takes the lowest.
		if class.GlobalDefault && (r.standard == nil || class.Value < r.standard.Value) {
			r.standard = class
		}
	}
	return r
}

// UnknownRuntimeClassError means that the rules lack the runtime class of a pod: the API server rejects the pod while the cluster lacks it.
type UnknownRuntimeClassError struct{ Name string }

func (e *UnknownRuntimeClassError) Error() string {
	return fmt.Sprintf("runtime class %q does not exist", e.Name)
}

// Complete completes the spec of a pod in a namespace: requests default to limits, containers get the defaults of the namespace's
// LimitRanges, the pod gets overhead, node selector and tolerations of its RuntimeClass, the priority of its class, and the host ports of
// the host network. To complete a pod twice changes nothing.
//
// Not included, since no plan depends on it: tolerations of nodes that are not ready (they have a taint with another effect, too), the
// service account, and defaults of other fields. Not known are mutating webhooks, and which plugins are on that are off by default, such as
// ExtendedResourceToleration.
//
// An error is why the API server would reject the pod. All else is complete then. The spec's lists and maps may be shared with
// other pods of any namespace: Complete replaces lists that it changes, or changes them to what they are for all these pods.
func (r *Rules) Complete(namespace string, spec *corev1.PodSpec) error {
	r.applyLimitRanges(namespace, spec)
	snapshot.RequestLimits(spec)
	defaultHostPorts(spec)
	r.applyPriority(spec)
	return r.applyRuntime(spec)
}

// CompleteDaemon is Complete for a pod of a DaemonSet. It adds the tolerations that the DaemonSet controller does.
func (r *Rules) CompleteDaemon(namespace string, spec *corev1.PodSpec) error {
	tolerated := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	}
	if spec.HostNetwork {
		tolerated = append(tolerated, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, t := range tolerated {
		t.Operator = corev1.TolerationOpExists
		tolerate(spec, t)
	}
	return r.Complete(namespace, spec)
}

// applyLimitRanges gives containers what the LimitRanges of the namespace state of those without it. What a container has itself counts
// first, its limits as requests, too.
func (r *Rules) applyLimitRanges(namespace string, spec *corev1.PodSpec) {
	for _, l := range r.limitRanges[namespace] {
		requests, limits := containerDefaults(l)
		for _, list := range []*[]corev1.Container{&spec.InitContainers, &spec.Containers} {
			*list = slices.Clone(*list)
			for i := range *list {
				c := &(*list)[i].Resources
				c.Requests = withMissing(withMissing(c.Requests, c.Limits), requests)
				c.Limits = withMissing(c.Limits, limits)
			}
		}
	}
}

// containerDefaults are the defaults of a LimitRange for containers. One that comes from a file lacks those that the API server adds: the
// maximum is the default limit, and this or the minimum the default request.
func containerDefaults(l *corev1.LimitRange) (requests, limits corev1.ResourceList) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		itsLimits := withMissing(item.Default, item.Max)
		itsRequests := withMissing(withMissing(item.DefaultRequest, itsLimits), item.Min)
		// Of several items of one LimitRange the last counts.
		requests, limits = withMissing(itsRequests, requests), withMissing(itsLimits, limits)
	}
	return requests, limits
}

// withMissing is a list with the amounts of another for resources that it lacks. It changes neither.
func withMissing(list, defaults corev1.ResourceList) corev1.ResourceList {
	missing := false
	for name := range defaults {
		_, has := list[name]
		missing = missing || !has
	}
	if !missing {
		return list
	}
	out := maps.Clone(defaults)
	maps.Copy(out, list)
	return out
}

// CompletePodGroup gives a PodGroup the priority of its class.
func (r *Rules) CompletePodGroup(g *schedulingv1beta1.PodGroup) {
	spec := corev1.PodSpec{PriorityClassName: g.Spec.PriorityClassName, Priority: g.Spec.Priority}
	r.applyPriority(&spec)
	g.Spec.PriorityClassName, g.Spec.Priority = spec.PriorityClassName, spec.Priority
}

func (r *Rules) applyPriority(spec *corev1.PodSpec) {
	if spec.Priority != nil {
		return
	}
	if spec.PriorityClassName == "" && r.standard != nil {
		spec.PriorityClassName = r.standard.Name
	}
	if value, known := r.priorities[spec.PriorityClassName]; known {
		spec.Priority = &value
	}
}

func (r *Rules) applyRuntime(spec *corev1.PodSpec) error {
	if spec.RuntimeClassName == nil {
		return nil
	}
	class := r.runtimes[*spec.RuntimeClassName]
	if class == nil {
		return &UnknownRuntimeClassError{*spec.RuntimeClassName}
	}
	if class.Overhead != nil {
		if len(spec.Overhead) > 0 && !equality.Semantic.DeepEqual(spec.Overhead, class.Overhead.PodFixed) {
			return fmt.Errorf("spec.overhead differs from that of runtime class %q; remove it", class.Name)
		}
		spec.Overhead = maps.Clone(class.Overhead.PodFixed)
	}
	if class.Scheduling == nil {
		return nil
	}
	selector := maps.Clone(class.Scheduling.NodeSelector)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if own, set := spec.NodeSelector[key]; set && own != selector[key] {
			return fmt.Errorf("spec.nodeSelector has %s=%s, and runtime class %q selects nodes with %s=%s; remove one of them",
				key, own, class.Name, key, selector[key])
		}
	}
	if len(selector) > 0 {
		maps.Copy(selector, spec.NodeSelector)
		spec.NodeSelector = selector
	}
	for i := range class.Scheduling.Tolerations {
		tolerate(spec, class.Scheduling.Tolerations[i])
	}
	return nil
}

// tolerate adds a toleration, unless the pod has it. Others may share the list.
func tolerate(spec *corev1.PodSpec, t corev1.Toleration) {
	if !slices.ContainsFunc(spec.Tolerations, func(own corev1.Toleration) bool { return equality.Semantic.DeepEqual(own, t) }) {
		spec.Tolerations = append(slices.Clone(spec.Tolerations), t)
	}
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
