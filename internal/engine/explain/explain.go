// Package explain finds out why pods get no node, and states it so that a person can act on it.
//
// It queries the search one question: does a new node of this pool take the pod if these rules do not count (Search.Try)?
// It waives the rule by which the search refuses, until the pod fits. The waived rules are the obstacles. Those that are
// not needed once the others are waived are dropped, so that each Reason names a rule that must change. Cost: one attempt
// per obstacle, and one per suspect where a rule has several (maxObstacles, maxSuspects); only for pods that are left.
package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/support"
)

// Bounds of an explanation. Eight are more than a message can show; the search over them costs one probe each.
const (
	// maxAlternatives limits how many combinations of node affinity terms and volume topologies are explained.
	maxAlternatives = 8
	// maxObstacles limits how many obstacles are named per pool.
	maxObstacles = 8
	// maxSuspects limits how many labels or topology constraints are tried one by one to find the obstacle.
	maxSuspects = 64
)

// firstSuspects are the first maxSuspects of a list.
func firstSuspects[T any](list []T) []T { return list[:min(len(list), maxSuspects)] }

// Explainer finds out why pods get no new node. It waives one rule after the other and lets the search try again, until
// the pod fits. The waived rules are the reasons, and where the pod fits then is the nearest miss. The decision is the
// search's own, so every reason is true of the search.
//
// An Explainer lives from the end of a search, when its state is final, to the reasons for all pods that are left.
type Explainer struct {
	s       *snapshot.Snapshot
	pools   *nodepool.Models
	axes    resources.Axes // of Pods.Requests
	support *support.Index
	// templates are the templates of pools without some of their rules, by template and waiver.
	templates map[string]*nodepool.Template
}

// New returns an Explainer for a plan of the snapshot with these models of its pools.
func New(s *snapshot.Snapshot, pools *nodepool.Models, axes resources.Axes) *Explainer {
	return &Explainer{s: s, pools: pools, axes: axes, support: support.NewIndex(s), templates: map[string]*nodepool.Template{}}
}

// Pods are pods that are left, with equal requirements and equal requests.
type Pods struct {
	Pod *corev1.Pod // one of them
	// Selection holds what the pods require of node labels.
	Selection requirement.Pod
	// Volumes are the alternatives that the pods' volumes leave, one of which must hold; never empty.
	Volumes     []requirement.Interned
	Tolerations []corev1.Toleration
	// Needs holds what they need of the kubelet and of CSI drivers.
	Needs support.Needs
	// Requests are over the axes of the plan; ResourceList has them as they are written.
	Requests     resources.Vec
	ResourceList corev1.ResourceList
	// UnknownResources are requested resources that nothing has, if these have no axis, sorted.
	UnknownResources []corev1.ResourceName
	Ports            []resources.HostPort
	DeviceClaims     []string // names of resource claims
	Search           Search
}

// Search describes what an explanation queries the search about some pods. No answer changes the plan.
type Search interface {
	// Try opens a new node for one of the pods, after all others are scheduled. It returns where, or the rule by which the
	// search refuses; the Code is empty if it takes the pod.
	Try(a Attempt) (*rejection.Nearest, rejection.Code)
	// Constraints are the topology constraints of the pods, their own and those of other pods that keep away from them.
	Constraints() []Constraint
	// FindDevices is the reason why no node of the candidates has devices for the pods; nil if some node has.
	FindDevices(on *nodepool.Candidates) error
	// VolumeClaim names a volume claim of the pods that requires something of the label; empty if there is none.
	VolumeClaim(label string) string
}

// fits is the answer of a search that takes the pod.
const fits rejection.Code = ""

// Attempt is a new node, and the rules that the search waives for it.
type Attempt struct {
	// Template is the pool's, without the rules of the pool that are waived.
	Template *nodepool.Template
	// Required holds what the pod requires of labels, Volume what its volumes do.
	Required, Volume requirement.Set
	// AnyTaints and AnyPorts waive taints of the pool, and conflicts of host ports with daemons.
	AnyTaints, AnyPorts bool
	// AllDomains counts every domain that the template's nodes could be in as one of the cluster's; NewDomains does so for
	// these labels alone.
	AllDomains bool
	NewDomains []string
	// Waived are topology constraints that do not count.
	Waived []Constraint
}

