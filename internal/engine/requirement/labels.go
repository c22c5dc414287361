package requirement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Labels is what label keys mean in this cluster. It is data: core Kubernetes, the node pool API and the
// cloud each contribute, and whoever builds a snapshot joins them.
type Labels struct {
	// WellKnown keys need no definition in a pool: instance types and offerings supply their values.
	WellKnown map[string]bool
	// Aliases maps an old or foreign key to the one that means the same.
	Aliases map[string]string
	// ValueAliases maps, per canonical key, one spelling of a value to another.
	ValueAliases map[string]map[string]string
	// RestrictedDomains are those whose keys users must not select by, sub-domains included, unless well-known.
	RestrictedDomains []string
	// KnownValues lists, per key, all the values that it can have at all.
	KnownValues map[string][]string
}

// CoreLabels are those every cluster has, whatever its cloud.
func CoreLabels() Labels {
	return Labels{
		WellKnown: map[string]bool{
			karpv1.LabelNodePool:           true,
			karpv1.LabelCapacityType:       true,
			corev1.LabelTopologyZone:       true,
			corev1.LabelTopologyRegion:     true,
			corev1.LabelInstanceTypeStable: true,
			corev1.LabelArchStable:         true,
			corev1.LabelOSStable:           true,
			corev1.LabelWindowsBuild:       true,
		},
		Aliases: map[string]string{
			corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
			corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
			"beta.kubernetes.io/arch":           corev1.LabelArchStable,
			"beta.kubernetes.io/os":             corev1.LabelOSStable,
			corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
		},
		RestrictedDomains: []string{karpv1.Group},
		KnownValues:       map[string][]string{karpv1.LabelCapacityType: {karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot}},
	}
}

// Join returns l with what o adds. Where both define an alias or known values, o's hold.
func (l Labels) Join(o Labels) Labels {
	return Labels{
		WellKnown:         joinMaps(l.WellKnown, o.WellKnown),
		Aliases:           joinMaps(l.Aliases, o.Aliases),
		ValueAliases:      joinMaps(l.ValueAliases, o.ValueAliases),
		RestrictedDomains: sortedUnique(slices.Concat(l.RestrictedDomains, o.RestrictedDomains)),
		KnownValues:       joinMaps(l.KnownValues, o.KnownValues),
	}
}

func joinMaps[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]V{}
	}
	maps.Copy(out, b)
	return out
}

// Key returns the canonical key for key.
func (l Labels) Key(key string) string {
	if k, ok := l.Aliases[key]; ok {
		return k
	}
	return key
}

// Parse builds the requirement that an API object spells as key, operator and values, under its canonical
// key and values. See New for what it refuses.
func (l Labels) Parse(key string, op corev1.NodeSelectorOperator, values ...string) (Requirement, error) {
	key = l.Key(key)
	if translate := l.ValueAliases[key]; len(translate) > 0 {
		values = slices.Clone(values)
		for i, v := range values {
			if canonical, ok := translate[v]; ok {
				values[i] = canonical
			}
		}
	}
	return New(key, op, values...)
}

// FromLabels reads labels of a node, or a pod's nodeSelector, each as "key In [value]".
func (l Labels) FromLabels(labels map[string]string) Set {
	reqs := make([]Requirement, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		key, v := l.Key(k), labels[k]
		if canonical, ok := l.ValueAliases[key][v]; ok {
			v = canonical
		}
		reqs = append(reqs, In(key, v))
	}
	return NewSet(reqs...)
}

// FromNode reads the labels of a node that exists. Where it carries a key and its alias with different
// values, the canonical key's value holds.
func (l Labels) FromNode(labels map[string]string) Set {
	canonical := make(map[string]string, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		key := l.Key(k)
		if _, shadowed := labels[key]; shadowed && key != k {
			continue
		}
		v := labels[k]
		if alias, ok := l.ValueAliases[key][v]; ok {
			v = alias
		}
		canonical[key] = v
	}
	return FromExactLabels(canonical)
}

// FromExpressions reads the conjunction of match expressions of a node selector term.
func (l Labels) FromExpressions(exprs []corev1.NodeSelectorRequirement) (Set, error) {
	reqs := make([]Requirement, 0, len(exprs))
	for _, e := range exprs {
		r, err := l.Parse(e.Key, e.Operator, e.Values...)
		if err != nil {
			return Set{}, err
		}
		reqs = append(reqs, r)
	}
	return NewSet(reqs...), nil
}

// FromTopologyTerm reads one of the alternatives of a storage class's allowed topologies.
func (l Labels) FromTopologyTerm(term corev1.TopologySelectorTerm) Set {
	reqs := make([]Requirement, 0, len(term.MatchLabelExpressions))
	for _, e := range term.MatchLabelExpressions {
		r, err := l.Parse(e.Key, corev1.NodeSelectorOpIn, e.Values...)
		if err != nil {
			r = DoesNotExist(l.Key(e.Key)) // no value allowed: nothing satisfies the term
		}
		reqs = append(reqs, r)
	}
	return NewSet(reqs...)
}

// Pod is what a pod requires of a node's labels, apart from topology and volumes.
type Pod struct {
	// Selector is the nodeSelector.
	Selector Set
	// Required are the alternatives of required node affinity, in their order; one of them must hold.
	// Nil when there is no required affinity; empty when there is but nothing can satisfy it.
	Required []Set
	// Preferred are the alternatives of preferred node affinity, heaviest first, in their order among equals.
	Preferred []Set
}

// FromPod reads nodeSelector and node affinity. A required term that matches on fields or cannot be parsed
// is an error; a preferred one is left out, as the scheduler leaves it out of its score.
func (l Labels) FromPod(pod *corev1.PodSpec) (Pod, error) {
	out := Pod{Selector: l.FromLabels(pod.NodeSelector)}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return out, nil
	}
	affinity := pod.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		out.Required = []Set{}
		for i, term := range required.NodeSelectorTerms {
			if len(term.MatchFields) > 0 {
				return Pod{}, fmt.Errorf("required node affinity term %d matches on fields, which only exist on a node", i)
			}
			if len(term.MatchExpressions) == 0 {
				continue // an empty term matches no node
			}
			s, err := l.FromExpressions(term.MatchExpressions)
			if err != nil {
				return Pod{}, fmt.Errorf("required node affinity term %d: %w", i, err)
			}
			out.Required = append(out.Required, s)
		}
	}
	preferred := slices.Clone(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	slices.SortStableFunc(preferred, func(a, b corev1.PreferredSchedulingTerm) int { return int(b.Weight) - int(a.Weight) })
	for _, term := range preferred {
		if len(term.Preference.MatchFields) > 0 {
			continue
		}
		if s, err := l.FromExpressions(term.Preference.MatchExpressions); err == nil {
			out.Preferred = append(out.Preferred, s)
		}
	}
	return out, nil
}

// Restricted tells whether users must not select by key.
func (l Labels) Restricted(key string) bool {
	if l.WellKnown[key] {
		return false
	}
	domain, _, qualified := strings.Cut(key, "/")
	return key == corev1.LabelHostname || qualified && slices.ContainsFunc(l.RestrictedDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}
