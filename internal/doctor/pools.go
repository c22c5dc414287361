package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

func poolChecks() []Check {
	return []Check{
		{
			ID: "pools-node-class", Area: "pools", Severity: Error, Title: "a NodePool refers to an EC2NodeClass that does not exist",
			Why: "nothing is launched for the pool", needs: []Fact{NodePools, NodeClasses}, run: missingClasses,
		},
		{
			ID: "pools-unknown-value", Area: "pools", Severity: Error, Title: "a requirement has values that no instance type has",
			Why: "the pool launches fewer types than intended, or nothing", needs: []Fact{NodePools, NodeClasses, InstanceTypes}, run: unknownValues,
		},
		{
			ID: "pools-no-type", Area: "pools", Severity: Error, Title: "no instance type meets the requirements of a NodePool",
			Why: "nothing is launched for the pool", needs: []Fact{NodePools, NodeClasses, InstanceTypes}, run: noTypes,
		},
		{
			ID: "pools-limit", Area: "pools", Severity: Error, Title: "no allowed instance type fits under the limits of a NodePool",
			Why: "nothing is launched for the pool", needs: []Fact{NodePools, NodeClasses, InstanceTypes}, run: tightLimits,
		},
		{
			ID: "pools-narrow-spot", Area: "pools", Severity: Warning, Title: "a NodePool of spot instances has one type or one zone",
			Why: "when EC2 reclaims that capacity, it interrupts all nodes of the pool, and offers none in their place", needs: []Fact{
				NodePools,
				NodeClasses, InstanceTypes,
			}, run: narrowSpot,
		},
		{
			ID: "pools-overlap", Area: "pools", Severity: Warning, Title: "two NodePools of equal weight accept the same pods",
			Why: "price decides which of them launches a node", needs: []Fact{NodePools}, run: overlappingPools,
		},
		{
			ID: "pools-no-limits", Area: "pools", Severity: Info, Title: "a NodePool has no limits",
			Why: "a runaway workload launches nodes without bound", needs: []Fact{NodePools}, run: noLimits,
		},
		{
			ID: "pools-no-grace", Area: "pools", Severity: Info, Title: "nodes expire, but may drain forever",
			Why:   "a PodDisruptionBudget or do-not-disrupt keeps an expired node forever, with an image that gets no fixes",
			needs: []Fact{NodePools}, run: noGrace,
		},
	}
}

// ours returns the pools that launch from an EC2NodeClass.
func (f *Facts) ours() (out []*karpv1.NodePool) {
	for i := range f.NodePools {
		p := &f.NodePools[i]
		if awsv1.IsEC2NodeClass(p.Spec.Template.Spec.NodeClassRef) && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func requirementsOf(p *karpv1.NodePool) (requirement.Set, error) {
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	return labels.FromPool(p, [2]string{awsv1.LabelNodeClass, p.Spec.Template.Spec.NodeClassRef.Name})
}

// allowed returns the instance types that a pool may launch, whether or not they are available now.
func (f *Facts) allowed(p *karpv1.NodePool) (out []*catalog.InstanceType) {
	set, err := requirementsOf(p)
	if err != nil {
		return nil // the pool's condition reports it
	}
	for _, t := range f.Types[p.Spec.Template.Spec.NodeClassRef.Name] {
		if !set.Overlaps(t.Requirements) {
			continue
		}
		if slices.ContainsFunc(t.Offerings, func(o catalog.Offering) bool { return set.Overlaps(o.Requirements) }) {
			out = append(out, t)
		}
	}
	return out
}

func (f *Facts) zoneAllowed(p *karpv1.NodePool, zone string) bool {
	set, err := requirementsOf(p)
	return err == nil && set.Get(corev1.LabelTopologyZone).Has(zone)
}

func missingClasses(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		name := p.Spec.Template.Spec.NodeClassRef.Name
		var names []string
		for _, c := range f.NodeClasses {
			names = append(names, c.Name)
		}
		if slices.Contains(names, name) {
			continue
		}
		out = append(out, Finding{
			Object: "NodePool " + p.Name, Seen: fmt.Sprintf("EC2NodeClass %q does not exist%s", name, didYouMean(name, names)),
			Remedy: fmt.Sprintf("create it, or correct spec.template.spec.nodeClassRef.name: kubectl edit nodepool %s", p.Name),
		})
	}
	return out
}

func unknownValues(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		types := f.Types[p.Spec.Template.Spec.NodeClassRef.Name]
		if len(types) == 0 {
			continue
		}
		known := valuesOf(types)
		for _, r := range p.Spec.Template.Spec.Requirements {
			have := known[r.Key]
			if r.Operator != corev1.NodeSelectorOpIn || len(have) == 0 {
				continue
			}
			for _, v := range r.Values {
				if have[v] || (r.Key == karpv1.LabelCapacityType) {
					continue
				}
				out = append(out, Finding{
					Object: "NodePool " + p.Name, Seen: fmt.Sprintf("no instance type has %s=%s%s", r.Key, v, didYouMean(v,
						slices.Collect(maps.Keys(have)))),
					Remedy: fmt.Sprintf("kubectl edit nodepool %s, and correct spec.template.spec.requirements", p.Name),
				})
			}
		}
	}
	return out
}