// Constraint is a topology constraint, of the pod itself or of other pods that keep away from it. The values for one
// pod are comparable: equal ones are the same constraint.
type Constraint interface {
	// Key is the label with values that are the domains.
	Key() string
	// Describe is the constraint, how its pods are distributed, and which domains that leaves. It names the DaemonSets on new nodes of
	// the template that matter to it.
	Describe(on *nodepool.Template) rejection.Constraint
	// Spreads reports whether it is topology spread, KeepsApart whether it is anti-affinity, the pod's own or another's.
	Spreads() bool
	KeepsApart() bool
	// Selector is the label selector of the pods that count, as text.
	Selector() string
	// Domains returns those that a node with these requirements could be in.
	Domains(node requirement.Set) []string
}

// Reasons are, for each pool, why it cannot launch a node for the pods, after all other pods are scheduled.
func (e *Explainer) Reasons(p *Pods) []rejection.Reason {
	if len(e.pools.All()) == 0 {
		return []rejection.Reason{{Code: rejection.NoPools}}
	}
	if why, found := e.contradiction(p); found {
		return []rejection.Reason{why}
	}
	if n := len(p.UnknownResources); n > 0 {
		q := p.ResourceList[p.UnknownResources[0]]
		first := rejection.Amount{Resource: string(p.UnknownResources[0]), Needs: q.String()}
		return []rejection.Reason{{Code: rejection.Resources, Rule: &rejection.Rule{Sizes: &rejection.Sizes{
			TooLarge: []rejection.Size{{Amount: first, Cause: rejection.NowhereKnown}}, OtherUnknown: n - 1,
		}}}}
	}
	var out []rejection.Reason
	for _, t := range e.pools.All() {
		if t.Unusable().Code != "" {
			out = append(out, e.describeUnusable(t))
			continue
		}
		var best *diagnosis
		for _, q := range e.cases(t, p) {
			if a := e.diagnose(q); best == nil || a.closer(best) {
				best = &a
			}
		}
		if len(best.obstacles) == 0 {
			// The last placements removed the obstacle, and this plan did not try again; the next one will.
			best.nearest, best.obstacles = nil, []obstacle{{code: rejection.Topology}}
		}
		out = append(out, best.reasons(t.Pool().Name)...)
	}
	return out
}

// probe lets the search try the case under a waiver.
func (e *Explainer) probe(q *nodeCase, l waiver) (*rejection.Nearest, rejection.Code) {
	t := e.template(q.template, l)
	if t.Unusable().Code != "" {
		return nil, t.Unusable().Code
	}
	a := Attempt{
		Template: t, Required: q.required.Without(l.pod...), AnyTaints: l.taints, AnyPorts: l.ports,
		AllDomains: l.limits, NewDomains: l.pool, Waived: l.constraints,
	}
	if !l.volume {
		a.Volume = q.volume
	}
	return q.pods.Search.Try(a)
}

// labels are the cluster's rules about labels.
func (e *Explainer) labels() requirement.Labels { return e.s.Labels }

// comesWithTypes reports whether instance types define a label.
func (e *Explainer) comesWithTypes(key string) bool {
	return e.anyType(func(it *catalog.InstanceType) bool { return it.Requirements.Defines(key) })
}

// unknownValue reports whether a requirement is on a label that instance types define, but that none of them satisfies.
func (e *Explainer) unknownValue(r requirement.Requirement) bool {
	return !r.AllowsAbsent() && e.comesWithTypes(r.Key()) && !e.anyType(func(it *catalog.InstanceType) bool {
		return it.Requirements.Defines(r.Key()) && it.Requirements.Get(r.Key()).Overlaps(r)
	})
}

func (e *Explainer) anyType(is func(*catalog.InstanceType) bool) bool {
	return slices.ContainsFunc(e.s.Pools, func(p snapshot.Pool) bool { return slices.ContainsFunc(p.InstanceTypes, is) })
}
