package nodepool

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// DomainQuery selects nodes that could be launched now.
type DomainQuery struct {
	// Key is the label with values that are the domains.
	Key string
	// Present are labels that the nodes must have, too, with any value.
	Present []string
	// Requests holds what a node must have room for.
	Requests resources.Vec
}

// maxKnownDomains limits how many queries the candidates remember: pods of one owner query the same again for each of their spreads, and
// those of many owners with requests of their own must not fill the memory.
const maxKnownDomains = 64

// Domains are the values of the key, sorted, on nodes that could be launched now as one of the candidates. Limits count as they were when
// planning began. The caller must not change the result.
//
// Cost: types times offerings, until all values that the pool has are found; constant for a query that is known. Large types come first:
// they have room.
func (c *Candidates) Domains(q DomainQuery) []string {
	id := fmt.Sprintf("%s|%q|%d", q.Key, q.Present, q.Requests)
	if known, ok := c.domainsByQuery[id]; ok {
		return known
	}
	out := c.findDomains(q)
	if len(c.domainsByQuery) < maxKnownDomains {
		if c.domainsByQuery == nil {
			c.domainsByQuery = map[string][]string{}
		}
		c.domainsByQuery[id] = out
	}
	return out
}

// findDomains is Domains for a query that is not known.
func (c *Candidates) findDomains(q DomainQuery) []string {
	t, wanted, found := c.t, c.reqs.Get(q.Key), map[string]bool{}
	all := t.Values(q.Key)
	for _, cand := range slices.Backward(c.list) {
		ti := &t.types[cand.Type]
		if q.Requests != nil && !q.Requests.Fits(ti.room) || !ti.capacity.Within(t.limitLeftAtStart) {
			continue
		}
		for k := range ti.Offerings {
			o := &ti.Offerings[k]
			values := c.valuesOn(ti, o, q.Key)
			if !slices.ContainsFunc(values, func(v string) bool { return !found[v] && wanted.Has(v) }) ||
				!o.Available || !c.reqs.Overlaps(o.Requirements) ||
				slices.ContainsFunc(q.Present, func(key string) bool { return !c.mayHave(ti, o, key) }) {
				continue
			}
			for _, v := range values {
				if wanted.Has(v) {
					found[v] = true
				}
			}
		}
		if len(found) >= len(all) && !slices.ContainsFunc(all, func(v string) bool { return !found[v] }) {
			break
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// CheapestByDomain returns, by value of the key, the least cost of nodes of one type that could be launched now, in $/h: nodes is how many
// of them are needed, by the room of one; 0 if none suffices. Limits count as they were when planning began.
//
// Cost: types times offerings.
func (c *Candidates) CheapestByDomain(key string, nodes func(room resources.Vec) int) map[string]float64 {
	t, wanted, out := c.t, c.reqs.Get(key), map[string]float64{}
	last := -1
	for _, cand := range c.list { // a type is listed once more for each of its reservations
		ti := &t.types[cand.Type]
		n := nodes(ti.room)
		if cand.Type == last || n == 0 || !ti.capacity.Within(t.limitLeftAtStart) {
			continue
		}
		last = cand.Type
		for k := range ti.Offerings {
			o := &ti.Offerings[k]
			if !o.Available || !c.reqs.Overlaps(o.Requirements) {
				continue
			}
			price := float64(n) * t.models.NodePrice(o.Price)
			for _, v := range c.valuesOn(ti, o, key) {
				if before, has := out[v]; wanted.Has(v) && (!has || price < before) {
					out[v] = price
				}
			}
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
