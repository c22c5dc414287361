package nodepool

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Candidate is a type that requirements admit, with the price of its cheapest available offering. A type is listed once
// for its offerings outside reservations, and once per reservation.
type Candidate struct {
	Type  int
	Price float64
	// Offering is the number of that offering; -1 in a reservation.
	Offering int
	// Reservation is the capacity reservation that the type is launched into: see package reservation.
	Reservation int
}

// Candidates are the types of a template that a set of requirements admits.
type Candidates struct {
	id   int
	t    *Template
	reqs requirement.Set
	// hasMin reports whether reqs has minValues.
	hasMin bool
	// zone is the number of the only zone of the candidates; 0 if they are in several.
	zone int
	// price is by index of the type, outside reservations; +Inf where there is none.
	price []float64
	// reservedPrices are the prices in reservations.
	reservedPrices map[reservedType]float64
	// narrowedBySet holds what the candidates become under interned sets, by their IDs; domains caches single domains.
	narrowedBySet []narrowResult
	domains       []knownDomain
	// domainsByQuery are the results of Domains, by query.
	domainsByQuery map[string][]string
	// deviceViews are the candidates from the perspective of devices; made on first use.
	deviceViews []DeviceView
	// claimReqs are the requirements of a claim; made on first use.
	claimReqs *requirement.Set
	// offerings are the numbers of the offerings that reqs admit; made on first use. See offeringWords.
	offerings resources.Bitset
	list      []Candidate // cheapest first, then by name
}

// reservedType is a type in a reservation.
type reservedType struct{ t, reservation int }

// Candidates are the available types that reqs admit, cheapest first. They are cached by reqs.
//
// Cost of a new list: types times offerings, and sorting.
func (t *Template) Candidates(reqs requirement.Set) *Candidates {
	m := t.models
	m.keyBuf = reqs.AppendKey(m.keyBuf[:0])
	if c, ok := t.candidatesByReqs[string(m.keyBuf)]; ok {
		return c
	}
	c := &Candidates{id: m.lists, t: t, reqs: reqs, hasMin: reqs.HasMinValues(), price: make([]float64, len(t.types))}
	if zone, single := reqs.Get(corev1.LabelTopologyZone).Single(); single {
		c.zone = m.zoneNumbers[zone]
	}
	m.lists++
	*m.config.Steps += len(t.types)
	for i := range t.types {
		ti := &t.types[i]
		c.price[i] = math.Inf(1)
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		best := -1
		for k := range ti.Offerings {
			o := &ti.Offerings[k]
			if o.Available && o.ReservationID == "" && (best < 0 || o.Price < ti.Offerings[best].Price) && reqs.Overlaps(o.Requirements) {
				best = k
			}
		}
		if best >= 0 {
			c.price[i] = m.NodePrice(ti.Offerings[best].Price)
			c.list = append(c.list, Candidate{Type: i, Price: c.price[i], Offering: ti.offering + best})
		}
		c.addReserved(i, ti)
	}
	slices.SortStableFunc(c.list, func(a, b Candidate) int { return cmp.Compare(a.Price, b.Price) })
	t.candidatesByReqs[string(m.keyBuf)] = c
	return c
}

// offeringWords are the words of a Bitset of the numbers of the available offerings, outside reservations, that the requirements admit,
// from a first word on: that of the template's first offering.
func (c *Candidates) offeringWords() (words resources.Bitset, first int) {
	if len(c.list) == 0 {
		return nil, 0
	}
	first = c.t.types[0].offering / 64
	if c.offerings != nil {
		return c.offerings, first
	}
	c.offerings = resources.Bitset{}
	for _, cand := range c.list {
		ti := &c.t.types[cand.Type]
		for i := range ti.Offerings {
			if o := &ti.Offerings[i]; o.Available && o.ReservationID == "" && c.reqs.Overlaps(o.Requirements) {
				c.offerings.Add(ti.offering + i - 64*first)
			}
		}
	}
	return c.offerings, first
}

// addReserved lists the type's offerings in reservations that the requirements admit, the cheapest per reservation.
func (c *Candidates) addReserved(i int, ti *Type) {
	at := len(c.list)
	for _, r := range ti.reserved {
		if !r.offering.Available || !c.reqs.Overlaps(r.offering.Requirements) {
			continue
		}
		cand := Candidate{Type: i, Price: c.t.models.NodePrice(r.offering.Price), Offering: -1, Reservation: r.reservation}
		if k := slices.IndexFunc(c.list[at:], func(o Candidate) bool { return o.Reservation == r.reservation }); k >= 0 {
			cand.Price = min(cand.Price, c.list[at+k].Price)
			c.list[at+k] = cand
		} else {
			c.list = append(c.list, cand)
		}
		if c.reservedPrices == nil {
			c.reservedPrices = map[reservedType]float64{}
		}
		c.reservedPrices[reservedType{i, r.reservation}] = cand.Price
	}
}

// PriceOf is the price of the candidate under these requirements; +Inf if they do not admit it.
func (c *Candidates) PriceOf(cand Candidate) float64 {
	if cand.Reservation == 0 {
		return c.price[cand.Type]
	}
	return c.reservedPrice(cand)
}

