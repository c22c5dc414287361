package zonedivision

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

// readCounts reads the zones and the counts of all groups.
func (d *Division) readCounts() {
	for _, z := range d.groups {
		d.zones = append(d.zones, z.g.Universe()...)
	}
	slices.Sort(d.zones)
	d.zones = slices.Compact(d.zones)
	for _, z := range d.groups {
		z.count, z.sure, z.known = make([]int, len(d.zones)), make([]int, len(d.zones)), make([]bool, len(d.zones))
		for i, zone := range d.zones {
			z.count[i], z.sure[i] = z.g.Count(zone), z.g.SureCount(zone)
			z.known[i] = slices.Contains(z.g.Universe(), zone)
			if slices.Contains(z.g.Usable(), zone) {
				z.usable = append(z.usable, i)
			}
		}
	}
}

// minCount is the global minimum of the skew for the counts so far.
func (z *counts) minCount() int {
	if len(z.usable) == 0 || len(z.usable) < z.g.MinDomains() {
		return 0
	}
	lowest := z.sure[z.usable[0]]
	for _, i := range z.usable[1:] {
		lowest = min(lowest, z.sure[i])
	}
	return lowest
}

// assign finds a zone for each pod of the list, in queue order: of those that maxSkew allows the cheapest, then the one with
// the fewest pods. It returns nil if a pod has none; then the pods stay together.
func (d *Division) assign(pods []*podclass.Class, list []int) []int {
	out := make([]int, len(list))
	floors := make([]int, 0, 1)
	for i, pod := range list {
		m := d.memberOf[pods[pod].Constraints]
		d.price(m, pods[pod])
		floors = floors[:0]
		for _, z := range m.groups {
			floors = append(floors, z.minCount())
		}
		best, fewest := -1, 0
		for zone := range d.zones {
			if math.IsInf(m.price[zone], 1) {
				continue
			}
			count, allowed := 0, true
			for n, z := range m.groups {
				allowed = allowed && z.known[zone] && z.count[zone]+1-floors[n] <= z.g.MaxSkew()
				count += z.count[zone]
			}
			if allowed && (best < 0 || m.price[zone] < m.price[best] || m.price[zone] == m.price[best] && count < fewest) {
				best, fewest = zone, count
			}
		}
		if best < 0 {
			return nil
		}
		for _, z := range m.groups {
			z.count[best]++
			z.sure[best]++
		}
		out[i] = best
	}
	return out
}

// price computes what the member's pods cost in each zone at dual prices, by a pod of class c; +Inf where no offering
// holds one of them. Zones within SimilarCost of the cheapest cost the same.
func (d *Division) price(m *member, c *podclass.Class) {
	if m.price != nil {
		return
	}
	m.price, m.in = make([]float64, len(d.zones)), make([]*podclass.Constraints, len(d.zones))
	least := math.Inf(1)
	for i, zone := range d.zones {
		m.price[i] = math.Inf(1)
		if m.in[i] = m.k.InZone(zone, d.Pools); m.in[i] != nil {
			m.price[i] = d.leastCost(m.in[i], c)
		}
		least = min(least, m.price[i])
	}
	for i, p := range m.price {
		if p <= least*d.SimilarCost {
			m.price[i] = least
		}
	}
}

// leastCost is the least that a pod of class c costs at dual prices on a new node of the constraint class k: its share
// of the node, at the node's price.
func (d *Division) leastCost(k *podclass.Constraints, c *podclass.Class) float64 {
	lists := d.Candidates(k)
	var key []byte
	for _, l := range lists {
		key = binary.AppendUvarint(key, uint64(l.ID()))
	}
	for _, r := range c.Requests() {
		key = binary.AppendVarint(key, r)
	}
	if known, ok := d.prices[string(key)]; ok {
		return known
	}
	least := d.Market.LeastCost(c.Requests(), lists)
	d.prices[string(key)] = least
	return least
}
