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
