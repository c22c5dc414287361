package buffer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Quotas are the ResourceQuotas of a namespace, and what its buffers take of them: the pods that a buffer keeps room for could not be
// created beyond them. The buffers share what is left, in the order in which Admit is called.
type Quotas struct {
	list []corev1.ResourceQuota
	// left holds what each quota leaves, in thousandths.
	left []map[corev1.ResourceName]int64
}

// NewQuotas reads what the quotas of a namespace leave: hard minus used.
func NewQuotas(list []corev1.ResourceQuota) *Quotas {
	q := &Quotas{list: slices.Clone(list)}
	slices.SortFunc(q.list, func(a, b corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	for i := range q.list {
		left := map[corev1.ResourceName]int64{}
		for name, hard := range q.list[i].Spec.Hard {
			left[name] = max(0, quantity.Milli(hard)-quantity.Milli(q.list[i].Status.Used[name]))
		}
		q.left = append(q.left, left)
	}
	return q
}

// Admit returns how many of n pods of the template the quotas allow beside those that were admitted before, and names the quota that allows
// no more; it is empty if they allow all.
func (q *Quotas) Admit(template *corev1.PodTemplateSpec, n int32) (allowed int32, why string) {
	allowed = n
	usage := podUsage(template)
	for i := range q.list {
		if !inScope(&q.list[i], template) {
			continue
		}
		for _, name := range sortedNames(q.left[i]) {
			each := usage[name]
			if each <= 0 {
				continue
			}
			if fit := q.left[i][name] / each; fit < int64(allowed) {
				allowed = int32(fit)
				hard := q.list[i].Spec.Hard[name]
				why = fmt.Sprintf("ResourceQuota %q allows %s of %s in the namespace", q.list[i].Name, hard.String(), name)
			}
		}
	}
	for i := range q.list {
		if !inScope(&q.list[i], template) {
			continue
		}
		for name := range q.left[i] {
			q.left[i][name] -= usage[name] * int64(allowed)
		}
	}
	return allowed, why
}

func sortedNames(amounts map[corev1.ResourceName]int64) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(amounts))
	for name := range amounts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// podUsage returns what one pod counts against quotas, by the names that quotas have, in thousandths.
func podUsage(template *corev1.PodTemplateSpec) map[corev1.ResourceName]int64 {
	one := quantity.Milli(resource.MustParse("1"))
	out := map[corev1.ResourceName]int64{corev1.ResourcePods: one, "count/pods": one}
	for name, q := range snapshot.Requests(&corev1.Pod{Spec: virtualSpec(template)}) {
		if name == corev1.ResourcePods {
			continue
		}
		amount := quantity.Milli(q)
		out["requests."+name] = amount
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name] = amount
		}
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[name] = amount
		}
	}
	for name, q := range snapshot.Requests(&corev1.Pod{Spec: limitsAsRequests(template)}) {
		if name != corev1.ResourcePods {
			out["limits."+name] = quantity.Milli(q)
		}
	}
	return out
}

// limitsAsRequests is the spec with the limits of containers in place of their requests.
func limitsAsRequests(template *corev1.PodTemplateSpec) corev1.PodSpec {
	spec := *template.Spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Resources.Requests = containers[i].Resources.Limits
		}
	}
	if spec.Resources != nil {
		spec.Resources.Requests = spec.Resources.Limits
	}
	return spec
}

// inScope reports whether the quota counts pods of the template, by the rules of the API server.
func inScope(q *corev1.ResourceQuota, template *corev1.PodTemplateSpec) bool {
	for _, scope := range q.Spec.Scopes {
		if !matchesScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, template) {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		if !matchesScope(e, template) {
			return false
		}
	}
	return true
}

func matchesScope(e corev1.ScopedResourceSelectorRequirement, template *corev1.PodTemplateSpec) bool {
	spec := &template.Spec
	switch e.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(spec)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(spec.Affinity)
	case corev1.ResourceQuotaScopePriorityClass:
		switch e.Operator {
		case corev1.ScopeSelectorOpExists:
			return spec.PriorityClassName != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return spec.PriorityClassName == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(e.Values, spec.PriorityClassName)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(e.Values, spec.PriorityClassName)
		}
	}
	return false // a scope that pods do not have
}

// bestEffort reports whether no container requests or limits CPU or memory.
func bestEffort(spec *corev1.PodSpec) bool {
	sets := func(r *corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			if !list.Cpu().IsZero() || !list.Memory().IsZero() {
				return true
			}
		}
		return false
	}
	if spec.Resources != nil && sets(spec.Resources) {
		return false
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if sets(&containers[i].Resources) {
				return false
			}
		}
	}
	return true
}

// crossesNamespaces reports whether any pod term names other namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	weighted := func(list []corev1.WeightedPodAffinityTerm) {
		for i := range list {
			terms = append(terms, list[i].PodAffinityTerm)
		}
	}
	if a.PodAffinity != nil {
		terms = append(terms, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		terms = append(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
