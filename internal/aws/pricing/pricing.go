// Package pricing reads prices per hour: on-demand prices from the Pricing API, spot prices from EC2's price history,
// and until those have answered from the catalog that ships with the program.
//
// Prices are per platform: instances with Windows include the license. Windows prices are read once a node class needs
// them.
//
// An unknown price is absent. It is never zero.
package pricing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"golang.org/x/sync/errgroup"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// Fallback is the catalog of prices that ships with the program, per hour in the currency of the region.
type Fallback interface {
	Price(offline.PriceQuery) (offline.Price, bool)
	// Basis describes the source of a region's prices; empty if the catalog does not contain the region.
	Basis(region string) string
}

// Config configures Prices.
type Config struct {
	Region string
	EC2    ec2.DescribeSpotPriceHistoryAPIClient
	// Pricing is a client for the region PricingRegion(Region). It is nil if the Pricing API cannot be reached
	// (isolated VPC); on-demand prices are those of Fallback then.
	Pricing  pricing.GetProductsAPIClient
	Fallback Fallback
	Now      func() time.Time
}

// Prices are the prices of one region. It is safe for concurrent use.
type Prices struct {
	cfg Config

	mu      sync.RWMutex
	lists   map[offline.Platform]*platformPrices // of the platforms in use
	version uint64
	// read is the result of the last read, by capacity type.
	read map[string]lastRead
	// recalled is when an earlier process read the prices of a capacity type that are used until this one has read them.
	recalled map[string]time.Time
}

// platformPrices describes what AWS has reported for a platform. An empty map was not read yet.
type platformPrices struct {
	onDemand map[string]float64
	spot     map[catalog.OfferingKey]spotPrice
	// read has the capacity types that were read, whether or not there were any prices.
	read map[string]bool
}

type lastRead struct {
	at  time.Time // of the last success
	err error     // of the last attempt
}

// spotKey identifies the spot offering of an instance type in a zone.
func spotKey(instanceType, zone string) catalog.OfferingKey {
	return catalog.OfferingKey{InstanceType: instanceType, Zone: zone, CapacityType: karpv1.CapacityTypeSpot}
}

type spotPrice struct {
	price float64
	at    time.Time
}

// New returns Prices with fallback prices only.
func New(cfg Config) *Prices {
	return &Prices{
		cfg: cfg, lists: map[offline.Platform]*platformPrices{offline.Linux: newList()}, read: map[string]lastRead{},
		recalled: map[string]time.Time{},
	}
}

func newList() *platformPrices {
	return &platformPrices{onDemand: map[string]float64{}, spot: map[catalog.OfferingKey]spotPrice{}, read: map[string]bool{}}
}

// Version changes with the prices.
func (p *Prices) Version() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.version
}

// Quotes are the prices of one platform.
type Quotes struct {
	prices   *Prices
	platform offline.Platform
}

