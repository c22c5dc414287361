package topology

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Choice narrows a new node to domains.
type Choice []requirement.Requirement

// maxChoices bounds how many combinations of domains are tried for one pod on one new node. Three topology keys with
// four zones each give 64.
const maxChoices = 64

// stepsPerPrice states what the price of one domain costs: a walk along some instance types.
const stepsPerPrice = 32

// TakeChoiceSteps returns what Choices has cost since the last call.
func (r *Registry) TakeChoiceSteps() int {
	n := r.choiceSteps
	r.choiceSteps = 0
	return n
}

// Query queries in which domains a planned node may take a pod.
type Query struct {
	// Views are the pod's.
	Views []View
	// Node are the labels that the node is limited to, Index is its number.
	Node  requirement.Set
	Index int
	// Price is the price of the node with these labels.
	Price func(requirement.Set) float64
}

// Choices lists the ways in which a new node can respect the views, best first. Without views it is one choice that
// narrows nothing. The second result is the view that leaves none.
func (r *Registry) Choices(q Query) ([]Choice, *View) {
	byKey := map[string][]View{}
	for i, v := range q.Views {
		if v.g.key == corev1.LabelHostname {
			if !v.AllowsNew(q.Index) {
				return nil, &q.Views[i]
			}
			continue
		}
		if v.KeepsApart() && r.LacksDomain(v.g.key, q.Node) {
			continue // the node will have no such label, so no domain and no neighbors
		}
		if v.g.typ == Inverse && v.g.Empty() || v.KeepsApart() && len(v.g.universe) == 0 && !q.Node.Defines(v.g.key) {
			continue // no pod that declares it is scheduled, or no node has the label
		}
		byKey[v.g.key] = append(byKey[v.g.key], v)
	}
	out := []Choice{nil}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		options, blocked := r.options(byKey[key], q)
		if blocked != nil {
			return nil, blocked
		}
		var next []Choice
		for _, prefix := range out {
			for _, o := range options {
				if len(next) < maxChoices {
					next = append(next, append(slices.Clone(prefix), o))
				}
			}
		}
		out = next
	}
	return out, nil
}

// rankedDomain is a domain with what decides between domains: the pods of spreads there, then the price.
type rankedDomain struct {
	domain string
	count  int
	price  float64
}

// options lists what the requirement on one key may become under views that share the key.
func (r *Registry) options(views []View, q Query) ([]requirement.Requirement, *View) {
	key := views[0].g.key
	known := r.DomainsOf(views[0].g, q.Node)
	domains := slices.Clone(known)
	spreads, first := false, false
	// Pods that keep apart may also use a node without the label, if some types have none.
	apart := r.lackedBySomeType(key) && !slices.ContainsFunc(views, func(v View) bool { return !v.KeepsApart() })
	for i, v := range views {
		r.choiceSteps += len(domains)
		domains = v.allowed(domains)
		if len(domains) == 0 && apart && len(v.g.universe) > 0 {
			return []requirement.Requirement{requirement.NotIn(key, v.g.universe...)}, nil
		}
		if len(domains) == 0 {
			return nil, &views[i]
		}
		// Spread needs a single domain, and so does the first pod of an affinity that others will follow.
		spreads = spreads || v.g.typ == Spread
		first = first || v.g.typ == Affinity && !slices.ContainsFunc(domains, func(d string) bool { return v.g.counts[d] > 0 })
	}
	if spreads || first {
		r.choiceSteps += stepsPerPrice * len(domains)
		out := singleDomains(views, domains, q)
		if !spreads && q.Node.HasMinValues() {
			// No single domain may have as many values as minValues requires. Others can follow onto the node itself.
			out = append(out, r.anyOf(key, domains, known)...)
		}
		return out, nil
	}
	out := []requirement.Requirement{requirement.In(key, domains...)}
	if apart && len(views[0].g.universe) > 0 {
		out = append(out, requirement.NotIn(key, views[0].g.universe...))
		slices.SortStableFunc(out, func(a, b requirement.Requirement) int {
			return cmp.Compare(q.Price(q.Node.With(a)), q.Price(q.Node.With(b)))
		})
	}
	return out, nil
}

// anyOf is the option of all domains that the views allow, of those known for the node: at least as many values as any
// other option leaves. Values of a well-known label that no offering of the node's has count for minValues, too: only the
// domains that a view forbids are excluded.
func (r *Registry) anyOf(key string, allowed, known []string) []requirement.Requirement {
	if !r.labels.WellKnown[key] {
		if len(allowed) > 1 {
			return []requirement.Requirement{requirement.In(key, allowed...)}
		}
		return nil
	}
	var forbidden []string
	for _, d := range known {
		if !slices.Contains(allowed, d) {
			forbidden = append(forbidden, d)
		}
	}
	if len(forbidden) == 0 {
		return []requirement.Requirement{requirement.Exists(key)}
	}
	return []requirement.Requirement{requirement.NotIn(key, forbidden...)}
}

// singleDomains are the options of one domain each: those with the fewest pods first, of these the cheapest.
func singleDomains(views []View, domains []string, q Query) []requirement.Requirement {
	key := views[0].g.key
	order := make([]rankedDomain, len(domains))
	for i, d := range domains {
		order[i] = rankedDomain{domain: d}
		for _, v := range views {
			if v.g.typ == Spread {
				order[i].count += v.g.counts[d]
			}
		}
		if len(domains) > 1 {
			order[i].price = q.Price(q.Node.With(requirement.In(key, d)))
		}
	}
	slices.SortFunc(order, func(a, b rankedDomain) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.price, b.price), cmp.Compare(a.domain, b.domain))
	})
	out := make([]requirement.Requirement, len(order))
	for i, o := range order {
		out[i] = requirement.In(key, o.domain)
	}
	return out
}
