package schedule

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// kind is pods that differ in nothing the scheduler minds but the amounts that they request.
type constraintClass struct {
	pod   *corev1.Pod // one of them
	node  requirement.Pod
	ports []hostPort
	// portsByNumber are the ports by number, where there are many.
	portsByNumber map[int32][]hostPort
	// tolerations are the pod's, as far as they make a difference.
	tolerations []corev1.Toleration
	// complex pods have so many terms that what planning them costs is bounded: see kind.intricate.
	manyTerms bool
	// volumes are the alternatives that the pod's volumes leave, one of which must hold; never empty.
	volumes []internedSet
	// devices are the resource claims; none while devices are not planned.
	devices []snapshot.DeviceClaim
	// exclusive are the claims that no other pod can use at the same time.
	exclusive []types.NamespacedName
	// attached are the volumes that count against a node's attach limits.
	attached []attachment
	// shapes are what the pods want, with one preference less in each; the first that can be met counts.
	levels []*relaxationLevel
	// client is who buys for the pods: see market.
	demand *demandClass
	// heaviest are the candidates in the heaviest pool that takes the pods.
	heaviestPool *candidates
	// appraised is the last run that found out both.
	pricedRun int
	// refused says why the pods cannot be considered at all.
	invalid []Reason
	// contradictory tells that nothing can be all that the pods ask for.
	contradictory  bool
	read, compiled bool
	// runs tells that some of the pods are on nodes, or promised to some, where they keep others away.
	running bool

	// matches are the groups that count the pods, declares the inverse ones they own, blockedBy the
	// inverse ones that keep them out.
	matches, declares, blockedBy []*group
}

// class is a set of pods that the scheduler cannot tell apart.
type class struct {
	*constraintClass
	packingClass *packingClass
	resourceList corev1.ResourceList
	requests     vec
	shared       []attachment // volumes that other pods use, too, and that count against limits
	amounts      vec64        // requests as floating-point numbers
	count        int          // still to be placed
	members      int          // of it, in the snapshot
	// pods in the order of the queue; those before next have been placed.
	pods    []*queuedPod
	nextPod int
	// tries are what is known of placing pods of the class, by shape.
	attempts []attemptCache
	// weight is what a pod is worth, in $/h, to what is left of the queue; bound, to all of it.
	value, boundValue float64
	bucket            int // of the market; -1 if nobody sells what it needs
	// oversized tells that one pod is larger than any room, on nodes that exist or of types that could be launched.
	oversized bool
	// lacking are resources that the pods request and that nothing has, where these are not planned as axes.
	unknownResources []corev1.ResourceName
	// waits tells that the pods buy nodes last: see market.dearer.
	deferred bool
	norm     float64 // how large a pod is, as the market counts
	// run is the last run that has pods of the class; joined is how many of them are on nodes that exist.
	run, onExisting int
	// failedAt is the solver's generation in which placing a pod of the class failed last.
	failedAt int
}

// shape is what a pod asks of a node at one step of giving up preferences.
type relaxationLevel struct {
	// strict is what the pod insists on, full has its heaviest preference besides.
	strict, full                 requirement.Set
	internedStrict, internedFull internedSet // on strict, for full
	tolerations                  []corev1.Toleration
	// blocked are the templates with a taint that is not tolerated.
	blocked bitset
	// groups are the topology constraints that the shape respects.
	groups []*group
	// views are the groups as the pods see them; made when first asked for.
	views []view
}

// try is what is known of placing pods of one class in one shape, whatever else happens in this Solve.
type attemptCache struct {
	// nodes and bins are those that may still take a pod, in their order. Of bins, those from seenBins on are
	// not looked at yet.
	nodes       []*node
	nodesListed bool
	bins        []*bin
	seenBins    int
	closedBins  bitset // take none, even when pressed
	noNewBin    bool   // no template makes a node for it
}

