package recorder

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxPriceRows is how many instance types a price table has: those that were launched or removed, and the next cheapest.
const maxPriceRows = 8

// priceTable lists the offerings of the types that launches prefer, and of the others named.
func priceTable(s *snapshot.Snapshot, launches []schedule.Launch, others ...string) []PriceRow {
	var out []PriceRow
	add := func(t *catalog.InstanceType) {
		if len(out) < maxPriceRows && !slices.ContainsFunc(out, func(r PriceRow) bool { return r.InstanceType == t.Name }) {
			out = append(out, priceRow(t))
		}
	}
	for i := range launches {
		if types := launches[i].InstanceTypes; len(types) > 0 {
			add(types[0])
		}
	}
	for _, name := range others {
		if t := typeNamed(s, name); t != nil {
			add(t)
		}
	}
	for i := range launches {
		for _, t := range launches[i].InstanceTypes {
			add(t)
		}
	}
	return out
}

// typeNamed is an instance type that a pool may launch; nil if none may launch it.
func typeNamed(s *snapshot.Snapshot, name string) *catalog.InstanceType {
	for i := range s.Pools {
		for _, t := range s.Pools[i].InstanceTypes {
			if t.Name == name {
				return t
			}
		}
	}
	return nil
}

func priceRow(t *catalog.InstanceType) PriceRow {
	row := PriceRow{InstanceType: t.Name, CPU: t.Capacity[corev1.ResourceCPU], Memory: t.Capacity[corev1.ResourceMemory]}
	for i := range t.Offerings {
		o := &t.Offerings[i]
		p := PriceRecord{CapacityType: o.CapacityType, Zone: o.Zone, Price: number(o.Price)}
		if !o.Available {
			p.Unavailable = cmp.Or(o.UnavailableMessage, "not available")
		}
		row.Offerings = append(row.Offerings, p)
	}
	slices.SortStableFunc(row.Offerings, func(a, b PriceRecord) int {
		return cmp.Or(cmp.Compare(a.CapacityType, b.CapacityType), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Price, b.Price))
	})
	return row
}

// inputsOf are the inputs as far as the snapshot has them.
func inputsOf(s *snapshot.Snapshot) Inputs {
	in := Inputs{Nodes: len(s.Nodes), Pending: len(s.Pods), Pods: len(s.Pods)}
	for i := range s.Nodes {
		in.Pods += len(s.Nodes[i].Pods)
	}
	return in
}

// maxUnavailable is how many offerings that are not available a launch names.
const maxUnavailable = 10

// unavailable are offerings of the launch's types that would have been cheaper, the cheapest first.
func unavailable(l *schedule.Launch) []Alternative {
	var out []Alternative
	for _, t := range l.InstanceTypes {
		for i := range t.Offerings {
			o := &t.Offerings[i]
			if o.Available || o.Price <= 0 || o.Price >= l.Offering.Price || !l.Requirements.Overlaps(o.Requirements) {
				continue
			}
			out = append(out, Alternative{
				What: o.Key(t.Name).String(), HourlyCost: number(o.Price), WhyNot: cmp.Or(o.UnavailableMessage, "not available"),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b Alternative) int { return cmp.Compare(a.HourlyCost, b.HourlyCost) })
	return out[:min(len(out), maxUnavailable)]
}
