// Package offerings is what EC2 offers a node class now: instance types with their zones, capacity types and prices, without
// what EC2 has no capacity for. It joins the leaves that know one part each, and passes to them what others observe.
package offerings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Config describes what a Source is made of. All but Reservations is needed.
type Config struct {
	Inventory *inventory.Source
	Prices    *pricing.Prices
	// Reservations is nil while the feature gate ReservedCapacity is off.
	Reservations *reservation.Finder
	Unavailable  *unavailableofferings.Cache
	Discovered   *discoveredmemory.Memory
	// Kept keeps instance types and prices for the next process; nil keeps nothing.
	Kept Keeper
	Log  *slog.Logger
}

// Source answers with the present offerings. It is safe for concurrent use.
type Source struct{ cfg Config }

// New returns a Source. It makes no calls.
func New(cfg Config) *Source { return &Source{cfg: cfg} }

// Refresh renews instance types and prices. What cannot be read stays as it was.
func (s *Source) Refresh(ctx context.Context) error {
	return errors.Join(s.RefreshTypes(ctx), s.RefreshPrices(ctx))
}

// RefreshTypes lists the instance types of the region. Until it has succeeded once, nothing can be launched, unless Recall has found a
// listing of an earlier process.
func (s *Source) RefreshTypes(ctx context.Context) error {
	err := s.cfg.Inventory.Refresh(ctx)
	if err == nil {
		s.keepTypes(ctx)
	}
	return err
}

// RefreshPrices reads prices. Until it succeeds, those of an earlier process are used, or those that ship with the program.
func (s *Source) RefreshPrices(ctx context.Context) error {
	err := s.cfg.Prices.Refresh(ctx)
	if err != nil && awserrors.IsRetryable(err) {
		return err
	}
	if err != nil { // a part that the role may not read: nobody should plan with what an earlier role has read
		s.cfg.Prices.Forget()
	}
	s.keepPrices(ctx)
	return err
}

// InstanceTypes returns every type as the class would launch it now, by name.
func (s *Source) InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	s.countReservations(ctx, class)
	return s.cfg.Inventory.Types(ctx, class)
}

// countReservations reads the reservations of a class if their instances are not counted yet, so that a process that has just
// started uses them before the class is next resolved.
func (s *Source) countReservations(ctx context.Context, class *awsv1.EC2NodeClass) {
	if s.cfg.Reservations == nil || s.cfg.Reservations.AllCounted(class.Status.CapacityReservations) {
		return
	}
	if _, err := s.cfg.Reservations.Reservations(ctx, ClassKey(class), class.Spec.CapacityReservationSelectorTerms); err != nil {
		s.cfg.Log.Warn(
			"capacity reservations cannot be counted, and are not used",
			"nodeClass",
			class.Name,
			"error",
			awserrors.WithoutRequestIDs(err),
		)
	}
}

// ClassKey is the key under which answers about a class are cached: an edit of the class misses the cache.
func ClassKey(class *awsv1.EC2NodeClass) string {
	return fmt.Sprintf("%s-%d", class.UID, class.Generation)
}

// Price returns the present price of an offering in $/h.
func (s *Source) Price(instanceType, zone, capacityType string) (float64, bool) {
	switch price, known := s.cfg.Prices.OnDemand(instanceType); capacityType {
	case karpv1.CapacityTypeSpot:
		return s.cfg.Prices.Spot(instanceType, zone)
	case karpv1.CapacityTypeReserved:
		return price / instancetype.ReservedDiscount, known
	default:
		return price, known
	}
}

// PriceState returns where the prices of each capacity type come from.
func (s *Source) PriceState() []cloudprovider.PriceState { return s.cfg.Prices.State() }

// Named returns the instance type of that name; nil if it is not among types.
func Named(types []*catalog.InstanceType, name string) *catalog.InstanceType {
	n := slices.IndexFunc(types, func(t *catalog.InstanceType) bool { return t.Name == name })
	if n < 0 {
		return nil
	}
	return types[n]
}

// ImageFor is the image that a class would launch an instance type with now; empty if no image suits the type.
func (s *Source) ImageFor(ctx context.Context, class *awsv1.EC2NodeClass, instanceType string) (string, error) {
	types, err := s.cfg.Inventory.Types(ctx, class)
	if err != nil {
		return "", err
	}
	t := Named(types, instanceType)
	if t == nil {
		return "", fmt.Errorf("the instance type %q is not known", instanceType)
	}
	return launch.ImageFor(class, t)
}

// NodeSeen records how much memory a node of a class has, so that others of its type are planned with as much. A node with
// another image than the class would launch now is ignored: new nodes will differ from it.
func (s *Source) NodeSeen(
	ctx context.Context,
	class *awsv1.EC2NodeClass,
	instanceType, imageID string,
	memory resource.Quantity,
) error {
	now, err := s.ImageFor(ctx, class, instanceType)
	if err != nil || imageID == "" || now != imageID {
		return err
	}
	s.cfg.Discovered.Note(instanceType, discoveredmemory.Images(class.Status.AMIs), memory)
	return nil
}

// SpotInterrupted marks the offering of an interrupted spot instance as unavailable: another one would not live long.
func (s *Source) SpotInterrupted(instanceType, zone string) {
	s.cfg.Unavailable.MarkOffering(catalog.OfferingKey{CapacityType: karpv1.CapacityTypeSpot, InstanceType: instanceType, Zone: zone})
}

// ReservationInterrupted marks a capacity reservation as unavailable, after its owner has reclaimed it.
func (s *Source) ReservationInterrupted(id string) {
	if s.cfg.Reservations != nil {
		s.cfg.Reservations.Unavailable(id)
	}
}
