package podclass

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Level describes what a pod requires of a node after some of its preferences have been dropped.
type Level struct {
	// strict is required; full adds the heaviest preference that is left.
	strict, full                 requirement.Set
	internedStrict, internedFull requirement.Interned // of strict and of full
	tolerations                  []corev1.Toleration
	// blocked are the templates with a taint that is not tolerated.
	blocked resources.Bitset
	// dropped counts how many preferences this level drops. Alternatives of required node affinity are none.
	dropped int
	// preferences counts how many preferences of the pods the level keeps.
	preferences int
	// groups are the topology constraints at this level.
	groups []*topology.Group
	// launchable is whether any template has the labels of the level: see launchableAt.
	launchable answer
	// views are the groups from the perspective of the pods; made on first use.
	views  []topology.View
	sorted topology.SortedViews
}

// Alone is a level of the same pods with other requirements and other views, and without taints if these do not count. It
// is for questions about one node.
func (level *Level) Alone(required requirement.Interned, anyTaints bool, views []topology.View) *Level {
	out := &Level{
		strict: required.Set, full: required.Set, internedStrict: required, internedFull: required,
		tolerations: level.tolerations, groups: level.groups, views: views,
	}
	if !anyTaints {
		out.blocked = level.blocked
	}
	return out
}

// relaxationState describes what a pod still requires and prefers while it is being relaxed.
type relaxationState struct {
	required  []requirement.Set
	preferred []requirement.Set
	terms
	// toleratesSoftTaints is true when taints with effect PreferNoSchedule are tolerated.
	toleratesSoftTaints bool
}

func (x *Compiler) initialState(k *Constraints, respect bool) relaxationState {
	w := relaxationState{required: k.node.Required, terms: x.terms(k, respect)}
	if respect {
		w.preferred = k.node.Preferred[:min(len(k.node.Preferred), MaxSoftTerms)]
	}
	return w
}

func heaviestFirst(terms []corev1.WeightedPodAffinityTerm) []corev1.WeightedPodAffinityTerm {
	out := slices.Clone(terms)
	slices.SortStableFunc(out, func(a, b corev1.WeightedPodAffinityTerm) int { return cmp.Compare(b.Weight, a.Weight) })
	return out
}

// relax drops the least important preference, and returns false when none is left. Requirements stay, but for the
// choice between alternatives of required node affinity.
func (w relaxationState) relax(softTaints bool) (relaxationState, bool) {
	switch {
	case len(w.joinedPreferences) > 0:
		w.joinedPreferences = nil
	case len(w.required) > 1:
		w.required = w.required[1:]
	case len(w.affinity) > 0:
		w.affinity = w.affinity[1:]
	case len(w.anti) > 0:
		w.anti = w.anti[1:]
	case len(w.preferred) > 0:
		w.preferred = w.preferred[1:]
	default:
		i := slices.Index(w.soft, true)
		if i < 0 {
			if !softTaints || w.toleratesSoftTaints {
				return w, false
			}
			w.toleratesSoftTaints = true
			return w, true
		}
		last := len(w.spread) - 1
		w.spread, w.soft = slices.Clone(w.spread), slices.Clone(w.soft)
		w.spread[i], w.soft[i] = w.spread[last], w.soft[last]
		w.spread, w.soft = w.spread[:last], w.soft[:last]
	}
	return w, true
}

// preferences counts those that are left; tolerating soft taints counts as one dropped.
func (w relaxationState) preferences() int {
	out := btoi(len(w.joinedPreferences) > 0) + len(w.affinity) + len(w.anti) + len(w.preferred) - btoi(w.toleratesSoftTaints)
	for _, soft := range w.soft {
		out += btoi(soft)
	}
	return out
}

