package nodepool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// DomainQuery selects nodes that could be launched now.
type DomainQuery struct {
	// Key is the label whose values are the domains.
	Key string
	// Present are labels that the nodes must have, too, with any value.
	Present []string
	// Requests are what a node must have room for.
	Requests resources.Vec
}

// Domains appends the values of the key on nodes that could be launched now as one of the candidates, without what out
// has already. Limits count as they were when planning began.
//
// Cost: types times offerings, until all values that the pool has are found. Large types come first: they have room.
func (c *Candidates) Domains(out []string, q DomainQuery) []string {
	t, all := c.t, len(c.t.Values(q.Key))
	for _, cand := range slices.Backward(c.list) {
		ti := &t.types[cand.Type]
		if q.Requests != nil && !q.Requests.Fits(ti.room) || !ti.capacity.Within(t.limitLeftAtStart) {
			continue
		}
		for k := range ti.Offerings {
			o := &ti.Offerings[k]
			values := c.valuesOn(ti, o, q.Key)
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(out, v) && c.reqs.Get(q.Key).Has(v) }) ||
				!o.Available || !c.reqs.Overlaps(o.Requirements) ||
				slices.ContainsFunc(q.Present, func(key string) bool { return !c.mayHave(ti, o, key) }) {
				continue
			}
			for _, v := range values {
				if c.reqs.Get(q.Key).Has(v) && !slices.Contains(out, v) {
					out = append(out, v)
				}
			}
		}
		if len(out) >= all && !slices.ContainsFunc(t.Values(q.Key), func(v string) bool { return !slices.Contains(out, v) }) {
			break
		}
	}
	return out
}

// valuesOn are the values of the label that a node of the offering may have. A label that the pool leaves open has
// none: pods give it a value.
func (c *Candidates) valuesOn(ti *Type, o *catalog.Offering, key string) []string {
	r := c.t.reqs.Get(key)
	switch {
	case o.Requirements.Defines(key):
		r = o.Requirements.Get(key)
	case ti.Requirements.Defines(key):
		r = ti.Requirements.Get(key)
	}
	if r.Operator() != corev1.NodeSelectorOpIn {
		return nil
	}
	return r.Values()
}

// mayHave reports whether a node of the offering can have the label.
func (c *Candidates) mayHave(ti *Type, o *catalog.Offering, key string) bool {
	if o.Requirements.Defines(key) || ti.Requirements.Defines(key) {
		return slices.ContainsFunc(c.valuesOn(ti, o, key), c.reqs.Get(key).Has)
	}
	return c.reqs.Defines(key) && c.reqs.Get(key).Operator() != corev1.NodeSelectorOpDoesNotExist
}
