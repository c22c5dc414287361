package validate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// scheduledPod is a pod on a host.
type scheduledPod struct {
	pod *corev1.Pod
	at  *host
	// placedByPlan is true if this plan placed the pod; running pods and those nominated to a node in flight were
	// there before.
	placedByPlan bool
	// active pods are counted by spreads; terminating ones are not.
	active bool
	// repels is true if anti-affinity counts the pod, and its own holds; attracts if affinity counts it.
	repels, attracts bool
	// endsSoon is true of a pod that terminates, and is about to be gone.
	endsSoon bool
	// daemon is true for a DaemonSet's pod that comes with its node, keptOff for one that a running pod keeps off as long as it runs.
	daemon, keptOff bool
}

// podIndex is all pods on hosts after the plan, grouped by what selectors can see of them.
type podIndex struct {
	all    []*scheduledPod
	groups []*labelGroup
	// daemons are the daemons to come: see daemonsToCome. They are not among all.
	daemons []*scheduledPod
	// ending are the terms of anti-affinity of pods that are about to be gone.
	ending []*affinityTerm
}

// labelGroup are the pods of one namespace with the same labels.
type labelGroup struct {
	namespace string
	labels    map[string]string
	members   []*scheduledPod
}

func (c *check) scheduledPods() *podIndex {
	out := &podIndex{}
	index := map[string]*labelGroup{}
	add := func(m *scheduledPod) {
		out.all = append(out.all, m)
		var b strings.Builder
		b.WriteString(m.pod.Namespace)
		for _, k := range slices.Sorted(maps.Keys(m.pod.Labels)) {
			fmt.Fprintf(&b, "\x00%s\x01%s", k, m.pod.Labels[k])
		}
		a := index[b.String()]
		if a == nil {
			a = &labelGroup{namespace: m.pod.Namespace, labels: m.pod.Labels}
			index[b.String()] = a
			out.groups = append(out.groups, a)
		}
		a.members = append(a.members, m)
	}
	for _, pl := range c.hosts {
		if pl.node != nil {
			for _, pod := range pl.node.Pods {
				goes := pl.node.Deleting && c.leaves(pl.node) && slices.ContainsFunc(pod.OwnerReferences, isDaemonSet)
				if !snapshot.Terminal(pod) && !c.planned[pod.UID] && !goes {
					add(c.running(pod, pl))
				}
			}
		}
		for _, pod := range pl.pods {
			add(&scheduledPod{pod: pod, at: pl, placedByPlan: !pl.nominated(pod), active: true, repels: true, attracts: true})
		}
	}
	var keepers, ending []*scheduledPod
	for _, m := range out.all {
		if len(requiredAntiAffinity(m.pod)) == 0 || slices.Contains(m.at.pods, m.pod) {
			continue
		}
		if m.endsSoon {
			ending = append(ending, m)
		}
		if m.repels && !m.at.node.Deleting {
			keepers = append(keepers, m)
		}
	}
	out.daemons, out.ending = c.daemonsToCome(keepers), c.termsOf(ending)
	return out
}

// selection is the pods that a topology constraint selects.
type selection struct {
	everywhere bool
	namespaces map[string]bool
	selector   *metav1.LabelSelector
	key        string // canonical
	stated     string // the key as the pod states it
}

func (s *selection) selects(namespace string, labels map[string]string) bool {
	return (s.everywhere || s.namespaces[namespace]) && selects(s.selector, labels)
}

func (s *selection) has(pod *corev1.Pod) bool { return s.selects(pod.Namespace, pod.Labels) }

// id identifies the selection.
func (s *selection) id() string {
	b, err := json.Marshal(s.selector)
	if err != nil {
		return fmt.Sprintf("%p", s)
	}
	return fmt.Sprint(s.stated, s.everywhere, slices.Sorted(maps.Keys(s.namespaces)), string(b))
}

// selected are the pods of the selection.
func (c *podIndex) selected(s *selection) []*scheduledPod {
	var out []*scheduledPod
	for _, a := range c.groups {
		if s.selects(a.namespace, a.labels) {
			out = append(out, a.members...)
		}
	}
	return out
}

// withLabelKeys adds matchLabelKeys and mismatchLabelKeys to a selector; keys that the pod lacks are ignored.
func withLabelKeys(s *metav1.LabelSelector, pod *corev1.Pod, match, mismatch []string) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	out := s.DeepCopy()
	add := func(keys []string, op metav1.LabelSelectorOperator) {
		for _, k := range keys {
			if v, ok := pod.Labels[k]; ok {
				out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
			}
		}
	}
	add(match, metav1.LabelSelectorOpIn)
	add(mismatch, metav1.LabelSelectorOpNotIn)
	return out
}

func (c *check) spreadSelection(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) *selection {
	return &selection{
		namespaces: map[string]bool{pod.Namespace: true}, key: c.s.Labels.Normalize(t.TopologyKey), stated: t.TopologyKey,
		selector: withLabelKeys(t.LabelSelector, pod, t.MatchLabelKeys, nil),
	}
}

// affinitySelection reads a term of pod affinity or anti-affinity.
func (c *check) affinitySelection(pod *corev1.Pod, t *corev1.PodAffinityTerm) *selection {
	out := &selection{
		namespaces: map[string]bool{}, key: c.s.Labels.Normalize(t.TopologyKey), stated: t.TopologyKey,
		selector: withLabelKeys(t.LabelSelector, pod, t.MatchLabelKeys, t.MismatchLabelKeys),
	}
	if s := t.LabelSelector; s != nil && slices.ContainsFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return len(e.Values) == 1 && (e.Operator == metav1.LabelSelectorOpIn && slices.Contains(t.MatchLabelKeys, e.Key) ||
			e.Operator == metav1.LabelSelectorOpNotIn && slices.Contains(t.MismatchLabelKeys, e.Key))
	}) {
		out.selector = s // the API server has merged the keys into it when the pod was created
	}
	for _, ns := range t.Namespaces {
		out.namespaces[ns] = true
	}
	if t.NamespaceSelector == nil {
		if len(t.Namespaces) == 0 {
			out.namespaces[pod.Namespace] = true
		}
		return out
	}
	out.everywhere = len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) == 0
	for ns, labels := range c.s.Namespaces {
		if selects(t.NamespaceSelector, labels) {
			out.namespaces[ns] = true
		}
	}
	return out
}

func requiredAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func requiredAntiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}
