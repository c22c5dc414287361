package bin

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// KeepOut narrows a bin, after no more pods fit, so that it comes up outside of the domain, or as a type that does not count there,
// if it can be what it is now. It returns whether it did, and how many types it has looked at.
func (s *Set) KeepOut(i topology.Intruder) (kept bool, checked int) {
	b := s.all[i.Index]
	if !b.mayNarrow() {
		return false, 0
	}
	held := b.t.Fitting(nil, s.ownFit(b))
	var types []string
	for _, cand := range held {
		if !b.cands.SomeMaySatisfy([]nodepool.Candidate{cand}, i.Nodes) {
			types = append(types, b.t.TypeOf(cand).Name)
		}
	}
	for _, r := range []requirement.Requirement{requirement.NotIn(i.Key, i.Domain), requirement.In(corev1.LabelInstanceTypeStable, types...)} {
		checked += len(b.t.Types())
		if cands, at := b.narrowed(r); at >= 0 {
			s.become(b, cands, at)
			return true, checked
		}
	}
	return false, checked
}
