// Package region is EC2 of a region as the data that ships with the program knows it, for planning without an
// account.
//
// Every zone of the region counts, under the name that its ID suggests (use1-az1 is us-east-1a) unless the subnets of
// an account name it otherwise. Spot prices are the region's averages.
package region

import (
	"fmt"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// Region resolves what it sells for node classes. It is immutable and safe for concurrent use.
type Region struct {
	name     string
	data     *offline.Catalog
	resolver *instancetype.Resolver
	infos    []ec2types.InstanceTypeInfo
	zones    []awsv1.Subnet // every zone, by name; without the ID of a subnet
}

// New returns the region of the settings. It fails if the data does not know it.
func New(data *offline.Catalog, settings instancetype.Settings) (*Region, error) {
	resolver, err := instancetype.New(settings)
	if err != nil {
		return nil, err
	}
	r := &Region{name: settings.Region, data: data, resolver: resolver}
	if !slices.Contains(data.Regions(), r.name) {
		return nil, fmt.Errorf("there are no prices of region %q, only of %s", r.name, strings.Join(data.Regions(), ", "))
	}
	ids := map[string]bool{}
	for _, t := range data.Types() {
		sold := data.ZoneIDs(r.name, t.Name)
		info := instancetype.FromOffline(t)
		if len(sold) == 0 || !instancetype.Supported(info) {
			continue
		}
		r.infos = append(r.infos, info)
		for _, id := range sold {
			if !ids[id] {
				ids[id] = true
				r.zones = append(r.zones, awsv1.Subnet{Zone: zoneName(r.name, id), ZoneID: id})
			}
		}
	}
	slices.SortFunc(r.zones, func(a, b awsv1.Subnet) int { return strings.Compare(a.Zone, b.Zone) })
	return r, nil
}

// Name of the region.
func (r *Region) Name() string { return r.name }

// zoneName is the name of the zone of an ID that ends in a number, as EC2 hands names out to the first account.
func zoneName(region, id string) string {
	_, number, _ := strings.Cut(id, "-az")
	if len(number) != 1 || number[0] < '1' || number[0] > '9' {
		return id
	}
	return region + string('a'+number[0]-'1')
}

// Types returns every type as the class would launch it, by name. A class that has found no subnets yet, and that
// of a nil class, which stands for any, may launch in every zone.
func (r *Region) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	traits, name := instancetype.Class{Family: instancetype.FamilyOf(awsv1.AMIFamilyCustom)}, "of any kind"
	if class != nil {
		name = class.Name
		var err error
		if traits, err = instancetype.ClassOf(class, image.Family(class)); err != nil {
			return nil, fmt.Errorf("instance types of node class %s: %w", class.Name, err)
		}
	}
	if len(traits.Subnets) == 0 {
		traits.Subnets = r.zones
	}
	types, err := r.resolver.All(r.infos, traits, r.market(traits.Subnets))
	if err != nil {
		return nil, fmt.Errorf("instance types of node class %s: %w", name, err)
	}
	return types, nil
}

// market is what the region sells. Subnets tell which zone has which ID in their account.
func (r *Region) market(subnets []awsv1.Subnet) instancetype.Market {
	ids := map[string]string{}
	for _, s := range slices.Concat(r.zones, subnets) {
		if s.ZoneID != "" {
			ids[s.Zone] = s.ZoneID
		}
	}
	m := instancetype.Market{
		Offered: func(instanceType, zone string) bool {
			return slices.Contains(r.data.ZoneIDs(r.name, instanceType), ids[zone])
		},
		OnDemand: func(instanceType string) (float64, bool) { return r.data.OnDemand(r.name, instanceType) },
		Spot:     func(instanceType, _ string) (float64, bool) { return r.data.Spot(r.name, instanceType) },
	}
	for _, z := range r.zones {
		m.Zones = append(m.Zones, z.Zone)
	}
	return m
}
