// Package inventory lists the instance types of a region, and resolves what a node class can launch at the moment,
// including prices and unavailable offerings.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
)

// API is the calls of EC2 that Source makes.
type API interface {
	ec2.DescribeInstanceTypesAPIClient
	ec2.DescribeInstanceTypeOfferingsAPIClient
}

// composedTTL bounds how long unused results are kept.
const composedTTL = 5 * time.Minute

// Config configures a Source.
type Config struct {
	EC2                  API
	Resolver             *instancetype.Resolver
	Prices               *pricing.Prices
	UnavailableOfferings *unavailableofferings.Cache
	DiscoveredMemory     *discoveredmemory.Memory
	// Groups finds the placement groups of node classes.
	Groups *placement.Finder
	// Reservations counts capacity reservations; nil while the feature is off: then there are none, whatever the status
	// of a class contains.
	Reservations *reservation.Finder
	// UserPrices are prices from the user in $/h, by type, for types that have no other price, with a version that
	// changes with them. Nil has none.
	UserPrices func() (prices map[string]float64, version int)
	// ZoneShifted reports whether a zonal shift moves the cluster away from the zone with the ID; nil means never.
	ZoneShifted func(zoneID string) bool
	// Waiting returns why the types are not listed yet, where somebody else calls Refresh: nobody waits for a listing then. Nil lists them
	// when they are first needed.
	Waiting func() error
	Now     func() time.Time
}

// Source knows the instance types of a region. It is safe for concurrent use.
type Source struct {
	cfg        Config
	refreshing singleflight.Group
	resolved   *ttlcache.Cache[resolvedKey, resolved]
	// resolving is held by the one caller that resolves types.
	resolving sync.Mutex

	mu      sync.RWMutex
	listing listing
	// recalled is what an earlier process has listed, for as long as this one could not.
	recalled listing
}

// listing is the last listing of EC2. It is replaced as a whole.
type listing struct {
	version int
	at      time.Time
	types   []ec2types.InstanceTypeInfo // by name
	zones   []string                    // sorted
	offered map[typeInZone]bool
}

type typeInZone struct{ instanceType, zone string }

// New returns a Source without a listing.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, resolved: ttlcache.New[resolvedKey, resolved](composedTTL, cfg.Now)}
}

// Refresh lists types and offerings again. After an error the last listing stays.
func (s *Source) Refresh(ctx context.Context) error {
	var infos []ec2types.InstanceTypeInfo
	var offered map[typeInZone]bool
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		infos, err = s.listTypes(ctx)
		return err
	})
	group.Go(func() (err error) {
		offered, err = s.listOfferings(ctx)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	slices.SortFunc(infos, func(a, b ec2types.InstanceTypeInfo) int { return cmp.Compare(a.InstanceType, b.InstanceType) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing, s.recalled = listing{
		version: s.listing.version + 1, at: s.cfg.Now(), types: infos, zones: zonesOf(offered), offered: offered,
	}, listing{}
	return nil
}

// zonesOf are the zones in which something is offered, sorted.
func zonesOf(offered map[typeInZone]bool) []string {
	zones := map[string]bool{}
	for o := range offered {
		zones[o.zone] = true
	}
	return slices.Sorted(maps.Keys(zones))
}

func (s *Source) listTypes(ctx context.Context) ([]ec2types.InstanceTypeInfo, error) {
	pages := ec2.NewDescribeInstanceTypesPaginator(s.cfg.EC2, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{
			network.Filter("supported-virtualization-type", "hvm"),
			network.Filter("processor-info.supported-architecture", "x86_64", "arm64"),
		},
		MaxResults: aws.Int32(100),
	})
	var infos []ec2types.InstanceTypeInfo
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe instance types: %w", err)
		}
		infos = append(infos, page.InstanceTypes...)
	}
	if len(infos) == 0 {
		return nil, errors.New("no instance types found")
	}
	return infos, nil
}

func (s *Source) listOfferings(ctx context.Context) (map[typeInZone]bool, error) {
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(s.cfg.EC2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone,
		MaxResults:   aws.Int32(1000),
	})
	offered := map[typeInZone]bool{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe instance type offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			offered[typeInZone{string(o.InstanceType), aws.ToString(o.Location)}] = true
		}
	}
	if len(offered) == 0 {
		return nil, errors.New("no instance type offerings found")
	}
	return offered, nil
}

func (s *Source) currentListing(ctx context.Context) (listing, error) {
	s.mu.RLock()
	known, recalled := s.listing, s.recalled
	s.mu.RUnlock()
	if known.version > 0 {
		return known, nil
	}
	if s.cfg.Waiting != nil {
		if err := s.cfg.Waiting(); err != nil {
			return listing{}, err
		}
	}
	if s.usable(recalled) {
		return recalled, nil
	}
	if _, err, _ := s.refreshing.Do("", func() (any, error) { return nil, s.Refresh(ctx) }); err != nil {
		return listing{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.listing, nil
}
