// Package offlineregion resolves instance types of a region from the data that ships with the program, for planning
// without an account.
//
// Every zone of the region counts, with the name that its ID suggests (use1-az1 is us-east-1a) unless the subnets of an
// account name it otherwise. Prices are those of the node class's operating system; spot prices are the region's
// averages.
package offlineregion

import (
	"fmt"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// Region resolves the types of a region for node classes. It is immutable and safe for concurrent use.
type Region struct {
	name     string
	data     *offline.Catalog
	resolver *instancetype.Resolver
	infos    []ec2types.InstanceTypeInfo
	zones    []awsv1.Subnet // every zone, by name; without the ID of a subnet
}

// New returns the region of the settings. It fails if the data does not contain it.
func New(data *offline.Catalog, settings instancetype.Settings) (*Region, error) {
	resolver, err := instancetype.New(settings)
	if err != nil {
		return nil, err
	}
	r := &Region{name: settings.Region, data: data, resolver: resolver}
	if !slices.Contains(data.Regions(), r.name) {
		if near := spelling.Nearest(r.name, data.Regions(), 2); near != "" {
			return nil, fmt.Errorf("there are no prices of region %q, did you mean %s?", r.name, near)
		}
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

// Basis describes the source of derived prices for an operating system.
func (r *Region) Basis(os corev1.OSName) string {
	basis := r.data.Basis(r.name)
	if os == corev1.Windows {
		basis += "; Windows costs " + offline.WindowsFee + " more where it is not listed, and as spot"
	}
	return basis
}

// Currency returns the currency of the region's prices.
func (r *Region) Currency() string { return r.data.Currency(r.name) }

// Month returns the month of the region's own prices, such as July 2026.
func (r *Region) Month() string { return r.data.Month(r.name) }

// Name returns the name of the region.
func (r *Region) Name() string { return r.name }

// zoneName returns the name of the zone with an ID that finishes in a number, as in most accounts.
func zoneName(region, id string) string {
	_, number, _ := strings.Cut(id, "-az")
	if len(number) != 1 || number[0] < '1' || number[0] > '9' {
		return id
	}
	return region + string('a'+number[0]-'1')
}

// Types returns every type as the class would launch it, by name. A class without subnets, and a nil class, which
// stands for any, may launch in every zone.
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
	types, err := r.resolver.ResolveAll(r.infos, traits, r.market(traits.Subnets, offline.Platform(traits.Family.OS)))
	if err != nil {
		return nil, fmt.Errorf("instance types of node class %s: %w", name, err)
	}
	return types, nil
}

// market returns prices and availability for a platform. Subnets map zones to IDs in their account.
func (r *Region) market(subnets []awsv1.Subnet, platform offline.Platform) instancetype.Market {
	price := func(instanceType, capacityType string) (offline.Price, bool) {
		return r.data.Price(offline.PriceQuery{
			Region: r.name, Type: instanceType, Spot: capacityType == karpv1.CapacityTypeSpot, Platform: platform,
		})
	}
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
		OnDemand: func(instanceType string) (float64, bool) {
			p, ok := price(instanceType, karpv1.CapacityTypeOnDemand)
			return p.PerHour, ok
		},
		Spot: func(instanceType, _ string) (float64, bool) {
			p, ok := price(instanceType, karpv1.CapacityTypeSpot)
			return p.PerHour, ok
		},
		PriceDerived: func(instanceType, capacityType string) bool {
			p, _ := price(instanceType, capacityType)
			return p.Derived
		},
	}
	for _, z := range r.zones {
		m.Zones = append(m.Zones, z.Zone)
	}
	return m
}
