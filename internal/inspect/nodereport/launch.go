package nodereport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Launch states why a node was launched as what it is, by the prices of today.
type Launch struct {
	// Reason is a sentence.
	Reason string `json:"reason"`
	// Pods are the pods that it was launched for and that still exist, Gone is how many do not.
	Pods []string `json:"pods"`
	Gone int      `json:"gone"`
	// Replaces are the NodeClaims that it was launched to replace.
	Replaces []string `json:"replaces"`
	// Requests holds what its pods requested then, with daemon pods; Types is how many instance types it could become.
	Requests string `json:"requests"`
	Types    int    `json:"types"`
	// Alternatives are the cheapest offerings on which the engine would put the pods that are here now, all on one node.
	Alternatives []NewNode `json:"alternatives"`
	// Split counts how many new nodes would hold the pods for least; 1 if one is cheapest, 0 if it is not known.
	Split int `json:"split"`
	// Excluded are the most expensive of the types that cost less, and the rule by which they are excluded; Rules counts all.
	Excluded []Excluded `json:"excluded"`
	Rules    []Rule     `json:"rules"`
}

// Excluded is a type that costs less than the node, and why it cannot stand in for it.
type Excluded struct {
	InstanceType string `json:"instanceType"`
	// HourlyCost of its cheapest offering, in $/h.
	HourlyCost float64 `json:"hourlyCost"`
	Rule       string  `json:"rule"`
}

// Rule counts how many cheaper types a rule excludes.
type Rule struct {
	Rule  string `json:"rule"`
	Types int    `json:"types"`
}

// listed sets how many alternatives and excluded types a report lists.
const listed = 5

// launch returns what is known of the launch.
func (b *builder) launch() *Launch {
	out := &Launch{Replaces: slices.Clone(b.claim.Replaces()), Alternatives: []NewNode{}, Excluded: []Excluded{}, Rules: []Rule{}}
	if out.Replaces == nil {
		out.Replaces = []string{}
	}
	out.Pods, out.Gone = nominatedNames(b.Pods, b.claim.Nominated(karpv1.AnnotationNominatedPods))
	for _, r := range b.claim.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable {
			out.Types = len(r.Values)
		}
	}
	out.Requests = amounts(b.claim.Spec.Resources.Requests)
	reason := b.claim.Annotations[karpv1.AnnotationLaunchReason]
	switch {
	case len(out.Replaces) > 0:
		out.Reason = fmt.Sprintf("launched to replace %s (%s)", wording.List(out.Replaces), cmp.Or(reason, "reason not recorded"))
	case len(out.Pods)+out.Gone > 0:
		out.Reason = "launched for " + report.Plural(len(out.Pods)+out.Gone, "pod")
	case b.pool != nil && b.pool.Spec.Replicas != nil:
		out.Reason = "launched as one of the replicas of NodePool " + b.pool.Name
	default:
		out.Reason = "launched for pods that the NodeClaim does not name"
	}
	return out
}

// amounts prints the main resources of a list.
func amounts(list corev1.ResourceList) string {
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := list[name]; ok {
			parts = append(parts, fmt.Sprintf("%s %s", q.String(), name))
		}
	}
	if q, ok := list[corev1.ResourcePods]; ok {
		parts = append(parts, report.Plural(int(q.Value()), "pod"))
	}
	return strings.Join(parts, ", ")
}

// alternatives queries the engine what it would launch for the pods of the node alone, and looks up what excludes the
// cheaper types.
func (b *builder) alternatives(r *Report) {
	if b.unprotected == nil || len(r.Removal.Pods) == 0 || r.Launch == nil {
		return
	}
	pods := slices.DeleteFunc(slices.Clone(b.unprotected.Nodes[b.index].Pods), func(p *corev1.Pod) bool { return !snapshot.Reschedulable(p) })
	if len(pods) == 0 {
		return
	}
	plan := b.freed.Simulate(schedule.Simulation{
		Removed: []int{b.index}, Pods: pods, Targets: []int{}, Alone: true, Budget: schedule.DefaultBudget(),
	})
	allowed := map[string]bool{}
	if len(plan.Rejected) == 0 && len(plan.Launches) > 0 {
		r.Launch.Split = len(plan.Launches)
	}
	if r.Launch.Split == 1 {
		l := &plan.Launches[0]
		for _, it := range l.InstanceTypes {
			allowed[it.Name] = true
			if o, ok := it.Cheapest(l.Requirements); ok && len(r.Launch.Alternatives) < listed {
				r.Launch.Alternatives = append(r.Launch.Alternatives, NewNode{it.Name, o.Zone, o.CapacityType, l.Pool.Name, o.Price})
			}
		}
	}
	b.excluded(r.Launch, pods, allowed)
}