// wants is what a pod still asks for while it is being relaxed.
type relaxationState struct {
	required  []requirement.Set
	preferred []requirement.Set
	terms
	// soft tells that taints of effect PreferNoSchedule are tolerated.
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

// relax gives up one thing, the one that is missed least, and returns false when nothing is left to give up.
// What is hard stays, but for the choice between alternatives of required node affinity.
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

// compileLevels works out the kind's shapes, or says why its pods are too much to plan. Kinds of many terms share a bound on how
// many groups they add: beyond it their preferences do not count, and those that require so much are not planned.
func (sv *solver) compileLevels(k *constraintClass) []Reason {
	before, intricate := len(sv.groups), k.hasManyTerms()
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
		sv.manyTermGroups += len(sv.groups) - before
	}
	return nil
}

// shapes compiles what the pods want and each step of giving it up.
func (sv *solver) levels(k *constraintClass, respect bool) []*relaxationLevel {
	var out []*relaxationLevel
	w, more := sv.initialState(k, respect), true
	steps := btoi(len(w.joinedPreferences) > 0)
	for more {
		out = append(out, sv.level(k, w))
		w, more = w.relax(sv.softTaints)
	}
	if len(out)-steps == len(k.node.Required) {
		return out
	}
	// The alternatives of required node affinity went first, with all preferences still standing: once these are gone,
	// each is tried again, in its order.
	last := len(out) - 1
	again := make([]*relaxationLevel, 0, len(k.node.Required))
	for i := 0; i < len(k.node.Required)-1; i++ {
		w.required = k.node.Required[i : i+1]
		again = append(again, sv.level(k, w))
	}
	return slices.Insert(out, last, again...)
}

func (sv *solver) level(k *constraintClass, w relaxationState) *relaxationLevel {
	level := &relaxationLevel{strict: k.node.Selector, tolerations: k.tolerations}
	if len(w.required) > 0 {
		level.strict = level.strict.Intersect(w.required[0])
	}
	level.internedStrict = sv.internSet(level.strict)
	level.full, level.internedFull = level.strict, level.internedStrict
	if len(w.preferred) > 0 {
		level.full = level.full.Intersect(w.preferred[0])
		level.internedFull = sv.internSet(level.full)
	}
	if w.toleratesSoftTaints {
		level.tolerations = append(slices.Clone(level.tolerations), corev1.Toleration{
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule,
		})
	}
	for _, t := range sv.templates {
		if _, blocked := snapshot.Untolerated(level.tolerations, t.taints); blocked {
			level.blocked.add(t.index)
		}
	}
	sv.steps += 1 + len(w.spread) + len(w.affinity) + len(w.anti) + len(w.hard) + len(w.joinedPreferences)
	level.groups = slices.Concat(w.spread, w.affinity, w.anti, w.hard, w.joinedPreferences)
	return level
}

func requiredAnti(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// validate returns what in the pod's spec keeps it from being considered at all.
func (sv *solver) validate(pod *corev1.Pod) (requirement.Pod, []Reason) {
	node, err := sv.s.Labels.FromPod(&pod.Spec)
	if err != nil {
		return node, []Reason{{Code: InvalidPod, Message: err.Error()}}
	}
	if node.Required != nil && len(node.Required) == 0 {
		return node, []Reason{{Code: InvalidPod, Message: "required node affinity has only empty terms, which no node matches"}}
	}
	effective := relaxationState{required: node.Required, preferred: node.Preferred}
	if nodePool := effectiveRequirements(node, effective).Get(karpv1.LabelNodePool); nodePool.Operator() == corev1.NodeSelectorOpDoesNotExist && !nodePool.Impossible() {
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

// queueOrder puts big pods first, so that small ones fill what they leave; then the oldest.
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

// queued is a pod waiting for a place.
type queuedPod struct {
	pod         *corev1.Pod
	class       *class
	cpu, memory int64
	placed      bool
}
