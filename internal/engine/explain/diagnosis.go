package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// nodeCase is one way in which a pool could make a node for the pods.
type nodeCase struct {
	template *nodepool.Template
	pods     *Pods
	// required are the label requirements of the pod, volume those of its volumes.
	required, volume requirement.Set
}

// requirements returns those of pod and volumes under a waiver.
func (q *nodeCase) requirements(l waiver) requirement.Set {
	set := q.required.Without(l.pod...)
	if !l.volume {
		set = set.Intersect(q.volume)
	}
	return set
}

// obstacle is one rule that keeps a pod off a pool's nodes.
type obstacle struct {
	code rejection.Code
	// rule is nil if the code is all that there is to know.
	rule   *rejection.Rule
	waiver waiver
	// final obstacles cannot be waived.
	final bool
}

// diagnosis is all obstacles in one nodeCase, and where the pod would go without them.
type diagnosis struct {
	obstacles []obstacle
	nearest   *rejection.Nearest
}

// cases are the ways in which a pool could serve the pods: each alternative of required node affinity with each
// alternative of its volumes' topologies.
func (e *Explainer) cases(t *nodepool.Template, p *Pods) []nodeCase {
	terms := p.Selection.Required
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	var out []nodeCase
	for _, term := range terms {
		for _, v := range p.Volumes {
			if len(out) < maxAlternatives {
				out = append(out, nodeCase{template: t, pods: p, required: p.Selection.Selector.Intersect(term), volume: v.Set})
			}
		}
	}
	return out
}

// diagnose finds the obstacles of one case, and a minimal set of them that suffices.
//
// Invariant: obstacles grow by one per probe, so there are at most maxObstacles of them.
func (e *Explainer) diagnose(q nodeCase) diagnosis {
	var a diagnosis
	var l waiver
	for {
		found, why := e.probe(&q, l)
		if why == fits {
			if len(a.obstacles) > 0 {
				a.obstacles, found = e.minimize(&q, a.obstacles, found)
			}
			if a.nearestIsExact(&q) {
				a.nearest = found
			}
			return a
		}
		if len(a.obstacles) == maxObstacles {
			return a
		}
		o := e.identify(&q, l, why)
		if o.code == rejection.Reserved && len(a.obstacles) > 0 {
			return a // the next plan decides, once this is the only obstacle
		}
		a.obstacles = append(a.obstacles, o)
		if o.final {
			return a
		}
		l = l.and(o.waiver)
	}
}

// minimize drops obstacles that are not needed once the others are waived.
func (e *Explainer) minimize(q *nodeCase, all []obstacle, found *rejection.Nearest) ([]obstacle, *rejection.Nearest) {
	for i := 0; i < len(all) && len(all) > 1; {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		var l waiver
		for _, o := range rest {
			l = l.and(o.waiver)
		}
		if without, why := e.probe(q, l); why == fits {
			all, found = rest, without
			continue
		}
		i++
	}
	return all, found
}

// nearestIsExact reports whether the pod would fit where the solver found room. The label requirements of a pod also
// decide which nodes its spread counts, and those were counted with the present requirements.
func (a *diagnosis) nearestIsExact(q *nodeCase) bool {
	relabelled := slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return len(o.waiver.pod) > 0 })
	lifted := func(c Constraint) bool {
		return slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return slices.Contains(o.waiver.constraints, c) })
	}
	return !relabelled || !slices.ContainsFunc(q.pods.Search.Constraints(), func(c Constraint) bool {
		return c.Spreads() && c.Key() != corev1.LabelHostname && !lifted(c)
	})
}

// reasons converts a diagnosis into Reasons.
func (a *diagnosis) reasons(pool string) []rejection.Reason {
	out := make([]rejection.Reason, len(a.obstacles))
	for i, o := range a.obstacles {
		out[i] = rejection.Reason{Code: o.code, NodePool: pool, Rule: o.rule, Nearest: a.nearest}
	}
	if a.nearest != nil && len(out) > 0 {
		out[len(out)-1].Together = len(out)
	}
	return out
}

// closer reports whether a has fewer obstacles to scheduling than b.
func (a *diagnosis) closer(b *diagnosis) bool {
	if (a.nearest != nil) != (b.nearest != nil) {
		return a.nearest != nil
	}
	return len(a.obstacles) < len(b.obstacles)
}
