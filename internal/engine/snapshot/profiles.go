package snapshot

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// SchedulerProfile is what a profile of kube-scheduler adds to the rules of its pods, or leaves out.
type SchedulerProfile struct {
	// AddedAffinity must hold besides what a pod requires of nodes, and counts beside what it prefers; nil if there is none. Unlike a pod's
	// own affinity, it does not decide which nodes count for spreads.
	AddedAffinity *corev1.NodeAffinity `json:"addedAffinity,omitempty"`
	// IgnoredResources are extended resources that the scheduler does not compare with what a node has, and IgnoredResourceGroups the parts
	// of such names before the slash.
	IgnoredResources      []string `json:"ignoredResources,omitempty"`
	IgnoredResourceGroups []string `json:"ignoredResourceGroups,omitempty"`
}

// profileOf is the profile of the scheduler that the pod names; nil if it changes no rules.
func (s *Settings) profileOf(pod *corev1.PodSpec) *SchedulerProfile {
	if len(s.Profiles) == 0 {
		return nil
	}
	p, known := s.Profiles[cmp.Or(pod.SchedulerName, corev1.DefaultSchedulerName)]
	if !known {
		return nil
	}
	return &p
}

// ProfileName is the name of the profile that changes rules of the pod; empty if none does.
func (s *Settings) ProfileName(pod *corev1.PodSpec) string {
	if s.profileOf(pod) == nil {
		return ""
	}
	return cmp.Or(pod.SchedulerName, corev1.DefaultSchedulerName)
}

// AddedAffinity is what the pod's scheduler requires and prefers of nodes in addition to the pod; nil if nothing.
func (s *Settings) AddedAffinity(pod *corev1.PodSpec) *corev1.NodeAffinity {
	if p := s.profileOf(pod); p != nil {
		return p.AddedAffinity
	}
	return nil
}

// Ignores reports whether the pod's scheduler compares the amount of a resource with no node.
func (s *Settings) Ignores(pod *corev1.PodSpec, name corev1.ResourceName) bool {
	p := s.profileOf(pod)
	group, _, extended := strings.Cut(string(name), "/")
	if p == nil || !extended || strings.Contains(string(name), "kubernetes.io/") {
		return false // NodeResourcesFit ignores extended resources only
	}
	return slices.Contains(p.IgnoredResources, string(name)) || slices.Contains(p.IgnoredResourceGroups, group)
}

// Compared are those of the requests that the pod's scheduler compares with what nodes have: all of them, but for a profile that ignores
// some.
func (s *Settings) Compared(pod *corev1.PodSpec, requests corev1.ResourceList) corev1.ResourceList {
	if s.profileOf(pod) == nil {
		return requests
	}
	out := make(corev1.ResourceList, len(requests))
	for name, q := range requests {
		if !s.Ignores(pod, name) {
			out[name] = q
		}
	}
	return out
}

// NodeSelection parses what the pod and its scheduler require and prefer of the labels of nodes. For the error see Labels.FromPod.
func (s *Snapshot) NodeSelection(pod *corev1.PodSpec) (requirement.Pod, error) {
	added := s.Settings.AddedAffinity(pod)
	if added == nil {
		return s.Labels.FromPod(pod)
	}
	return s.Labels.FromPod(&corev1.PodSpec{NodeSelector: pod.NodeSelector, Affinity: &corev1.Affinity{NodeAffinity: withAdded(pod, added)}})
}

// withAdded is the node affinity of the pod and of its scheduler in one: as both must hold, each alternative of the one is joined with each
// of the other.
func withAdded(pod *corev1.PodSpec, added *corev1.NodeAffinity) *corev1.NodeAffinity {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return added
	}
	own := pod.Affinity.NodeAffinity
	out := &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: own.RequiredDuringSchedulingIgnoredDuringExecution,
		PreferredDuringSchedulingIgnoredDuringExecution: slices.Concat(
			own.PreferredDuringSchedulingIgnoredDuringExecution, added.PreferredDuringSchedulingIgnoredDuringExecution,
		),
	}
	a, b := own.RequiredDuringSchedulingIgnoredDuringExecution, added.RequiredDuringSchedulingIgnoredDuringExecution
	switch {
	case a == nil:
		out.RequiredDuringSchedulingIgnoredDuringExecution = b
	case b != nil:
		joined := &corev1.NodeSelector{}
		for _, x := range a.NodeSelectorTerms {
			for _, y := range b.NodeSelectorTerms {
				if empty(x) || empty(y) {
					continue // matches no node
				}
				joined.NodeSelectorTerms = append(joined.NodeSelectorTerms, corev1.NodeSelectorTerm{
					MatchExpressions: slices.Concat(x.MatchExpressions, y.MatchExpressions), MatchFields: slices.Concat(x.MatchFields, y.MatchFields),
				})
			}
		}
		out.RequiredDuringSchedulingIgnoredDuringExecution = joined
	}
	return out
}

func empty(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 }