func (c *Candidates) reservedPrice(cand Candidate) float64 {
	if p, ok := c.reservedPrices[reservedType{cand.Type, cand.Reservation}]; ok {
		return p
	}
	return math.Inf(1)
}

// narrowResult describes what a list of candidates becomes under an interned set; nil if no candidate is left.
type narrowResult struct {
	known bool
	cands *Candidates
}

// Narrow adds the requirements of a pod or of its volumes to the requirements of a node; nil if it cannot meet both.
//
// Cost: each pair of candidates and set is computed once; after that it is one slice access.
func (c *Candidates) Narrow(w requirement.Interned) *Candidates {
	if w.Set.Len() == 0 {
		return c
	}
	for w.ID >= len(c.narrowedBySet) {
		c.narrowedBySet = append(c.narrowedBySet, narrowResult{})
	}
	if n := &c.narrowedBySet[w.ID]; n.known {
		return n.cands
	}
	n := narrowResult{known: true}
	if c.reqs.Compatible(w.Set, c.t.models.config.Labels.WellKnown) {
		if n.cands = c.t.Candidates(c.reqs.Intersect(c.claimRequirements(w.Set))); n.cands.reqs.Equal(c.reqs) {
			n.cands = c
		}
	}
	c.narrowedBySet[w.ID] = n
	return n.cands
}

// NarrowBy is narrow for a set that few nodes need, and that requires nothing of the host name.
func (c *Candidates) NarrowBy(set requirement.Set) *Candidates {
	if !c.reqs.Compatible(set, c.t.models.config.Labels.WellKnown) {
		return nil
	}
	if reqs := c.reqs.Intersect(c.claimRequirements(set)); !reqs.Equal(c.reqs) {
		return c.t.Candidates(reqs)
	}
	return c
}

// claimRequirements is the part of a set that the NodeClaim must state. A label that neither the pool nor its types
// define will be absent from the node. That is all that the set can require of it, or the set would be incompatible. If
// the claim stated it, the claim would get a made-up value, and DaemonSets might select by it.
func (c *Candidates) claimRequirements(set requirement.Set) requirement.Set {
	var drop []string
	for _, r := range set.All() {
		if key := r.Key(); !c.reqs.Defines(key) && !c.t.models.config.Labels.WellKnown[key] && !c.t.DefinesLabel(key) {
			drop = append(drop, key)
		}
	}
	return set.Without(drop...)
}

// knownDomain is the only value that a label can have, if there is exactly one.
type knownDomain struct {
	key, value string
	ok         bool
}

// Domain is the only value of key that a node of the candidates can have.
func (c *Candidates) Domain(key string) (string, bool) {
	for i := range c.domains {
		if s := &c.domains[i]; s.key == key {
			return s.value, s.ok
		}
	}
	value, ok := c.reqs.Get(key).Single()
	c.domains = append(c.domains, knownDomain{key, value, ok})
	return value, ok
}

// FitQuery selects the types that a node can become.
type FitQuery struct {
	Candidates *Candidates
	// first is the index into the list at which the search starts, reservation the capacity reservation that the types
	// must be in.
	First, Reservation int
	// total is what the type must hold; reserved is what the node has reserved of the pool's limits.
	Total, Reserved resources.Vec
	// Blocked are the daemon groups with a conflicting host port; nil if there are none.
	Blocked []bool
}

// Fitting appends the types that the query selects, cheapest first.
func (t *Template) Fitting(out []Candidate, q FitQuery) []Candidate {
	for _, cand := range q.Candidates.list[q.First:] {
		ti := &t.types[cand.Type]
		if cand.Reservation == q.Reservation && q.Total.Fits(ti.room) && !ti.BlockedBy(q.Blocked) &&
			t.WithinLimits(ti, q.Reserved) {
			out = append(out, cand)
		}
	}
	return out
}

// ClaimRequirements are the requirements of a claim with these candidates, made on first use.
func (c *Candidates) ClaimRequirements() requirement.Set {
	if c.claimReqs == nil {
		reqs := c.t.models.newNode.Stated(c.reqs)
		c.claimReqs = &reqs
	}
	return *c.claimReqs
}

// HasMinValues reports whether the requirements have minValues.
func (c *Candidates) HasMinValues() bool { return c.hasMin }

// ID is a number that no other list has.
func (c *Candidates) ID() int { return c.id }

// List are the candidates, cheapest first, then by name. The caller must not modify them.
func (c *Candidates) List() []Candidate { return c.list }

// Requirements returns those that the candidates meet: the pool's, and what pods add.
func (c *Candidates) Requirements() requirement.Set { return c.reqs }

// TypeOf is the type of a candidate.
func (c *Candidates) TypeOf(cand Candidate) *Type { return &c.t.types[cand.Type] }

// Template is the model of the pool.
func (c *Candidates) Template() *Template { return c.t }

// Zone is the number of the only zone of the candidates; 0 if they are in several.
func (c *Candidates) Zone() int { return c.zone }
