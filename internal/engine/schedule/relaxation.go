package schedule

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// constraintClass is an equivalence class of pods with equal scheduling constraints, whatever they request.
type constraintClass struct {
	pod   *corev1.Pod // one of them
	node  requirement.Pod
	ports resources.PortSet
	// tolerations are the pod's, as far as any taint needs them.
	tolerations []corev1.Toleration
	// manyTerms is true for pods with so many terms that planning them is bounded: see hasManyTerms.
	manyTerms bool
	// volumes are the alternatives that the pod's volumes leave, one of which must hold; never empty.
	volumes []requirement.Interned
	// devices are the resource claims; none while devices are not planned.
	devices []snapshot.DeviceClaim
	// exclusive are the volume claims that no other pod can use at the same time.
	exclusive []types.NamespacedName
	// attached are the volumes that count against a node's attach limits.
	attached []volume.Attachment
	// levels are the relaxation levels: each drops one preference more. The first that can be met counts.
	levels []*relaxationLevel
	// market is the number of the last market with such pods, usable their number there.
	market, usable int
	// invalid are the reasons why the pods cannot be considered at all.
	invalid []Reason
	// contradictory is true when no node can meet all requirements of the pods.
	contradictory  bool
	read, compiled bool
	// running is true when some of the pods are on nodes or nominated, where they keep others away.
	running bool

	// matches are the groups that count the pods, declares the inverse groups of their own anti-affinity, blockedBy the
	// inverse groups that keep them out.
	matches, declares, blockedBy []*topology.Group
	// zones are the constraint classes of pods that run in one zone instead of spreading over zones: see inZone.
	zones map[string]*constraintClass
}

// class is an equivalence class of pods: equal constraints and equal requests.
type class struct {
	*constraintClass
	packingClass *packingClass
	resourceList corev1.ResourceList
	requests     resources.Vec
	shared       []volume.Attachment // volumes with attach limits that other pods use too
	amounts      vec64               // requests as floating-point numbers
	count        int                 // pods left
	members      int                 // pods in the snapshot
	// pods in queue order; those before nextPod are scheduled.
	pods    []*queuedPod
	nextPod int
	// attempts are the attempt caches, by relaxation level.
	attempts []attemptCache
	// value is what a pod is worth at the dual prices for the rest of the queue, boundValue at those of the lower
	// bound, in $/h.
	value, boundValue float64
	lpPods            int // number of the pods in the market; -1 if they are not in it
	boundPods         int // the same in the market of the lower bound
	boundIndex        int // among the pods of the lower bound
	// oversized is true when a pod is larger than any room, on existing nodes and on instance types.
	oversized bool
	// unknownResources are requested resources that nothing has, if these have no axis.
	unknownResources []corev1.ResourceName
	// deferred classes launch nodes last: see price.Market.DearerInHeaviestPool.
	deferred bool
	// run is the last run with pods of the class; onExisting is how many of them are on existing nodes.
	run, onExisting int
	// failedAt is the solver's generation of the last failed attempt.
	failedAt int
	// whole is the class that this one is a part of: its pods in one zone. See zoneDivision.
	whole *class
}

// relaxationLevel is what a pod requires of a node after some of its preferences have been dropped.
type relaxationLevel struct {
	// strict is required; full adds the heaviest preference that is left.
	strict, full                 requirement.Set
	internedStrict, internedFull requirement.Interned // of strict and of full
	tolerations                  []corev1.Toleration
	// blocked are the templates with a taint that is not tolerated.
	blocked resources.Bitset
	// dropped is how many preferences this level drops. Alternatives of required node affinity are none.
	dropped int
	// groups are the topology constraints at this level.
	groups []*topology.Group
	// launchable is whether any template has the labels of the level: see launchableAt.
	launchable answer
	// views are the groups from the perspective of the pods; made on first use.
	views  []topology.View
	sorted topology.SortedViews
}

// attemptCache is what is known of placing pods of a class at one relaxation level, for the rest of the run.
//
// Invariant: a node that is not listed can never again take a pod of the class.
type attemptCache struct {
	// nodes are those that may still take a pod, in order.
	nodes       []*node
	nodesListed bool
	bins        binList
	byPods      []*bin // the same in the order of placeInLeastPods
	// aboveCeiling is bins for those that a pod may also raise above their ceiling.
	aboveCeiling binList
	noNewBin     bool // no template makes a node for it
	placed       int  // pods of the run that are placed at the level
}

// relaxationState is what a pod still requires and prefers while it is being relaxed.
type relaxationState struct {
	required  []requirement.Set
	preferred []requirement.Set
	terms
	// toleratesSoftTaints is true when taints with effect PreferNoSchedule are tolerated.
	toleratesSoftTaints bool
}