// For returns the prices of a platform. From now on refreshes include the platform.
func (p *Prices) For(platform offline.Platform) Quotes {
	if platform != offline.Windows {
		platform = offline.Linux // the default for everything without a license
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lists[platform] == nil {
		p.lists[platform] = newList()
	}
	return Quotes{p, platform}
}

// OnDemand returns the price of a type per hour. Before the Pricing API has listed the platform, it is the Linux price
// plus what the catalog adds for the platform's license.
func (q Quotes) OnDemand(instanceType string) (float64, bool) {
	p := q.prices
	p.mu.RLock()
	listed := p.lists[q.platform].onDemand
	price, ok := listed[instanceType]
	linux, ofLinux := p.lists[offline.Linux].onDemand[instanceType]
	known := len(listed) > 0
	p.mu.RUnlock()
	switch {
	case ok:
		return price, true
	case q.platform == offline.Linux:
		return p.fallback(offline.PriceQuery{Type: instanceType})
	case known:
		return 0, false // AWS does not offer the type with the platform
	case ofLinux:
		return q.licensed(instanceType, linux)
	}
	return p.fallback(offline.PriceQuery{Type: instanceType, Platform: q.platform})
}

// licensed adds the platform's license in the catalog to a Linux price.
func (q Quotes) licensed(instanceType string, linux float64) (float64, bool) {
	with, ok := q.prices.fallback(offline.PriceQuery{Type: instanceType, Platform: q.platform})
	without, both := q.prices.fallback(offline.PriceQuery{Type: instanceType})
	return linux + with - without, ok && both
}

// fallback returns the catalog's price in the region; for an unknown region, that of the base region.
func (p *Prices) fallback(sale offline.PriceQuery) (float64, bool) {
	if p.cfg.Fallback == nil {
		return 0, false
	}
	sale.Region = p.cfg.Region
	if p.cfg.Fallback.Basis(sale.Region) == "" {
		sale.Region = offline.Base
	}
	price, ok := p.cfg.Fallback.Price(sale)
	return price.PerHour, ok && price.PerHour > 0
}

// Spot returns the price of a type in a zone per hour. Before EC2 has listed the platform, it is the Linux price plus
// the license in the catalog; before EC2 has listed any price, it is the on-demand price. Afterwards a type and zone
// that EC2 does not list has no price.
func (q Quotes) Spot(instanceType, zone string) (float64, bool) {
	p, key := q.prices, spotKey(instanceType, zone)
	p.mu.RLock()
	listed, ofLinux := p.lists[q.platform].spot, p.lists[offline.Linux].spot
	price, ok := listed[key]
	linux, traded := ofLinux[key]
	known, knownLinux := len(listed) > 0, len(ofLinux) > 0
	p.mu.RUnlock()
	switch {
	case known:
		return price.price, ok
	case !knownLinux:
		return q.OnDemand(instanceType)
	case !traded:
		return 0, false
	}
	return q.licensed(instanceType, linux.price)
}

// OnDemand returns the Linux price of a type per hour.
func (p *Prices) OnDemand(instanceType string) (float64, bool) {
	return Quotes{p, offline.Linux}.OnDemand(instanceType)
}

// Spot returns the Linux price of a type in a zone per hour.
func (p *Prices) Spot(instanceType, zone string) (float64, bool) {
	return Quotes{p, offline.Linux}.Spot(instanceType, zone)
}

// platforms returns the platforms in use, sorted.
func (p *Prices) platforms() []offline.Platform {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Sorted(maps.Keys(p.lists))
}

// Refresh reads all prices. Prices that cannot be read stay, and the error lists the failures.
func (p *Prices) Refresh(ctx context.Context) error {
	var group sync.WaitGroup
	var onDemand, spot error
	group.Go(func() { onDemand = p.RefreshOnDemand(ctx) })
	group.Go(func() { spot = p.RefreshSpot(ctx) })
	group.Wait()
	return errors.Join(onDemand, spot)
}

// State returns the source of the prices of each capacity type.
func (p *Prices) State() []cloudprovider.PriceState {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []cloudprovider.PriceState
	for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
		r := p.read[capacityType]
		state := cloudprovider.PriceState{CapacityType: capacityType, Read: r.at, Err: awserrors.WithoutRequestIDs(r.err)}
		if capacityType == karpv1.CapacityTypeOnDemand {
			state.NotReadReason, state.Basis = p.PricingAPIUnused(), p.basis()
		}
		state.RefreshDue = p.due(capacityType) && state.NotReadReason == ""
		out = append(out, state)
	}
	return out
}

// basis describes the prices that ship with the program for this region.
func (p *Prices) basis() string {
	if p.cfg.Fallback == nil {
		return "there are none"
	}
	if basis := p.cfg.Fallback.Basis(p.cfg.Region); basis != "" {
		return p.cfg.Region + ": " + basis
	}
	return p.cfg.Region + " is not among them; prices of " + offline.Base + " are used instead"
}

// due reports whether a platform came into use after the last read. The caller holds the lock.
func (p *Prices) due(capacityType string) bool {
	if p.read[capacityType].at.IsZero() {
		return false
	}
	for _, of := range p.lists {
		if !of.read[capacityType] {
			return true
		}
	}
	return false
}

// PricingRegion returns the region of the Pricing API with the prices of a region.
func PricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	default:
		return "us-east-1"
	}
}

// RefreshOnDemand reads the Pricing API. Types that it no longer lists keep their last price.
func (p *Prices) RefreshOnDemand(ctx context.Context) error {
	if p.PricingAPIUnused() != "" {
		return nil
	}
	err := p.refreshOnDemand(ctx)
	p.recordRead(karpv1.CapacityTypeOnDemand, err)
	return err
}

// PricingAPIUnused returns why the Pricing API is not used; empty if it is.
func (p *Prices) PricingAPIUnused() string {
	switch {
	case p.cfg.Pricing == nil:
		return "an isolated VPC cannot reach the Pricing API"
	case strings.HasPrefix(p.cfg.Region, "us-gov"):
		return "the Pricing API has no prices of GovCloud"
	case strings.HasPrefix(p.cfg.Region, "eusc-"), strings.Contains(p.cfg.Region, "-iso"):
		return "the Pricing API has no endpoint in the partition of " + p.cfg.Region
	}
	return ""
}

// recordRead records the result of reading the prices of a capacity type.
func (p *Prices) recordRead(capacityType string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.read[capacityType]
	r.err = err
	if err == nil {
		r.at = p.cfg.Now()
		delete(p.recalled, capacityType)
	}
	p.read[capacityType] = r
	p.expire()
}

