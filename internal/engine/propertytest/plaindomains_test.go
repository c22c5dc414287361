package propertytest

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// maxDomainChoices bounds the choices of domains that are tried for one claim.
const maxDomainChoices = 12

// domainChoices are the domains that a claim with the pod may be restricted to: to none, to one of one key, to one each
// of two keys. Domains with fewer pods that a spread constraint counts come first, and of those the cheaper.
func (m *plainPlanner) domainChoices(c *plainClaim, hard *corev1.Pod) [][]requirement.Requirement {
	out := [][]requirement.Requirement{nil}
	var single [][]requirement.Requirement
	for _, key := range m.topologyKeys(hard) {
		if _, ok := c.reqs.Get(key).Single(); ok {
			continue
		}
		var pins []requirement.Requirement
		for _, d := range m.domains(c, hard, key) {
			pins = append(pins, requirement.In(key, d))
		}
		for _, others := range single {
			for _, pin := range pins {
				out = append(out, append(slices.Clone(others), pin))
			}
		}
		for _, pin := range pins {
			single = append(single, []requirement.Requirement{pin})
		}
	}
	out = slices.Concat(out[:1], single, out[1:])
	return out[:min(len(out), maxDomainChoices)]
}

// topologyKeys are the keys that a rule about the pod may need a domain of; of volumes, the zone.
func (m *plainPlanner) topologyKeys(hard *corev1.Pod) []string {
	var out []string
	add := func(key string) {
		if key = m.s.Labels.Normalize(key); key != Host && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for _, t := range hard.Spec.TopologySpreadConstraints {
		add(t.TopologyKey)
	}
	if len(hard.Spec.Volumes) > 0 {
		add(Zone)
	}
	of := func(p *corev1.Pod) {
		if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil && p == hard {
			for _, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				add(t.TopologyKey)
			}
		}
		if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				add(t.TopologyKey)
			}
		}
	}
	of(hard)
	for _, n := range m.nodes {
		for _, p := range n.Pods {
			of(p)
		}
	}
	for _, p := range m.s.Pods {
		if m.placed[p] {
			of(p)
		}
	}
	return out
}

// domains are the values of the key that the claim may get.
func (m *plainPlanner) domains(c *plainClaim, hard *corev1.Pod, key string) []string {
	counts, price := map[string]int{}, map[string]float64{}
	for _, it := range c.types {
		for _, o := range it.Offerings {
			if !o.Available || !c.reqs.Overlaps(o.Requirements) || !c.reqs.Overlaps(it.Requirements) {
				continue
			}
			for _, d := range slices.Concat(o.Requirements.Get(key).Values(), it.Requirements.Get(key).Values()) {
				if before, known := price[d]; c.reqs.Get(key).Has(d) && (!known || o.Price < before) {
					price[d] = o.Price
				}
			}
		}
	}
	var out []string
	for d := range price {
		out = append(out, d)
	}
	if len(out) == 0 {
		out = slices.Clone(c.reqs.Get(key).Values())
	}
	for _, t := range hard.Spec.TopologySpreadConstraints {
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		if err != nil || t.TopologyKey != key {
			continue
		}
		m.eachPod(key, func(p *corev1.Pod, domain string) {
			if p.Namespace == hard.Namespace && selector.Matches(labelSet(p.Labels)) {
				counts[domain]++
			}
		})
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(price[a], price[b]), cmp.Compare(a, b))
	})
	return out
}

type labelSet map[string]string

func (l labelSet) Has(key string) bool              { _, ok := l[key]; return ok }
func (l labelSet) Get(key string) string            { return l[key] }
func (l labelSet) Lookup(key string) (string, bool) { v, ok := l[key]; return v, ok }

// eachPod visits the pods of which the domain is known.
func (m *plainPlanner) eachPod(key string, visit func(p *corev1.Pod, domain string)) {
	for i, n := range m.nodes {
		if d, ok := n.Labels[key]; ok {
			for _, p := range slices.Concat(n.Pods, m.on[i]) {
				visit(p, d)
			}
		}
	}
	for _, c := range m.claims {
		if d, ok := c.reqs.Get(key).Single(); ok {
			for _, p := range c.pods {
				visit(p, d)
			}
		}
	}
}
