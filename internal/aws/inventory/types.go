package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// resolvedKey is everything that resolved types depend on, except for unavailable offerings, which have a sequence
// number per type. Two classes with equal inputs share the result.
type resolvedKey struct {
	class             [sha256.Size]byte
	listing           int
	prices            uint64
	userPrices        int // version of the user's prices
	reservationCounts uint64
	memory            uint64
	shiftedZones      string
}

// resolved are the types as a class would launch them.
type resolved struct {
	types []*catalog.InstanceType
	// version is that of the unavailable offerings before they were resolved.
	version uint64
	// sequences has the sequence number of each type when it was resolved.
	sequences []uint64
}

// classInputs is the part of a node class that instance types depend on.
type classInputs struct {
	Class instancetype.Class
	// Images is the key of discovered memory.
	Images string
}

// resolveInputs describes what types are resolved from, beside what changes during the resolution.
type resolveInputs struct {
	// key is that of the result.
	key        resolvedKey
	class      classInputs
	listing    listing
	userPrices map[string]float64
}

// Types returns every type as the class would launch it now, by name. The slice and its elements are shared, and the
// slice stays the same while nothing changes. The first call lists EC2's types if Refresh has not done so.
func (s *Source) Types(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	all, err := s.types(ctx, class)
	if err != nil {
		return nil, fmt.Errorf("instance types of node class %s: %w", class.Name, err)
	}
	return all, nil
}

func (s *Source) types(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if len(class.Status.Subnets) == 0 {
		return nil, fmt.Errorf("no subnets found")
	}
	current, err := s.currentListing(ctx)
	if err != nil {
		return nil, err
	}
	of, err := s.classInputs(ctx, class)
	if err != nil {
		return nil, err
	}
	in, err := s.inputs(of, current)
	if err != nil {
		return nil, err
	}
	if known, ok := s.resolved.Get(in.key); ok && s.isCurrent(known, current) {
		return known.types, nil
	}
	return s.resolve(of, current)
}

// inputs returns what types are resolved from now.
func (s *Source) inputs(of classInputs, current listing) (resolveInputs, error) {
	prices, version := s.userPrices()
	key, err := s.key(of, current, version)
	return resolveInputs{key: key, class: of, listing: current, userPrices: prices}, err
}

// resolve resolves what the cache does not have. One caller does it at a time, and those who waited find its result: 800 types take 0.2 s
// and 17 MB, and while thousands of nodes launch, dozens of reconcilers query within that time. The key is that of when the wait is over:
// an older one would have the result dropped that others use.
func (s *Source) resolve(of classInputs, current listing) ([]*catalog.InstanceType, error) {
	s.resolving.Lock()
	defer s.resolving.Unlock()
	in, err := s.inputs(of, current)
	if err != nil {
		return nil, err
	}
	if known, ok := s.resolved.Get(in.key); ok {
		return s.refreshed(known, in)
	}
	fresh := resolved{version: s.cfg.UnavailableOfferings.Version(), sequences: make([]uint64, len(current.types))}
	for i := range current.types { // before resolving: a mark that is made meanwhile shows the next time
		fresh.sequences[i] = s.cfg.UnavailableOfferings.Sequence(string(current.types[i].InstanceType))
	}
	if fresh.types, err = s.cfg.Resolver.ResolveAll(current.types, of.Class, s.market(in)); err != nil {
		return nil, err
	}
	s.dropOlder(in.key)
	s.resolved.Set(in.key, fresh)
	return fresh.types, nil
}

// isCurrent reports whether no type has other unavailable offerings than when it was resolved.
//
// Cost: one comparison, and one per type after a change.
func (s *Source) isCurrent(known resolved, current listing) bool {
	if s.cfg.UnavailableOfferings.Version() == known.version {
		return true
	}
	for i := range current.types {
		if s.cfg.UnavailableOfferings.Sequence(string(current.types[i].InstanceType)) != known.sequences[i] {
			return false
		}
	}
	return true
}

// dropOlder drops what was resolved for the same class before prices or the like changed: nobody requests it again, and 800 types take
// 25 MB. While many nodes join, the discovered memory changes several times within the TTL.
func (s *Source) dropOlder(than resolvedKey) {
	s.resolved.DeleteFunc(func(key resolvedKey) bool { return key.class == than.class && key != than })
}

// refreshed resolves again the types with changed unavailable offerings.
//
// Cost: one comparison per type, and the offerings of the changed types.
func (s *Source) refreshed(known resolved, in resolveInputs) ([]*catalog.InstanceType, error) {
	var session *instancetype.ClassResolver
	fresh := known
	version := s.cfg.UnavailableOfferings.Version()
	for i := range in.listing.types {
		number := s.cfg.UnavailableOfferings.Sequence(string(in.listing.types[i].InstanceType))
		if number == known.sequences[i] {
			continue
		}
		if session == nil {
			var err error
			if session, err = s.cfg.Resolver.ForClass(in.class.Class, s.market(in)); err != nil {
				return nil, err
			}
			fresh = resolved{version: version, types: slices.Clone(known.types), sequences: slices.Clone(known.sequences)}
		}
		fresh.types[i] = session.RefreshOfferings(in.listing.types[i], known.types[i])
		fresh.sequences[i] = number
	}
	if session != nil {
		s.resolved.Set(in.key, fresh)
	}
	return fresh.types, nil
}

