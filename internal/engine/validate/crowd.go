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

// member is a pod in a place.
type member struct {
	pod *corev1.Pod
	at  *place
	// fresh tells that this plan chose the place; old pods and those promised to a node on its way were there before.
	fresh bool
	// active pods are counted by others; one that is being ended is not, but what it declared holds while it is there.
	active bool
}

// crowd is everybody who is in a place once the plan is carried out, by what selectors can see of them.
type crowd struct {
	all    []*member
	alikes []*alike
}

// alike are members of one namespace with the same labels.
type alike struct {
	namespace string
	labels    map[string]string
	members   []*member
}

func (c *check) gather() *crowd {
	out := &crowd{}
	index := map[string]*alike{}
	add := func(m *member) {
		out.all = append(out.all, m)
		var b strings.Builder
		b.WriteString(m.pod.Namespace)
		for _, k := range slices.Sorted(maps.Keys(m.pod.Labels)) {
			fmt.Fprintf(&b, "\x00%s\x01%s", k, m.pod.Labels[k])
		}
		a := index[b.String()]
		if a == nil {
			a = &alike{namespace: m.pod.Namespace, labels: m.pod.Labels}
			index[b.String()] = a
			out.alikes = append(out.alikes, a)
		}
		a.members = append(a.members, m)
	}
	for _, pl := range c.places {
		if pl.node != nil {
			for _, pod := range pl.node.Pods {
				if !snapshot.Terminal(pod) && !c.planned[pod.UID] {
					add(&member{pod: pod, at: pl, active: snapshot.Active(pod)})
				}
			}
		}
		for _, pod := range pl.pods {
			add(&member{pod: pod, at: pl, fresh: !pl.promised(pod), active: true})
		}
	}
	return out
}

// selection is whom a topology constraint of a pod is about.
type selection struct {
	everywhere bool
	namespaces map[string]bool
	selector   *metav1.LabelSelector
	key        string // canonical
}

func (s *selection) selects(namespace string, labels map[string]string) bool {
	return (s.everywhere || s.namespaces[namespace]) && selects(s.selector, labels)
}

func (s *selection) has(pod *corev1.Pod) bool { return s.selects(pod.Namespace, pod.Labels) }

// id tells selections apart.
func (s *selection) id() string {
	b, err := json.Marshal(s.selector)
	if err != nil {
		return fmt.Sprintf("%p", s)
	}
	return fmt.Sprint(s.key, s.everywhere, slices.Sorted(maps.Keys(s.namespaces)), string(b))
}

// among are the members that the selection is about.
func (c *crowd) among(s *selection) []*member {
	var out []*member
	for _, a := range c.alikes {
		if s.selects(a.namespace, a.labels) {
			out = append(out, a.members...)
		}
	}
	return out
}

// keyed adds to a selector what matchLabelKeys and mismatchLabelKeys say; keys that the pod lacks say nothing.
func keyed(s *metav1.LabelSelector, pod *corev1.Pod, match, mismatch []string) *metav1.LabelSelector {
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

func (c *check) spreadOver(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) *selection {
	return &selection{
		namespaces: map[string]bool{pod.Namespace: true}, key: c.s.Labels.Normalize(t.TopologyKey),
		selector: keyed(t.LabelSelector, pod, t.MatchLabelKeys, nil),
	}
}

// related reads a term of pod affinity or anti-affinity.
func (c *check) related(pod *corev1.Pod, t *corev1.PodAffinityTerm) *selection {
	out := &selection{
		namespaces: map[string]bool{}, key: c.s.Labels.Normalize(t.TopologyKey),
		selector: keyed(t.LabelSelector, pod, t.MatchLabelKeys, t.MismatchLabelKeys),
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