func (p *Prices) refreshOnDemand(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, platform := range p.platforms() {
		group.Go(func() error { return p.readOnDemand(ctx, platform) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("refresh on-demand prices: %w", err)
	}
	return nil
}

func (p *Prices) readOnDemand(ctx context.Context, platform offline.Platform) error {
	var shared, dedicated map[string]float64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		shared, err = p.products(ctx, productFilter{platform, "Shared", "Compute Instance"})
		return err
	})
	group.Go(func() (err error) {
		dedicated, err = p.products(ctx, productFilter{platform, "Dedicated", "Compute Instance (bare metal)"})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if len(shared) == 0 {
		return fmt.Errorf("the Pricing API lists no prices of %s for %s", platformNames[platform].product, p.cfg.Region)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.lists[platform]
	if !of.read[karpv1.CapacityTypeOnDemand] { // what an earlier process has read does not stay
		of.onDemand = map[string]float64{}
	}
	maps.Copy(of.onDemand, dedicated)
	maps.Copy(of.onDemand, shared)
	of.read[karpv1.CapacityTypeOnDemand] = true
	p.version++
	return nil
}

// platformNames are AWS's names of platforms: in the Pricing API, and in the history of spot prices.
var platformNames = map[offline.Platform]struct {
	product string
	spot    []string
}{
	offline.Linux:   {"Linux", []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"}},
	offline.Windows: {"Windows", []string{"Windows", "Windows (Amazon VPC)"}},
}

// platformOf returns the platform of a spot price record.
func platformOf(description string) (offline.Platform, bool) {
	for platform, system := range platformNames {
		if slices.Contains(system.spot, description) {
			return platform, true
		}
	}
	return "", false
}

// productFilter selects a part of the Pricing API's list.
type productFilter struct {
	platform        offline.Platform
	tenancy, family string
}

func (p *Prices) products(ctx context.Context, of productFilter) (map[string]float64, error) {
	prices := map[string]float64{}
	filters := []pricingtypes.Filter{
		term("regionCode", p.cfg.Region),
		term("serviceCode", "AmazonEC2"),
		term("preInstalledSw", "NA"),
		term("operatingSystem", platformNames[of.platform].product),
		term("capacitystatus", "Used"),
		term("marketoption", "OnDemand"),
		term("tenancy", of.tenancy),
		term("productFamily", of.family),
	}
	if of.platform == offline.Windows {
		// The list also has instances for customers with their own license, at the Linux price.
		filters = append(filters, term("licenseModel", "No License required"))
	}
	pages := pricing.NewGetProductsPaginator(p.cfg.Pricing, &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100), Filters: filters,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("get products (%s, %s): %w", of.family, platformNames[of.platform].product, err)
		}
		for _, item := range page.PriceList {
			if instanceType, price, ok := ParseProduct(item, currency(p.cfg.Region)); ok {
				prices[instanceType] = price
			}
		}
	}
	return prices, nil
}

func term(field, value string) pricingtypes.Filter {
	return pricingtypes.Filter{Field: aws.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: aws.String(value)}
}

func currency(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "CNY"
	}
	return "USD"
}

// RefreshSpot reads the current spot prices from EC2; of several for one type and zone the newest counts.
func (p *Prices) RefreshSpot(ctx context.Context) error {
	err := p.refreshSpot(ctx)
	p.recordRead(karpv1.CapacityTypeSpot, err)
	return err
}

func (p *Prices) refreshSpot(ctx context.Context) error {
	found := map[offline.Platform]map[catalog.OfferingKey]spotPrice{}
	var descriptions []string
	for _, platform := range p.platforms() {
		found[platform] = map[catalog.OfferingKey]spotPrice{}
		descriptions = append(descriptions, platformNames[platform].spot...)
	}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(p.cfg.EC2, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: descriptions,
		StartTime:           aws.Time(p.cfg.Now()),
		MaxResults:          aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("refresh spot prices: %w", err)
		}
		for _, record := range page.SpotPriceHistory {
			if platform, ok := platformOf(string(record.ProductDescription)); ok && found[platform] != nil {
				newest(found[platform], record)
			}
		}
	}
	if len(found[offline.Linux]) == 0 {
		return fmt.Errorf("refresh spot prices: EC2 lists no spot prices for %s", p.cfg.Region)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for platform, prices := range found {
		of := p.lists[platform]
		if !of.read[karpv1.CapacityTypeSpot] { // what an earlier process has read does not stay
			of.spot = map[catalog.OfferingKey]spotPrice{}
		}
		maps.Copy(of.spot, prices)
		of.read[karpv1.CapacityTypeSpot] = true
	}
	p.version++
	return nil
}

func newest(prices map[catalog.OfferingKey]spotPrice, record ec2types.SpotPrice) {
	price, err := strconv.ParseFloat(aws.ToString(record.SpotPrice), 64)
	if err != nil || price <= 0 || record.Timestamp == nil {
		return
	}
	key := spotKey(string(record.InstanceType), aws.ToString(record.AvailabilityZone))
	if known, ok := prices[key]; !ok || record.Timestamp.After(known.at) {
		prices[key] = spotPrice{price: price, at: *record.Timestamp}
	}
}