// valuesOf returns the values of each label over all types.
func valuesOf(types []*catalog.InstanceType) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(set requirement.Set) {
		for _, r := range set.All() {
			if out[r.Key()] == nil {
				out[r.Key()] = map[string]bool{}
			}
			for _, v := range r.Values() {
				out[r.Key()][v] = true
			}
		}
	}
	for _, t := range types {
		add(t.Requirements)
		for _, o := range t.Offerings {
			add(o.Requirements)
		}
	}
	return out
}

func noTypes(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		if len(f.Types[p.Spec.Template.Spec.NodeClassRef.Name]) > 0 && len(f.allowed(p)) == 0 {
			out = append(out, Finding{
				Object: "NodePool " + p.Name, Seen: "its requirements together leave no instance type",
				Remedy: fmt.Sprintf("kubectl edit nodepool %s, and loosen spec.template.spec.requirements", p.Name),
			})
		}
	}
	return out
}

func tightLimits(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		types := f.allowed(p)
		for _, name := range slices.Sorted(maps.Keys(p.Spec.Limits)) {
			limit, least := p.Spec.Limits[name], (*resource.Quantity)(nil)
			for _, t := range types {
				if q, has := t.Capacity[name]; has && (least == nil || q.Cmp(*least) < 0) {
					least = &q
				}
			}
			if least != nil && least.Cmp(limit) > 0 {
				out = append(out, Finding{
					Object: "NodePool " + p.Name, Seen: fmt.Sprintf("the limit of %s is %s, the smallest allowed instance type has %s", name,
						limit.String(), least.String()),
					Remedy: fmt.Sprintf("kubectl edit nodepool %s, and raise spec.limits or allow smaller types", p.Name),
				})
			}
		}
	}
	return out
}

func narrowSpot(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		set, err := requirementsOf(p)
		if err != nil || !set.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot) ||
			set.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeOnDemand) {
			continue
		}
		types, zones := map[string]bool{}, map[string]bool{}
		for _, t := range f.allowed(p) {
			for _, o := range t.Offerings {
				if o.CapacityType == karpv1.CapacityTypeSpot && set.Overlaps(o.Requirements) {
					types[t.Name], zones[o.Zone] = true, true
				}
			}
		}
		if len(types) == 1 || len(zones) == 1 {
			out = append(out, Finding{
				Object: "NodePool " + p.Name, Seen: fmt.Sprintf("spot only, with %d instance types in %d zones", len(types), len(zones)),
				Remedy: fmt.Sprintf("kubectl edit nodepool %s, and allow more instance types and zones, or on-demand as well", p.Name),
			})
		}
	}
	return out
}

func overlappingPools(f *Facts) (out []Finding) {
	weight := func(p *karpv1.NodePool) int32 {
		if p.Spec.Weight == nil {
			return 0
		}
		return *p.Spec.Weight
	}
	pools := slices.DeleteFunc(
		f.ours(),
		func(p *karpv1.NodePool) bool { return len(p.Spec.Template.Spec.Taints) > 0 || p.Spec.Replicas != nil },
	)
	slices.SortFunc(pools, func(a, b *karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	for i, a := range pools {
		for _, b := range pools[i+1:] {
			x, errX := requirementsOf(a)
			y, errY := requirementsOf(b)
			x, y = x.Without(karpv1.LabelNodePool, awsv1.LabelNodeClass), y.Without(karpv1.LabelNodePool, awsv1.LabelNodeClass)
			if errX != nil || errY != nil || weight(a) != weight(b) || !x.Overlaps(y) {
				continue
			}
			out = append(out, Finding{
				Object: "NodePool " + a.Name, Seen: fmt.Sprintf("it and NodePool %s have weight %d and accept the same pods", b.Name, weight(a)),
				Remedy: fmt.Sprintf(
					"give one of them a different spec.weight, for example: kubectl patch nodepool %s --type merge -p '{\"spec\":{\"weight\":%d}}'",
					a.Name,
					weight(a)+10,
				),
			})
		}
	}
	return out
}

func noLimits(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		if len(p.Spec.Limits) == 0 && p.Spec.Replicas == nil {
			out = append(out, Finding{
				Object: "NodePool " + p.Name, Seen: "spec.limits is empty",
				Remedy: fmt.Sprintf(`kubectl patch nodepool %s --type merge -p '{"spec":{"limits":{"cpu":"1000"}}}'`, p.Name),
			})
		}
	}
	return out
}

func noGrace(f *Facts) (out []Finding) {
	for _, p := range f.ours() {
		if p.Spec.Template.Spec.ExpireAfter.Duration != nil && p.Spec.Template.Spec.TerminationGracePeriod == nil {
			out = append(out, Finding{
				Object: "NodePool " + p.Name, Seen: "expireAfter is set, terminationGracePeriod is not",
				Remedy: fmt.Sprintf(
					`kubectl patch nodepool %s --type merge -p '{"spec":{"template":{"spec":{"terminationGracePeriod":"24h"}}}}'`,
					p.Name,
				),
			})
		}
	}
	return out
}

// didYouMean suggests the nearest known word, if one is near.
func didYouMean(word string, known []string) string {
	// A swap of two letters, the most common mistake, is two edits.
	const maxEdits = 2
	best := spelling.Nearest(word, known, maxEdits)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}
