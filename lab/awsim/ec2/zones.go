package ec2

import "strings"

// zonesPerRegion is how many zones of a region the simulator offers.
const zonesPerRegion = 3

// compass is how zone IDs abbreviate the middle of a region's name.
var compass = strings.NewReplacer(
	"northeast", "ne", "northwest", "nw", "southeast", "se", "southwest", "sw",
	"north", "n", "south", "s", "east", "e", "west", "w", "central", "c",
)

// regionZones returns the zones of a region: us-east-1a is use1-az1 and so on.
func regionZones(region string) []Zone {
	zones := make([]Zone, zonesPerRegion)
	for i := range zones {
		zones[i] = Zone{
			Name: region + string(rune('a'+i)),
			ID:   strings.ReplaceAll(compass.Replace(region), "-", "") + "-az" + string(rune('1'+i)),
		}
	}
	return zones
}

// zoneNamed returns the name of the zone that a request gives by its name, its ID or both; empty if it gives none.
func (m *market) zoneNamed(name, id string) (string, error) {
	if name != "" && m.zoneIndex(name) < 0 {
		return "", invalidValue("Invalid availability zone: [%s]", name)
	}
	if id == "" {
		return name, nil
	}
	z := find(m.zones, func(z Zone) bool { return z.ID == id })
	if z.Name == "" || name != "" && name != z.Name {
		return "", invalidValue("Invalid availability zone-id: [%s]", id)
	}
	return z.Name, nil
}
