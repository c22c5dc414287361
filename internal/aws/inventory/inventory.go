// Package inventory lists what EC2 sells in a region, and composes of it what a node class can launch at
// the moment: prices and scarcity included.
package inventory

import (
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
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/scarcity"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// API is what Source calls of EC2.
type API interface {
	ec2.DescribeInstanceTypesAPIClient
	ec2.DescribeInstanceTypeOfferingsAPIClient
}

// composedFor bounds how late the end of a scarcity and a new price show.
const composedFor = 30 * time.Second

// Config is what a Source works with.
type Config struct {
	EC2      API
	Resolver *instancetype.Resolver
	Prices   *pricing.Prices
	Scarcity *scarcity.Memory
	// Reservations are counted; nil where the feature is off: there are none then, whatever a class's status says.
	Reservations *reservation.Finder
	// UserPrices are the user's, in $/h by type, of types that have none otherwise, with a version that changes with
	// them. Nil has none.
	UserPrices func() (prices map[string]float64, version int)
	Now        func() time.Time
}

// Source knows the instance types of a region. It is safe for concurrent use.
type Source struct {
	cfg      Config
	loading  singleflight.Group
	composed *memo.Memo[composedKey, []*catalog.InstanceType]

	mu    sync.RWMutex
	stock stock
}

// stock is what EC2 sells, as last listed. It is replaced as a whole.
type stock struct {
	version int
	types   []ec2types.InstanceTypeInfo
	zones   []string // sorted
	offered map[offer]bool
}

type offer struct{ instanceType, zone string }

// composedKey is what composed types depend on.
type composedKey struct {
	class   types.UID
	version string // of the class object, status included
	stock   int
	marks   uint64
	users   int    // version of the user's prices
	counts  uint64 // of reservations
}

// New returns a Source that has listed nothing yet.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, composed: memo.New[composedKey, []*catalog.InstanceType](composedFor, cfg.Now)}
}

// Refresh lists types and offerings anew. After an error the last listing stays.
func (s *Source) Refresh(ctx context.Context) error {
	var infos []ec2types.InstanceTypeInfo
	var offered map[offer]bool
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
	zones := map[string]bool{}
	for o := range offered {
		zones[o.zone] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock = stock{version: s.stock.version + 1, types: infos, zones: slices.Sorted(maps.Keys(zones)), offered: offered}
	return nil
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

func (s *Source) listOfferings(ctx context.Context) (map[offer]bool, error) {
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(s.cfg.EC2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone,
		MaxResults:   aws.Int32(1000),
	})
	offered := map[offer]bool{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe instance type offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			offered[offer{string(o.InstanceType), aws.ToString(o.Location)}] = true
		}
	}
	if len(offered) == 0 {
		return nil, errors.New("no instance types offerings found")
	}
	return offered, nil
}

// Types returns every type as the class would launch it now, by name. The slice and what it refers to are
// shared. The first call lists what EC2 sells if Refresh has not done so.
func (s *Source) Types(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if len(class.Status.Subnets) == 0 {
		return nil, fmt.Errorf("instance types of node class %s: no subnets found", class.Name)
	}
	stock, err := s.loaded(ctx)
	if err != nil {
		return nil, fmt.Errorf("instance types of node class %s: %w", class.Name, err)
	}
	users, version := s.userPrices()
	key := composedKey{class: class.UID, version: class.ResourceVersion, stock: stock.version, marks: s.cfg.Scarcity.Marks(), users: version}
	if s.cfg.Reservations != nil {
		key.counts = s.cfg.Reservations.Version()
	}
	cacheable := key.class != "" && key.version != ""
	if known, ok := s.composed.Get(key); ok && cacheable {
		return known, nil
	}
	traits, err := instancetype.ClassOf(class, image.Family(class))
	if err != nil {
		return nil, fmt.Errorf("instance types of node class %s: %w", class.Name, err)
	}
	if s.cfg.Reservations == nil {
		traits.Reservations = nil
	}
	all := s.cfg.Resolver.All(stock.types, traits, s.market(stock, class, users))
	if cacheable {
		s.composed.Put(key, all)
	}
	return all, nil
}

func (s *Source) loaded(ctx context.Context) (stock, error) {
	s.mu.RLock()
	known := s.stock
	s.mu.RUnlock()
	if known.version > 0 {
		return known, nil
	}
	if _, err, _ := s.loading.Do("", func() (any, error) { return nil, s.Refresh(ctx) }); err != nil {
		return stock{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stock, nil
}

func (s *Source) userPrices() (prices map[string]float64, version int) {
	if s.cfg.UserPrices == nil {
		return nil, 0
	}
	return s.cfg.UserPrices()
}

// market is what holds of the stock for a class at the moment.
func (s *Source) market(stock stock, class *awsv1.EC2NodeClass, users map[string]float64) instancetype.Market {
	subnets := map[string][]string{}
	for _, subnet := range class.Status.Subnets {
		subnets[subnet.Zone] = append(subnets[subnet.Zone], subnet.ID)
	}
	market := instancetype.Market{
		Zones:   stock.zones,
		Offered: func(instanceType, zone string) bool { return stock.offered[offer{instanceType, zone}] },
		OnDemand: func(instanceType string) (float64, bool) {
			if price, known := s.cfg.Prices.OnDemand(instanceType); known {
				return price, true
			}
			price, known := users[instanceType]
			return price, known
		},
		Spot: func(instanceType, zone string) (float64, bool) {
			if price, known := s.cfg.Prices.Spot(instanceType, zone); known {
				return price, true
			}
			price, known := users[instanceType]
			return price, known
		},
		Unavailable: func(instanceType, zone, capacityType string) bool {
			return s.cfg.Scarcity.Scarce(scarcity.Offering{CapacityType: capacityType, InstanceType: instanceType, Zone: zone}, subnets[zone])
		},
	}
	if s.cfg.Reservations != nil {
		market.Remaining = s.cfg.Reservations.Remaining
	}
	return market
}
