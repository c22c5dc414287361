package ec2

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// instanceType is an instance type with its zones and prices in the region.
type instanceType struct {
	offline.Type
	zones    [zonesPerRegion]bool // by index of regionZones
	onDemand float64              // $/h; 0 = not sold
	spot     float64              // $/h, the regional average; 0 = not sold
	license  float64              // $/h that Windows costs beside both; 0 = the type is not sold with it
}

// market is the offerings of the region. It is immutable.
type market struct {
	region string
	seed   uint64
	zones  []Zone
	types  []*instanceType // by name
	byName map[string]*instanceType
}

// scarceZones is out of how many types one lacks a zone.
const scarceZones = 12

func newMarket(region string, seed uint64) (*market, error) {
	if !slices.Contains(offline.Regions(), region) {
		return nil, fmt.Errorf("region %q: the instance type catalog knows only %s", region, strings.Join(offline.Regions(), ", "))
	}
	catalog, err := offline.Load(region)
	if err != nil {
		return nil, err
	}
	m := &market{region: region, seed: seed, zones: regionZones(region), byName: map[string]*instanceType{}}
	for _, t := range catalog.Types() {
		sold := &instanceType{Type: t}
		sold.onDemand, _ = catalog.OnDemand(region, t.Name)
		if slices.Contains(t.UsageClasses, spotLifecycle) {
			sold.spot, _ = catalog.Spot(region, t.Name)
		}
		if windows, ok := catalog.Price(offline.PriceQuery{Region: region, Type: t.Name, Platform: offline.Windows}); ok {
			sold.license = windows.PerHour - sold.onDemand
		}
		if sold.onDemand == 0 && sold.spot == 0 || catalog.ZoneIDs(region, t.Name) == nil {
			continue
		}
		lacks := -1
		if roll := m.roll("zones", t.Name); roll%scarceZones == 0 {
			lacks = int(roll / scarceZones % zonesPerRegion)
		}
		for z := range sold.zones {
			sold.zones[z] = z != lacks
		}
		m.types = append(m.types, sold)
		m.byName[t.Name] = sold
	}
	return m, nil
}

// roll is a number that depends on the seed and the words only.
func (m *market) roll(words ...string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", m.seed, strings.Join(words, " ")))
	return binary.BigEndian.Uint64(sum[:8])
}

// zoneIndex returns the place of a zone by its name, -1 when there is none.
func (m *market) zoneIndex(name string) int {
	return slices.IndexFunc(m.zones, func(z Zone) bool { return z.Name == name })
}

// Spot prices differ between zones by up to spotSpread around the regional average.
const spotSpread = 0.15

// spotPrice is the simulated spot price of a type in a zone: the real regional average times a factor of 0.85 to 1.15
// that the seed fixes. 0 = not sold.
func (m *market) spotPrice(t *instanceType, zone string) float64 {
	if i := m.zoneIndex(zone); i < 0 || !t.zones[i] {
		return 0
	}
	unit := float64(m.roll("spot", t.Name, zone)>>11) / (1 << 53)
	price := t.spot * (1 - spotSpread + 2*spotSpread*unit)
	return float64(int64(price*1e4+0.5)) / 1e4
}

// price is what an hour in the pool costs; 0 = not sold.
func (m *market) price(p Pool) float64 {
	t := m.byName[p.InstanceType]
	switch {
	case t == nil || !m.sold(t, p.Zone):
		return 0
	case p.Lifecycle == spotLifecycle:
		return m.spotPrice(t, p.Zone)
	default:
		return t.onDemand
	}
}

func (m *market) sold(t *instanceType, zone string) bool {
	i := m.zoneIndex(zone)
	return i >= 0 && t.zones[i]
}

// deepest is the depth of a pool with the most spare capacity; depths go from 1.
const deepest = 10

// depth is how much spare capacity a spot pool seems to have, as EC2 sees and no customer does. The seed fixes it;
// common sizes of current generations are deeper than rare ones on average only by chance.
func (m *market) depth(p Pool) int {
	return 1 + int(m.roll("depth", p.InstanceType, p.Zone)%deepest)
}
