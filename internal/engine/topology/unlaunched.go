package topology

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// What is known of the labels of a claim without an instance. Its node may still get any well-known label that the claim
// leaves open, but only with a value that nodes have: one of an existing node, or one that a pool offers.

// mayCount reports whether pods on the claim's node may turn out to count for the filter.
func (r *Registry) mayCount(f *filter, n *Node) bool {
	return f == nil || !f.affinity || f.anyTerm(func(set requirement.Set) bool {
		return n.Labels.Compatible(set, r.labels.WellKnown) &&
			!slices.ContainsFunc(set.All(), func(q requirement.Requirement) bool { return !r.mayGet(n, q) })
	})
}

// surelyCounts reports whether pods on the claim's node count for the filter whatever the claim becomes.
func (r *Registry) surelyCounts(f *filter, n *Node) bool {
	return f == nil || !f.affinity || f.anyTerm(func(set requirement.Set) bool {
		return !slices.ContainsFunc(set.All(), func(q requirement.Requirement) bool { return !r.surelyGets(n, q) })
	})
}

// anyTerm reports whether the condition holds for the node selector and for one of the alternatives.
func (f *filter) anyTerm(holds func(requirement.Set) bool) bool {
	return holds(f.node.Selector) && (len(f.node.Required) == 0 || slices.ContainsFunc(f.node.Required, holds))
}

// mayGet reports whether the node's label may satisfy a requirement that is compatible with what the claim requires.
func (r *Registry) mayGet(n *Node, q requirement.Requirement) bool {
	if !r.leavesOpen(n, q.Key()) {
		return true
	}
	return q.AllowsAbsent() && mayLack(n, q.Key()) ||
		slices.ContainsFunc(r.knownValues(q.Key()), func(v string) bool { return n.Labels.Get(q.Key()).Has(v) && q.Has(v) })
}

// surelyGets reports whether the node's label satisfies the requirement with each value that it may get.
func (r *Registry) surelyGets(n *Node, q requirement.Requirement) bool {
	key := q.Key()
	have := n.Labels.Get(key)
	switch {
	case r.leavesOpen(n, key):
		return (q.AllowsAbsent() || !mayLack(n, key)) &&
			!slices.ContainsFunc(r.knownValues(key), func(v string) bool { return have.Has(v) && !q.Has(v) })
	case !n.Labels.Defines(key):
		return q.AllowsAbsent()
	}
	return have.Equal(have.Intersect(q.WithMinValues(0)))
}

// leavesOpen reports whether the node may get any value of a well-known label, or any but some.
func (r *Registry) leavesOpen(n *Node, key string) bool {
	if !r.labels.WellKnown[key] {
		return false
	}
	switch n.Labels.Get(key).Operator() {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpDoesNotExist:
		return false
	}
	return true
}

func mayLack(n *Node, key string) bool {
	return !n.Labels.Defines(key) || n.Labels.Get(key).AllowsAbsent()
}

// knownValues are the values of the key on nodes, and on those that pools can launch. They are computed once per key.
func (r *Registry) knownValues(key string) []string {
	known, ok := r.known[key]
	if ok {
		return known
	}
	for _, n := range r.nodes {
		if v, has := n.Domain(key); has {
			known = append(known, v)
		}
	}
	for _, p := range r.pools {
		known = append(known, p.Labels.Values(key)...)
	}
	known = append(known, r.valuesOfStaticPools(key)...)
	slices.Sort(known)
	known = slices.Compact(known)
	r.known[key] = known
	return known
}

// valuesOfStaticPools are the values of the key in pools with replicas, which give pods no new nodes, but have claims.
func (r *Registry) valuesOfStaticPools(key string) []string {
	var out []string
	add := func(set requirement.Set) {
		if q := set.Get(key); q.Operator() == corev1.NodeSelectorOpIn {
			out = append(out, q.Values()...)
		}
	}
	for i := range r.static {
		p := &r.static[i]
		if own, err := r.labels.FromPool(p.NodePool, p.NodeClassLabel); err == nil {
			add(own)
		}
		for _, it := range p.InstanceTypes {
			add(it.Requirements)
			for k := range it.Offerings {
				add(it.Offerings[k].Requirements)
			}
		}
	}
	return out
}
