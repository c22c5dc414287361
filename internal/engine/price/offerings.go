package price

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// offerings are the offerings of all templates, by number, with the demand classes that can use each of them.
func (m *Market) offerings() []lp.Offering {
	out := make([]lp.Offering, m.pools.OfferingCount())
	for _, t := range m.pools.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			if slices.ContainsFunc(ti.Room(), func(r int64) bool { return r < 0 }) {
				continue // nothing fits
			}
			for k := range ti.Offerings {
				o := &out[ti.FirstOffering()+k]
				o.Room, o.Price = ti.Room(), m.pools.NodePrice(ti.Offerings[k].Price)
				for _, c := range m.classes {
					if c.offerings.Has(ti.FirstOffering() + k) {
						o.Classes.Add(c.index)
					}
				}
			}
		}
	}
	return out
}

// representatives are the offerings without those for which another one stands, and which one does by number of all offerings: see
// lp.Input.
func (m *Market) representatives() (offerings []lp.Offering, representedBy []int32) {
	sets := make([]resources.Bitset, len(m.classes))
	for i, c := range m.classes {
		sets[i] = c.offerings
	}
	found := m.pools.Equivalents(sets)
	for i := range found.Representatives {
		s := &found.Representatives[i]
		offerings = append(offerings, lp.Offering{Room: s.Room, Price: s.Price, Classes: lp.ClassSet(s.Sets)})
	}
	return offerings, found.By
}