// excluded finds for each type that costs less than the node the first rule that excludes it.
func (b *builder) excluded(out *Launch, pods []*corev1.Pod, allowed map[string]bool) {
	at := slices.IndexFunc(b.Snapshot.Pools, func(p snapshot.Pool) bool { return p.NodePool == b.pool })
	own := b.price()
	if at < 0 || own == 0 {
		return
	}
	rules := newRules(b, &b.Snapshot.Pools[at], pods)
	counts := map[string]int{}
	for _, it := range b.Snapshot.Pools[at].InstanceTypes {
		price, ok := rules.cheapest(it)
		if !ok || price >= own || allowed[it.Name] || it.Name == b.n.Labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		rule, kind := rules.first(it, own)
		if rule == "" {
			continue
		}
		out.Excluded = append(out.Excluded, Excluded{it.Name, price, rule})
		counts[kind]++
	}
	slices.SortFunc(out.Excluded, func(x, y Excluded) int {
		return cmp.Or(cmp.Compare(y.HourlyCost, x.HourlyCost), cmp.Compare(x.InstanceType, y.InstanceType))
	})
	out.Excluded = out.Excluded[:min(listed, len(out.Excluded))] // the nearest in price
	for rule, n := range counts {
		out.Rules = append(out.Rules, Rule{rule, n})
	}
	slices.SortFunc(out.Rules, func(x, y Rule) int { return cmp.Or(cmp.Compare(y.Types, x.Types), cmp.Compare(x.Rule, y.Rule)) })
}

// cheapest is the lowest price of a type, available or not: where the pool and the pods admit it, else anywhere.
func (r *rules) cheapest(it *catalog.InstanceType) (float64, bool) {
	admitted, best := math.Inf(1), math.Inf(1)
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if !(o.Price > 0) { // not known
			continue
		}
		best = min(best, o.Price)
		if r.all.Overlaps(o.Requirements) {
			admitted = min(admitted, o.Price)
		}
	}
	if !math.IsInf(admitted, 1) {
		best = admitted
	}
	return best, !math.IsInf(best, 1)
}

// rules describes what a type must satisfy to stand in for a node.
type rules struct {
	pool     string
	poolReqs requirement.Set
	pods     []podRule
	all      requirement.Set
	requests corev1.ResourceList
}

type podRule struct {
	name string
	requirement.Pod
}

func newRules(b *builder, pool *snapshot.Pool, pods []*corev1.Pod) *rules {
	out := &rules{pool: pool.NodePool.Name, requests: corev1.ResourceList{}}
	out.poolReqs, _ = b.Snapshot.Labels.FromPool(pool.NodePool, pool.NodeClassLabel) // an invalid pool launches nothing
	out.all = out.poolReqs
	for _, p := range pods {
		if of, err := b.Snapshot.NodeSelection(&p.Spec); err == nil {
			out.pods = append(out.pods, podRule{podName(p), of})
			out.all = out.all.Intersect(of.Selector)
		}
	}
	for _, p := range b.n.Pods {
		if !snapshot.Active(p) {
			continue
		}
		for name, q := range snapshot.Requests(p) {
			sum := out.requests[name]
			sum.Add(q)
			out.requests[name] = sum
		}
	}
	return out
}

// first is the first rule that excludes a type, in words, and the kind of it that is counted; both are empty if the type
// would not be cheaper where it is allowed.
func (r *rules) first(it *catalog.InstanceType, own float64) (rule, kind string) {
	if q, ok := excludes(r.poolReqs, it); ok {
		text := fmt.Sprintf("NodePool %s requires %s", r.pool, wording.Requirement(q))
		return text, text
	}
	for i := range r.pods {
		if q, ok := r.pods[i].excludes(it); ok {
			return fmt.Sprintf("pod %s requires %s", r.pods[i].name, wording.Requirement(q)), "pods require " + wording.Requirement(q)
		}
	}
	usual := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}
	for _, name := range append(usual, slices.Sorted(maps.Keys(r.requests))...) { // the others are devices, mostly
		if q, have := r.requests[name], it.Allocatable[name]; q.Cmp(have) > 0 {
			return fmt.Sprintf("the pods here request %s %s, it has %s", q.String(), name, have.String()), fmt.Sprintf("too little %s", name)
		}
	}
	if o, ok := it.Cheapest(r.all); ok {
		if o.Price >= own {
			return "", "" // only cheaper where it may not run
		}
		const text = "a rule between pods, or of their volumes or ports"
		return text, text
	}
	return r.unavailable(it), "not available where it is allowed"
}

// unavailable returns why none of the offerings that are admitted can be launched now.
func (r *rules) unavailable(it *catalog.InstanceType) string {
	why := map[string]bool{}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if r.all.Overlaps(o.Requirements) && !o.Available {
			why[fmt.Sprintf("%s in %s: %s", o.CapacityType, o.Zone, cmp.Or(o.UnavailableMessage, "not available"))] = true
		}
	}
	if len(why) == 0 {
		return "not offered in the zones and capacity types that pool and pods allow"
	}
	list := make([]string, 0, len(why))
	for text := range why {
		list = append(list, text)
	}
	slices.Sort(list)
	return wording.List(list)
}

// excludes is a requirement that no node of the type meets.
func excludes(reqs requirement.Set, it *catalog.InstanceType) (requirement.Requirement, bool) {
	for _, q := range reqs.All() {
		if it.Requirements.Defines(q.Key()) && !it.Requirements.Get(q.Key()).Overlaps(q) {
			return q, true
		}
	}
	return requirement.Requirement{}, false
}

// excludes is a requirement of the pod that no node of the type meets: of its node selector, or of all terms of its
// affinity.
func (p *podRule) excludes(it *catalog.InstanceType) (requirement.Requirement, bool) {
	if q, ok := excludes(p.Selector, it); ok || len(p.Required) == 0 {
		return q, ok
	}
	var last requirement.Requirement
	for _, term := range p.Required {
		q, ok := excludes(term, it)
		if !ok {
			return q, false
		}
		last = q
	}
	return last, true
}