// classInputs reads what instance types depend on. While the placement group is unknown, nothing is available: an
// instance outside of the group would be wrong.
func (s *Source) classInputs(ctx context.Context, class *awsv1.EC2NodeClass) (classInputs, error) {
	traits, err := instancetype.ClassOf(class, image.Family(class))
	if err != nil {
		return classInputs{}, err
	}
	if s.cfg.Reservations == nil {
		traits.Reservations = nil
	}
	if s.cfg.Groups != nil {
		group, err := s.cfg.Groups.Of(ctx, class)
		if err != nil && group.ID == "" {
			traits.LaunchBlocked = "its placement group is not known: " + awserrors.WithoutRequestIDs(err).Error()
		}
		traits.Group = group
	}
	return classInputs{Class: traits, Images: discoveredmemory.Images(class.Status.AMIs)}, nil
}

func (s *Source) key(of classInputs, current listing, userPrices int) (resolvedKey, error) {
	of.Class.Reservations = slices.Clone(of.Class.Reservations)
	for i := range of.Class.Reservations {
		of.Class.Reservations[i].EndTime = nil // the state covers it
	}
	text, err := json.Marshal(of)
	if err != nil {
		return resolvedKey{}, fmt.Errorf("compare node classes: %w", err)
	}
	key := resolvedKey{class: sha256.Sum256(text), listing: current.version, userPrices: userPrices, prices: s.cfg.Prices.Version()}
	if s.cfg.Reservations != nil {
		key.reservationCounts = s.cfg.Reservations.Version()
	}
	if s.cfg.DiscoveredMemory != nil {
		key.memory = s.cfg.DiscoveredMemory.Version()
	}
	var shifted []string
	for _, subnet := range of.Class.Subnets {
		if s.shifted(subnet.ZoneID) {
			shifted = append(shifted, subnet.ZoneID)
		}
	}
	slices.Sort(shifted)
	key.shiftedZones = strings.Join(slices.Compact(shifted), ",")
	return key, nil
}

func (s *Source) shifted(zoneID string) bool {
	return s.cfg.ZoneShifted != nil && zoneID != "" && s.cfg.ZoneShifted(zoneID)
}

func (s *Source) userPrices() (prices map[string]float64, version int) {
	if s.cfg.UserPrices == nil {
		return nil, 0
	}
	return s.cfg.UserPrices()
}

// market returns the state of the listing for a class at the moment.
func (s *Source) market(in resolveInputs) instancetype.Market {
	subnets, ids := map[string][]string{}, map[string]string{}
	for _, subnet := range in.class.Class.Subnets {
		subnets[subnet.Zone] = append(subnets[subnet.Zone], subnet.ID)
		if subnet.ZoneID != "" {
			ids[subnet.Zone] = subnet.ZoneID
		}
	}
	quotes := s.cfg.Prices.For(offline.Platform(in.class.Class.Family.OS))
	market := instancetype.Market{
		Zones:   in.listing.zones,
		Offered: func(instanceType, zone string) bool { return in.listing.offered[typeInZone{instanceType, zone}] },
		OnDemand: func(instanceType string) (float64, bool) {
			if price, known := quotes.OnDemand(instanceType); known {
				return price, true
			}
			price, known := in.userPrices[instanceType]
			return price, known
		},
		Spot: func(instanceType, zone string) (float64, bool) {
			if price, known := quotes.Spot(instanceType, zone); known {
				return price, true
			}
			price, known := in.userPrices[instanceType]
			return price, known
		},
		Unavailable: func(p instancetype.PartitionedOffering) bool {
			return s.cfg.UnavailableOfferings.IsUnavailable(unavailableofferings.Scope{
				OfferingKey: p.OfferingKey, PlacementGroup: in.class.Class.Group.ID, Partition: p.Partition,
			}, subnets[p.Zone])
		},
		ZoneShifted: func(zone string) bool { return s.shifted(ids[zone]) },
	}
	if s.cfg.Reservations != nil {
		market.Remaining, market.ReservationHealthy = s.cfg.Reservations.Remaining, s.cfg.Reservations.Healthy
	}
	if s.cfg.DiscoveredMemory != nil {
		market.DiscoveredMemory = func(instanceType string) (resource.Quantity, bool) {
			return s.cfg.DiscoveredMemory.Of(instanceType, in.class.Images)
		}
	}
	return market
}
