package bin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Commit narrows bins to the domains where they can really come up, after no more pods fit. The types that hold a bin's
// pods may exist in fewer domains than its requirements allow, and waiting pods can then use the other domains. The groups
// are those of waiting pods. It returns whether anything changed, and how many offerings it has checked.
//
// Cost: one list of fitting types per bin with open labels, and one more for each label that is narrowed; a walk along
// it per label. Pods can have thousands of labels in their rules, of which types have few.
func (s *Set) Commit(waiting map[*topology.Group]bool) (changed bool, checked int) {
	for _, b := range s.all {
		keys := b.uncommitted(waiting)
		if len(keys) == 0 {
			continue
		}
		f := s.fittingNow(b)
		for _, key := range keys {
			narrowed, offerings := s.commitTo(b, key, f)
			if checked += offerings; narrowed {
				changed, f = true, s.fittingNow(b)
			}
		}
	}
	return changed, checked
}

// uncommitted are the labels without a single value yet by which waiting pods, through these groups, consider the bin's
// pods, or distinguish nodes  that count for them, sorted.
func (b *Bin) uncommitted(relevant map[*topology.Group]bool) []string {
	known, seen := map[string]bool{}, map[*topology.Group]bool{}
	var out []string
	add := func(groups []*topology.Group) {
		for _, g := range groups {
			if seen[g] || !relevant[g] {
				continue
			}
			seen[g] = true
			for _, key := range g.NodeLabels() {
				if known[key] || key == corev1.LabelHostname {
					continue
				}
				known[key] = true
				if _, single := b.cands.Domain(key); !single {
					out = append(out, key)
				}
			}
		}
	}
	for _, c := range b.counted {
		add([]*topology.Group{c.Group})
	}
	for _, h := range b.contents {
		add(h.class.Matches())
		add(h.class.Declares())
	}
	slices.Sort(out)
	return out
}

// ownFit selects the types that hold the bin's pods.
func (s *Set) ownFit(b *Bin) nodepool.FitQuery {
	return b.fitQuery(Growth{cands: b.cands, first: b.first, reservation: b.reservation}, b.total, s.blockedGroups(b, request{}))
}

// fitting describes what a bin can be launched as, as it is now.
type fitting struct {
	types         []nodepool.Candidate
	reqs          requirement.Set
	capacityTypes []string
}

// fittingNow is as the launch would have it. A launch may name several reservations; this one names only that of the
// bin.
func (s *Set) fittingNow(b *Bin) fitting {
	q := s.ownFit(b)
	types, reqs := b.t.KeepUnambiguous(b.t.Fitting(nil, q), s.inReservation(b), q)
	return fitting{types, reqs, b.capacityTypes(types)}
}

// commitTo is Commit for one bin and label.
func (s *Set) commitTo(b *Bin, key string, f fitting) (changed bool, checked int) {
	own, reqs := b.cands.Requirements().Get(key), f.reqs
	var domains []string
	for _, cand := range f.types {
		it := b.t.TypeOf(cand)
		checked += len(it.Offerings)
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if (o.ReservationID != "") != (b.reservation != reservation.None) || !it.Sells(o) || !reqs.Overlaps(o.Requirements) ||
				b.reservation == reservation.None && !slices.Contains(f.capacityTypes, o.CapacityType) {
				continue
			}
			r := o.Requirements.Get(key)
			if !o.Requirements.Defines(key) {
				r = it.Requirements.Get(key)
			}
			if r.Operator() != corev1.NodeSelectorOpIn {
				return false, checked // the types do not determine the domain
			}
			domains = append(domains, r.Values()...)
		}
	}
	domains = slices.DeleteFunc(domains, func(d string) bool { return !own.Has(d) })
	slices.Sort(domains)
	domains = slices.Compact(domains)
	if len(domains) == 0 || len(domains) < own.MinValues() || own.Operator() == corev1.NodeSelectorOpIn && len(domains) == len(own.Values()) {
		return false, checked
	}
	cands := b.t.Candidates(reqs.With(requirement.In(key, domains...)))
	cheapest := b.cands.List()[b.first]
	first := slices.IndexFunc(cands.List(), func(c nodepool.Candidate) bool {
		return c.Type == cheapest.Type && c.Reservation == cheapest.Reservation
	})
	if first < 0 {
		return false, checked
	}
	s.narrow(b, cands)
	b.first, b.room = first, nil
	s.noteRoom(b)
	return true, checked
}

// inReservation are the bin's requirements, within its reservation if it has one.
func (s *Set) inReservation(b *Bin) requirement.Set {
	reqs := b.cands.Requirements()
	if b.reservation == reservation.None {
		return reqs
	}
	if key := s.reservationLabel; key != "" {
		reqs = reqs.With(requirement.In(key, s.slots.ID(b.reservation)))
	}
	return reqs.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
}

// capacityTypes returns those that a claim of these types would name: the available ones, unless minValues needs more.
func (b *Bin) capacityTypes(types []nodepool.Candidate) []string {
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

// Decide chooses the domain of the first bin that may still come up in several, and has pods that the view counts: the
// cheapest domain that pods with this view can use. It returns whether there is such a bin.
//
// Invariant: every choice leaves one bin one domain, so there are at most as many as bins times topology keys. Cost: a list
// of candidates per domain.
// The second result is how many instance types it has checked.
func (s *Set) Decide(v topology.View) (decided bool, checked int) {
	for _, b := range s.all {
		chosen, types := s.decideFor(b, v)
		if checked += types; chosen {
			return true, checked
		}
	}
	return false, checked
}

// decideFor chooses the bin's domain for a view, if the bin has pods of its group and stays the type that it is.
func (s *Set) decideFor(b *Bin, v topology.View) (decided bool, checked int) {
	if b.undecidedOf(v.Group()) == 0 {
		return false, 0
	}
	return s.choose(b, v.Group(), v.Reaches)
}
