package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// apartTerm selects pods that some pod keeps off its node, zone or the like.
type apartTerm struct {
	pods labels.Selector
	// namespace is the only one if namespaces are none.
	namespace  string
	listed     []string
	namespaces labels.Selector // nil for none beside those
}

// selectedByAntiAffinity reports whether the anti-affinity of any pod of the snapshot may select this one. It leaves out matchLabelKeys and
// mismatchLabelKeys, which make a term select fewer pods.
func (h *reassignment) selectedByAntiAffinity(pod *corev1.Pod) bool {
	if !h.apartRead {
		h.apart, h.apartRead = h.w.apartTerms(), true
	}
	for i := range h.apart {
		if h.checks--; h.checks < 0 {
			return true
		}
		if h.apart[i].selects(pod, h.w.snap.Namespaces[pod.Namespace]) {
			return true
		}
	}
	return false
}

func (t *apartTerm) selects(pod *corev1.Pod, namespace map[string]string) bool {
	within := slices.Contains(t.listed, pod.Namespace) || t.namespaces != nil && t.namespaces.Matches(labels.Set(namespace))
	if len(t.listed) == 0 && t.namespaces == nil {
		within = t.namespace == pod.Namespace
	}
	return within && t.pods.Matches(labels.Set(pod.Labels))
}

// apartTerms are the terms of required anti-affinity of all pods, each once. Cost: linear in the pods.
func (w *snapshotBuilder) apartTerms() []apartTerm {
	type termKey struct{ namespace, term string }
	var out []apartTerm
	// Pods of one owner share their terms in the cache.
	type sharedTerms struct {
		namespace string
		first     *corev1.PodAffinityTerm
	}
	seen, shared := map[termKey]bool{}, map[sharedTerms]bool{}
	read := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			list := topology.RequiredAntiAffinity(pod)
			if len(list) == 0 || shared[sharedTerms{pod.Namespace, &list[0]}] {
				continue
			}
			shared[sharedTerms{pod.Namespace, &list[0]}] = true
			for i := range list {
				if key := (termKey{pod.Namespace, list[i].String()}); !seen[key] {
					seen[key] = true
					out = append(out, newApartTerm(pod.Namespace, &list[i]))
				}
			}
		}
	}
	read(w.snap.Pods)
	read(w.snap.Arriving)
	for i := range w.snap.Nodes {
		read(w.snap.Nodes[i].Pods)
	}
	return out
}

func newApartTerm(namespace string, t *corev1.PodAffinityTerm) apartTerm {
	out := apartTerm{pods: selector(t.LabelSelector), namespace: namespace, listed: t.Namespaces}
	if t.NamespaceSelector != nil {
		out.namespaces = selector(t.NamespaceSelector)
	}
	return out
}

// selector is the selector as one that can be evaluated. One that is invalid selects everything: what it means is not known.
func selector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything()
	}
	return out
}
