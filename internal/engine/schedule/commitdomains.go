package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
)

// commit narrows new nodes to the domains where they can really come up, after no more pods fit. The types that hold a
// node's pods may exist in fewer domains than its requirements allow, and waiting pods can then use the other domains.
// The queue is the waiting pods. It returns whether anything changed.
func (sv *solver) commit(queue []*queuedPod) bool {
	relevant, seen := map[*group]bool{}, map[*class]bool{}
	for _, q := range queue {
		if seen[q.class] {
			continue
		}
		seen[q.class] = true
		for _, level := range q.class.levels {
			for _, g := range level.groups {
				relevant[g] = true
			}
		}
		for _, g := range q.class.blockedBy {
			relevant[g] = true
		}
	}
	changed := false
	for _, b := range sv.bins {
		if b.reservation != 0 {
			continue // its reservation determines the domain
		}
		for _, key := range b.uncommitted(relevant) {
			changed = sv.commitTo(b, key) || changed
		}
	}
	if changed {
		sv.generation++
	}
	return changed
}

// uncommitted are the labels without a single value yet by which waiting pods, through these groups, consider the bin's
// pods, or tell nodes apart that count for them, sorted.
func (b *bin) uncommitted(relevant map[*group]bool) []string {
	var out []string
	add := func(keys ...string) {
		for _, key := range keys {
			if _, single := b.cands.Domain(key); !single && key != corev1.LabelHostname {
				out = append(out, key)
			}
		}
	}
	for _, h := range b.contents {
		for _, list := range [...][]*group{h.class.matches, h.class.declares} {
			for _, g := range list {
				if !relevant[g] {
					continue
				}
				add(g.key)
				if g.filter != nil && g.filter.affinity {
					add(g.filter.node.Selector.Keys()...)
					for _, term := range g.filter.node.Required {
						add(term.Keys()...)
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (sv *solver) commitTo(b *bin, key string) bool {
	own := b.cands.Requirements().Get(key)
	var domains []string
	fitting := b.t.Fitting(nil, b.fitQuery(growth{cands: b.cands, first: b.first}, b.total, b.t.ConflictingGroups(b.ports, nil)))
	fitting, reqs := b.t.KeepUnambiguous(fitting, b.cands.Requirements(), b.reservation != reservation.None) // as the launch does
	allowed := b.capacityTypes(fitting)
	for _, cand := range fitting {
		it := b.t.TypeOf(cand).Unreserved()
		for i := range it.Offerings {
			if o := &it.Offerings[i]; reqs.Overlaps(o.Requirements) && slices.Contains(allowed, o.CapacityType) {
				r := o.Requirements.Get(key)
				if !o.Requirements.Defines(key) {
					r = it.Requirements.Get(key)
				}
				if r.Operator() != corev1.NodeSelectorOpIn {
					return false // the types do not determine the domain
				}
				domains = append(domains, r.Values()...)
			}
		}
	}
	domains = slices.DeleteFunc(domains, func(d string) bool { return !own.Has(d) })
	slices.Sort(domains)
	domains = slices.Compact(domains)
	if len(domains) == 0 || len(domains) < own.MinValues() || own.Operator() == corev1.NodeSelectorOpIn && len(domains) == len(own.Values()) {
		return false
	}
	cands := b.t.Candidates(reqs.With(requirement.In(key, domains...)))
	cheapest := b.cands.List()[b.first]
	first := slices.IndexFunc(cands.List(), func(c nodepool.Candidate) bool {
		return c.Type == cheapest.Type && c.Reservation == cheapest.Reservation
	})
	if first < 0 {
		return false
	}
	sv.narrowBin(b, cands)
	b.first, b.room = first, nil
	sv.noteRoom(b)
	return true
}

// capacityTypes are those that a claim of these types would name: the available ones, unless minValues needs more.
func (b *bin) capacityTypes(types []nodepool.Candidate) []string {
	var all, available []string
	for _, cand := range types {
		it := b.t.TypeOf(cand).Unreserved()
		for i := range it.Offerings {
			if o := &it.Offerings[i]; b.cands.Requirements().Overlaps(o.Requirements) {
				all = append(all, o.CapacityType)
				if o.Available && !slices.Contains(available, o.CapacityType) {
					available = append(available, o.CapacityType)
				}
			}
		}
	}
	if len(available) < b.cands.Requirements().Get(karpv1.LabelCapacityType).MinValues() {
		return all
	}
	return available
}

// decide chooses the domain of a new node that may still come up in several, once nothing else lets a waiting pod be
// placed that must follow pods on it. It takes the cheapest domain that the waiting pod can use. The queue is the
// waiting pods. It returns whether it chose one.
//
// Invariant: every choice leaves one node one domain, so there are at most as many as nodes times topology keys. Cost:
// waiting classes times bins, and a list of candidates per domain.
func (sv *solver) decide(queue []*queuedPod) bool {
	seen := map[*class]bool{}
	for _, q := range queue {
		if seen[q.class] {
			continue
		}
		seen[q.class] = true
		views := q.class.views(q.class.levels[len(q.class.levels)-1])
		sv.steps += len(views)
		for _, v := range views {
			if v.g.typ == affinity && v.g.undecided > 0 && slices.ContainsFunc(sv.bins, func(b *bin) bool { return sv.decideFor(b, v) }) {
				sv.generation++
				return true
			}
		}
	}
	return false
}

// decideFor chooses the bin's domain for a view, if the bin has pods of its group and stays the type that it is.
func (sv *solver) decideFor(b *bin, v view) bool {
	key := v.g.key
	_, single := b.cands.Domain(key)
	if single || b.reservation != 0 || b.cands.HasMinValues() || len(b.deviceOptions) > 0 || b.undecidedOf(v.g) == 0 {
		return false
	}
	cheapest, best, first := b.cands.List()[b.first], (*nodepool.Candidates)(nil), 0
	for _, d := range sv.domainsOf(v.g, b.cands.Requirements()) {
		if !reaches(*v.node, key, d) {
			continue
		}
		cands := b.t.Candidates(b.cands.Requirements().With(requirement.In(key, d)))
		at := slices.IndexFunc(cands.List(), func(c nodepool.Candidate) bool { return c.Type == cheapest.Type && c.Reservation == 0 })
		if at >= 0 && (best == nil || cands.List()[at].Price < best.List()[first].Price) {
			best, first = cands, at
		}
	}
	if best == nil {
		return false
	}
	sv.narrowBin(b, best)
	sv.cost += best.List()[first].Price - b.cost
	b.first, b.room, b.cost = first, nil, best.List()[first].Price
	return true
}
