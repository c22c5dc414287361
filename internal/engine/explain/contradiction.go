package explain

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	corev1 "k8s.io/api/core/v1"
)

// contradiction finds two requirements of the pod that no node can meet together, whichever alternative applies.
func (e *Explainer) contradiction(p *Pods) (rejection.Reason, bool) {
	var found rejection.Reason
	terms := [][]corev1.NodeSelectorRequirement{nil}
	if a := p.Pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = nil
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if len(t.MatchExpressions) > 0 {
				terms = append(terms, t.MatchExpressions)
			}
		}
	}
	for _, term := range terms {
		asked := slices.Clone(e.labels().FromLabels(p.Pod.Spec.NodeSelector).All())
		for _, x := range term {
			if r, err := e.labels().Parse(x.Key, x.Operator, x.Values...); err == nil {
				asked = append(asked, r)
			}
		}
		for _, v := range p.Volumes {
			why := firstConflict(firstSuspects(asked), v.Set.All())
			if why.Code == "" {
				return rejection.Reason{}, false
			}
			if found.Code == "" {
				found = why
			}
		}
	}
	return found, found.Code != ""
}

// firstConflict finds the first two requirements that exclude each other.
func firstConflict(pod, volume []requirement.Requirement) rejection.Reason {
	contradict := func(code rejection.Code, key string, pod, volume []requirement.Requirement) rejection.Reason {
		return rejection.Reason{Code: code, Rule: &rejection.Rule{Contradiction: &rejection.Contradiction{
			Key: key, Pod: rejection.LabelsOf(pod), Volumes: rejection.LabelsOf(volume),
		}}}
	}
	for _, r := range volume {
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist { // the volumes' topologies do not overlap
			return contradict(rejection.Requirement, r.Key(), nil, nil)
		}
	}
	for i, a := range pod {
		for _, b := range pod[i+1:] {
			if a.Key() == b.Key() && excludes(a, b) {
				return contradict(rejection.Requirement, a.Key(), []requirement.Requirement{a, b}, nil)
			}
		}
		for _, b := range volume {
			if a.Key() == b.Key() && excludes(a, b) {
				return contradict(rejection.Volume, a.Key(), []requirement.Requirement{a}, []requirement.Requirement{b})
			}
		}
	}
	return rejection.Reason{}
}

func excludes(a, b requirement.Requirement) bool {
	return !a.Agrees(b)
}
