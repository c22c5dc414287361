package ec2

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type describeZonesInput struct {
	DryRun  bool     `query:"DryRun"`
	Filters []Filter `query:"Filter"`
	All     bool     `query:"AllAvailabilityZones"`
	Names   []string `query:"ZoneName"`
	IDs     []string `query:"ZoneId"`
}

type describeZonesOutput struct {
	Zones []zoneInfo `xml:"availabilityZoneInfo>item"`
}

type zoneInfo struct {
	Name          string `xml:"zoneName"`
	ID            string `xml:"zoneId"`
	Type          string `xml:"zoneType"`
	State         string `xml:"zoneState"`
	OptIn         string `xml:"optInStatus"`
	Region        string `xml:"regionName"`
	Group         string `xml:"groupName"`
	NetworkBorder string `xml:"networkBorderGroup"`
}

func (e *EC2) describeAvailabilityZones(_ *protocol.Request, in *describeZonesInput) (*describeZonesOutput, error) {
	match, err := compileFilters(in.Filters, properties[zoneInfo]{
		"group-name":    one(func(z zoneInfo) string { return z.Group }),
		"opt-in-status": one(func(z zoneInfo) string { return z.OptIn }),
		"region-name":   one(func(z zoneInfo) string { return z.Region }),
		"state":         one(func(z zoneInfo) string { return z.State }),
		"zone-id":       one(func(z zoneInfo) string { return z.ID }),
		"zone-name":     one(func(z zoneInfo) string { return z.Name }),
		"zone-type":     one(func(z zoneInfo) string { return z.Type }),
	}, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range in.Names {
		if e.market.zoneIndex(name) < 0 {
			return nil, invalidValue("Invalid availability zone: [%s]", name)
		}
	}
	for _, id := range in.IDs {
		if !slices.ContainsFunc(e.market.zones, func(z Zone) bool { return z.ID == id }) {
			return nil, invalidValue("Invalid availability zone-id: [%s]", id)
		}
	}
	if in.DryRun {
		return nil, dryRun()
	}
	out := &describeZonesOutput{}
	for _, z := range e.market.zones {
		info := zoneInfo{
			Name: z.Name, ID: z.ID, Type: "availability-zone", State: "available", OptIn: "opt-in-not-required",
			Region: e.cfg.Region, Group: e.cfg.Region + "-zg-1", NetworkBorder: e.cfg.Region,
		}
		named := len(in.Names) == 0 || slices.Contains(in.Names, z.Name)
		if named && (len(in.IDs) == 0 || slices.Contains(in.IDs, z.ID)) && match(info) {
			out.Zones = append(out.Zones, info)
		}
	}
	return out, nil
}

type describeRegionsInput struct {
	DryRun  bool     `query:"DryRun"`
	Filters []Filter `query:"Filter"`
	All     bool     `query:"AllRegions"`
	Names   []string `query:"RegionName"`
}

type describeRegionsOutput struct {
	Regions []regionInfo `xml:"regionInfo>item"`
}

type regionInfo struct {
	Name     string `xml:"regionName"`
	Endpoint string `xml:"regionEndpoint"`
	OptIn    string `xml:"optInStatus"`
}

// describeRegions knows the one region of the account.
func (c *Config) describeRegions(_ *protocol.Request, in *describeRegionsInput) (*describeRegionsOutput, error) {
	match, err := compileFilters(in.Filters, properties[regionInfo]{
		"endpoint":      one(func(r regionInfo) string { return r.Endpoint }),
		"opt-in-status": one(func(r regionInfo) string { return r.OptIn }),
		"region-name":   one(func(r regionInfo) string { return r.Name }),
	}, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range in.Names {
		if name != c.Region {
			return nil, invalidValue("Invalid region name: [%s]", name)
		}
	}
	if in.DryRun {
		return nil, dryRun()
	}
	out := &describeRegionsOutput{}
	info := regionInfo{Name: c.Region, Endpoint: "ec2." + c.Region + ".amazonaws.com", OptIn: "opt-in-not-required"}
	if match(info) {
		out.Regions = append(out.Regions, info)
	}
	return out, nil
}