// addLevels compiles the relaxation levels, or returns why the pods are too complex to plan. Classes with many
// terms share a bound on the groups that they add. Beyond it their preferences do not count, and pods that require so
// much are not planned.
func (x *Compiler) addLevels(k *Constraints) []rejection.Reason {
	before, intricate := len(x.topology.Groups()), k.hasManyTerms()
	if intricate && x.manyTermGroups >= maxManyTermGroups {
		if max(len(requiredAffinity(k.pod)), hardSpreads(k.pod)) > fewTerms {
			return []rejection.Reason{tooComplex(rejection.ManyTerms, fewTerms, maxManyTermGroups)}
		}
		k.levels = x.levels(k, false)
	} else {
		k.levels = x.levels(k, x.respectPreferences)
	}
	k.countPreferences(x.softTaints)
	if k.manyTerms = intricate; intricate {
		x.manyTermGroups += len(x.topology.Groups()) - before
	}
	return nil
}

// levels compiles what the pods prefer and each step of dropping it.
func (x *Compiler) levels(k *Constraints, respect bool) []*Level {
	var out []*Level
	w, more := x.initialState(k, respect), true
	steps, all := btoi(len(w.joinedPreferences) > 0), w.preferences()
	for more {
		out = append(out, x.level(k, w))
		out[len(out)-1].dropped = all - w.preferences()
		w, more = w.relax(x.softTaints)
	}
	if len(out)-steps == len(k.node.Required) {
		return out
	}
	// The alternatives of required node affinity were dropped first, with all preferences in place. Once the
	// preferences are gone, each alternative is tried again, in order.
	last := len(out) - 1
	again := make([]*Level, 0, len(k.node.Required))
	for i := 0; i < len(k.node.Required)-1; i++ {
		w.required = k.node.Required[i : i+1]
		again = append(again, x.level(k, w))
		again[i].dropped = out[last].dropped
	}
	return slices.Insert(out, last, again...)
}

func (x *Compiler) level(k *Constraints, w relaxationState) *Level {
	level := &Level{strict: k.node.Selector, tolerations: k.tolerations}
	if len(w.required) > 0 {
		level.strict = level.strict.Intersect(w.required[0])
	}
	level.internedStrict = x.pools.Intern(level.strict)
	level.full, level.internedFull = level.strict, level.internedStrict
	if len(w.preferred) > 0 {
		level.full = level.full.Intersect(w.preferred[0])
		level.internedFull = x.pools.Intern(level.full)
	}
	if w.toleratesSoftTaints {
		level.tolerations = append(slices.Clone(level.tolerations), corev1.Toleration{
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule,
		})
	}
	for _, t := range x.pools.All() {
		if _, blocked := snapshot.Untolerated(level.tolerations, t.Taints()); blocked || x.support.OnNew(t.Pool().Name, k.needs) != nil {
			level.blocked.Add(t.Index())
		}
	}
	*x.steps += 1 + len(w.spread) + len(w.affinity) + len(w.anti) + len(w.hard) + len(w.joinedPreferences)
	level.groups = slices.Concat(w.spread, w.affinity, w.anti, w.hard, w.joinedPreferences)
	return level
}

// Blocked are the templates with a taint that is not tolerated, or with nodes that lack what the pods need of them, by index.
func (r *Level) Blocked() resources.Bitset { return r.blocked }

// Dropped returns how many preferences the level drops. Alternatives of required node affinity are none.
func (r *Level) Dropped() int { return r.dropped }

// Full returns what is required, with the heaviest preference that is left.
func (r *Level) Full() requirement.Set { return r.full }

// Groups are the topology constraints of the level.
func (r *Level) Groups() []*topology.Group { return r.groups }

// InternedFull is Full, interned.
func (r *Level) InternedFull() requirement.Interned { return r.internedFull }

// InternedStrict returns what is required without preferences, interned.
func (r *Level) InternedStrict() requirement.Interned { return r.internedStrict }

// Tolerations returns those of the level.
func (r *Level) Tolerations() []corev1.Toleration { return r.tolerations }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
