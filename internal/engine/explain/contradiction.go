package explain

import (
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
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
	for _, r := range volume {
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist { // the volumes' topologies do not overlap
			return rejection.Reason{
				Code:    rejection.Requirement,
				Message: fmt.Sprintf("the pod's volumes contradict each other: there is no %s in which all of them can be used", r.Key()),
			}
		}
	}
	for i, a := range pod {
		for _, b := range pod[i+1:] {
			if a.Key() == b.Key() && excludes(a, b) {
				return rejection.Reason{
					Code:    rejection.Requirement,
					Message: fmt.Sprintf("the pod contradicts itself: nothing can be both %s and %s", wording.Requirement(a), wording.Requirement(b)),
				}
			}
		}
		for _, b := range volume {
			if a.Key() == b.Key() && excludes(a, b) {
				return rejection.Reason{
					Code: rejection.Volume,
					Message: fmt.Sprintf(
						"the pod requires %s, but its volumes can only be used in %s: nothing can be both",
						wording.Requirement(a),
						wording.Requirement(b),
					),
				}
			}
		}
	}
	return rejection.Reason{}
}

func excludes(a, b requirement.Requirement) bool {
	return !a.Overlaps(b) && !(a.AllowsAbsent() && b.AllowsAbsent())
}