func (sv *solver) initialState(k *constraintClass, respect bool) relaxationState {
	w := relaxationState{required: k.node.Required, terms: sv.terms(k.pod, k.node, respect)}
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

// compileLevels compiles the relaxation levels, or returns why the pods are too complex to plan. Classes with many
// terms share a bound on the groups that they add. Beyond it their preferences do not count, and pods that require so
// much are not planned.
func (sv *solver) compileLevels(k *constraintClass) []Reason {
	before, intricate := len(sv.topology.Groups()), k.hasManyTerms()
	if intricate && sv.manyTermGroups >= maxManyTermGroups {
		if max(len(requiredAffinity(k.pod)), hardSpreads(k.pod)) > fewTerms {
			return []Reason{{Code: TooComplex, Message: fmt.Sprintf(
				"pods of more than %d terms each have more than %d different topology terms, and this pod's are not planned; use fewer terms",
				fewTerms, maxManyTermGroups,
			)}}
		}
		k.levels = sv.levels(k, false)
	} else {
		k.levels = sv.levels(k, sv.respectPreferences)
	}
	if k.manyTerms = intricate; intricate {
		sv.manyTermGroups += len(sv.topology.Groups()) - before
	}
	return nil
}

// levels compiles what the pods prefer and each step of dropping it.
func (sv *solver) levels(k *constraintClass, respect bool) []*relaxationLevel {
	var out []*relaxationLevel
	w, more := sv.initialState(k, respect), true
	steps, all := btoi(len(w.joinedPreferences) > 0), w.preferences()
	for more {
		out = append(out, sv.level(k, w))
		out[len(out)-1].dropped = all - w.preferences()
		w, more = w.relax(sv.softTaints)
	}
	if len(out)-steps == len(k.node.Required) {
		return out
	}
	// The alternatives of required node affinity were dropped first, with all preferences in place. Once the
	// preferences are gone, each alternative is tried again, in order.
	last := len(out) - 1
	again := make([]*relaxationLevel, 0, len(k.node.Required))
	for i := 0; i < len(k.node.Required)-1; i++ {
		w.required = k.node.Required[i : i+1]
		again = append(again, sv.level(k, w))
		again[i].dropped = out[last].dropped
	}
	return slices.Insert(out, last, again...)
}

func (sv *solver) level(k *constraintClass, w relaxationState) *relaxationLevel {
	level := &relaxationLevel{strict: k.node.Selector, tolerations: k.tolerations}
	if len(w.required) > 0 {
		level.strict = level.strict.Intersect(w.required[0])
	}
	level.internedStrict = sv.pools.Intern(level.strict)
	level.full, level.internedFull = level.strict, level.internedStrict
	if len(w.preferred) > 0 {
		level.full = level.full.Intersect(w.preferred[0])
		level.internedFull = sv.pools.Intern(level.full)
	}
	if w.toleratesSoftTaints {
		level.tolerations = append(slices.Clone(level.tolerations), corev1.Toleration{
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule,
		})
	}
	for _, t := range sv.pools.All() {
		if _, blocked := snapshot.Untolerated(level.tolerations, t.Taints()); blocked {
			level.blocked.Add(t.Index())
		}
	}
	sv.steps += 1 + len(w.spread) + len(w.affinity) + len(w.anti) + len(w.hard) + len(w.joinedPreferences)
	level.groups = slices.Concat(w.spread, w.affinity, w.anti, w.hard, w.joinedPreferences)
	return level
}

// validate parses the node selection of the pod, or returns why the pod cannot be considered.
func (sv *solver) validate(pod *corev1.Pod) (requirement.Pod, []Reason) {
	node, err := sv.s.Labels.FromPod(&pod.Spec)
	if err != nil {
		return node, []Reason{{Code: InvalidPod, Message: err.Error()}}
	}
	if node.Required != nil && len(node.Required) == 0 {
		return node, []Reason{{Code: InvalidPod, Message: "required node affinity has only empty terms, which no node matches"}}
	}
	effective := relaxationState{required: node.Required, preferred: node.Preferred}
	if nodePool := effectiveRequirements(node,
		effective).Get(karpv1.LabelNodePool); nodePool.Operator() == corev1.NodeSelectorOpDoesNotExist &&
		!nodePool.Impossible() {
		return node, []Reason{{Code: NotManaged, Message: "the pod requires nodes that belong to no NodePool"}}
	}
	var reasons []Reason
	for _, set := range append([]requirement.Set{node.Selector}, node.Required...) {
		for _, r := range set.All() {
			if why := sv.invalidRequirement(r); why != "" {
				reasons = append(reasons, Reason{Code: InvalidPod, Message: why})
			}
		}
	}
	node.Required = node.Required[:min(len(node.Required), MaxAlternatives)]
	return node, slices.Compact(reasons)
}

func effectiveRequirements(node requirement.Pod, w relaxationState) requirement.Set {
	set := node.Selector
	if len(w.required) > 0 {
		set = set.Intersect(w.required[0])
	}
	if len(w.preferred) > 0 {
		set = set.Intersect(w.preferred[0])
	}
	return set
}

func (sv *solver) invalidRequirement(r requirement.Requirement) string {
	if sv.s.Labels.IsRestricted(r.Key()) {
		return fmt.Sprintf("the pod selects by label %q, which is reserved", r.Key())
	}
	known := sv.s.Labels.KnownValues[r.Key()]
	if len(known) > 0 && r.Operator() == corev1.NodeSelectorOpIn && !slices.ContainsFunc(known, r.Has) {
		return fmt.Sprintf("the pod requires %s, but that label is always one of %v", r, known)
	}
	return ""
}

// queueOrder puts large pods first, so that small ones fill what they leave, then the oldest. This is the order of
// first fit decreasing; it is total, so plans do not depend on the order of the snapshot.
func queueOrder(a, b *queuedPod) int {
	if a.cpu != b.cpu {
		return cmp.Compare(b.cpu, a.cpu)
	}
	if a.memory != b.memory {
		return cmp.Compare(b.memory, a.memory)
	}
	if older := a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time); older != 0 {
		return older
	}
	if a.pod.UID != b.pod.UID {
		return cmp.Compare(a.pod.UID, b.pod.UID)
	}
	return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
}

// queuedPod is a pod in the queue.
type queuedPod struct {
	pod         *corev1.Pod
	class       *class
	cpu, memory int64
	placed      bool
}
