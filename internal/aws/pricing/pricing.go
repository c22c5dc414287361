// Package pricing knows what capacity costs per hour: on demand from the Pricing API, spot from EC2's
// price history, and until those have answered from the catalog that ships with the program.
//
// A price that is not known is absent. It is never zero.
package pricing

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/dovetail-k8s/dovetail/internal/aws/fault"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
)

// Fallback is the catalog of prices that ships with the program, in $/h.
type Fallback interface {
	OnDemand(region, instanceType string) (float64, bool)
}

// Config is what Prices is made of.
type Config struct {
	Region string
	EC2    ec2.DescribeSpotPriceHistoryAPIClient
	// Pricing is a client for the region PricingRegion(Region). It is nil where there is no way to the
	// Pricing API (isolated VPC); on-demand prices are those of Fallback then.
	Pricing  pricing.GetProductsAPIClient
	Fallback Fallback
	Now      func() time.Time
}

// Prices are the prices of one region. It is safe for concurrent use.
type Prices struct {
	cfg Config

	mu       sync.RWMutex
	onDemand map[string]float64
	spot     map[pool]spotPrice
	version  uint64
	// read is what became of reading the prices of a capacity type.
	read map[string]reading
}

type reading struct {
	at  time.Time // of the last success
	err error     // of the last attempt
}

// pool is where spot capacity is traded.
type pool struct{ instanceType, zone string }

type spotPrice struct {
	price float64
	at    time.Time
}

// New returns Prices that know only the fallback.
func New(cfg Config) *Prices {
	return &Prices{cfg: cfg, onDemand: map[string]float64{}, spot: map[pool]spotPrice{}, read: map[string]reading{}}
}

// Version changes with the prices.
func (p *Prices) Version() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.version
}

// OnDemand returns the price of a type in $/h.
func (p *Prices) OnDemand(instanceType string) (float64, bool) {
	p.mu.RLock()
	price, ok := p.onDemand[instanceType]
	p.mu.RUnlock()
	if ok {
		return price, true
	}
	return p.fallback(instanceType)
}

// fallbackRegion has every type that any region has, or nearly so.
const fallbackRegion = "us-east-1"

// yuan is what a dollar is taken for in China until the Pricing API has told what things cost there. Spot prices, which come
// from EC2, are in yuan: without it each would look dearer than on demand.
const yuan = 7

func (p *Prices) fallback(instanceType string) (float64, bool) {
	if p.cfg.Fallback == nil {
		return 0, false
	}
	for _, region := range []string{p.cfg.Region, fallbackRegion} {
		price, ok := p.cfg.Fallback.OnDemand(region, instanceType)
		switch {
		case !ok || price <= 0:
		case region != p.cfg.Region && currency(p.cfg.Region) == "CNY":
			return price * yuan, true
		default:
			return price, true
		}
	}
	return 0, false
}

// Spot returns the price of a type in a zone in $/h. Before EC2 has told any, spot is taken to cost what
// on-demand does; afterwards a pool that EC2 does not trade has no price.
func (p *Prices) Spot(instanceType, zone string) (float64, bool) {
	p.mu.RLock()
	price, ok := p.spot[pool{instanceType, zone}]
	known := len(p.spot) > 0
	p.mu.RUnlock()
	if !known {
		return p.OnDemand(instanceType)
	}
	return price.price, ok
}

// Refresh asks for all prices. What cannot be had stays as it was, and the error says what.
func (p *Prices) Refresh(ctx context.Context) error {
	var group sync.WaitGroup
	var onDemand, spot error
	group.Go(func() { onDemand = p.RefreshOnDemand(ctx) })
	group.Go(func() { spot = p.RefreshSpot(ctx) })
	group.Wait()
	return errors.Join(onDemand, spot)
}

// State says of each capacity type where its prices come from.
func (p *Prices) State() []cloud.PriceState {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []cloud.PriceState
	for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
		r := p.read[capacityType]
		state := cloud.PriceState{CapacityType: capacityType, Read: r.at, Err: fault.Plain(r.err)}
		if capacityType == karpv1.CapacityTypeOnDemand {
			state.Unasked = p.Unasked()
		}
		out = append(out, state)
	}
	return out
}

// PricingRegion is the region whose Pricing API tells the prices of a region.
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

// RefreshOnDemand asks the Pricing API. Types that it no longer lists keep their last price.
func (p *Prices) RefreshOnDemand(ctx context.Context) error {
	if p.Unasked() != "" {
		return nil
	}
	err := p.refreshOnDemand(ctx)
	p.note(karpv1.CapacityTypeOnDemand, err)
	return err
}

// Unasked says why nobody asks the Pricing API; empty if it is asked.
func (p *Prices) Unasked() string {
	switch {
	case p.cfg.Pricing == nil:
		return "an isolated VPC has no way to the Pricing API"
	case strings.HasPrefix(p.cfg.Region, "us-gov"):
		return "the Pricing API has no prices of GovCloud"
	}
	return ""
}

// note remembers what became of reading the prices of a capacity type.
func (p *Prices) note(capacityType string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.read[capacityType]
	r.err = err
	if err == nil {
		r.at = p.cfg.Now()
		p.version++
	}
	p.read[capacityType] = r
}

func (p *Prices) refreshOnDemand(ctx context.Context) error {
	var shared, dedicated map[string]float64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		shared, err = p.products(ctx, "Shared", "Compute Instance")
		return err
	})
	group.Go(func() (err error) {
		dedicated, err = p.products(ctx, "Dedicated", "Compute Instance (bare metal)")
		return err
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("refresh on-demand prices: %w", err)
	}
	if len(shared) == 0 {
		return fmt.Errorf("refresh on-demand prices: the Pricing API lists none for %s", p.cfg.Region)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.onDemand, dedicated)
	maps.Copy(p.onDemand, shared)
	return nil
}

func (p *Prices) products(ctx context.Context, tenancy, family string) (map[string]float64, error) {
	prices := map[string]float64{}
	pages := pricing.NewGetProductsPaginator(p.cfg.Pricing, &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"),
		MaxResults:  aws.Int32(100),
		Filters: []pricingtypes.Filter{
			term("regionCode", p.cfg.Region),
			term("serviceCode", "AmazonEC2"),
			term("preInstalledSw", "NA"),
			term("operatingSystem", "Linux"),
			term("capacitystatus", "Used"),
			term("marketoption", "OnDemand"),
			term("tenancy", tenancy),
			term("productFamily", family),
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("get products (%s): %w", family, err)
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

// RefreshSpot asks EC2 for the present spot prices; of several for one pool the newest counts.
func (p *Prices) RefreshSpot(ctx context.Context) error {
	err := p.refreshSpot(ctx)
	p.note(karpv1.CapacityTypeSpot, err)
	return err
}

func (p *Prices) refreshSpot(ctx context.Context) error {
	prices := map[pool]spotPrice{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(p.cfg.EC2, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		StartTime:           aws.Time(p.cfg.Now()),
		MaxResults:          aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("refresh spot prices: %w", err)
		}
		for _, record := range page.SpotPriceHistory {
			newest(prices, record)
		}
	}
	if len(prices) == 0 {
		return fmt.Errorf("refresh spot prices: EC2 lists none for %s", p.cfg.Region)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.spot, prices)
	return nil
}

func newest(prices map[pool]spotPrice, record ec2types.SpotPrice) {
	price, err := strconv.ParseFloat(aws.ToString(record.SpotPrice), 64)
	if err != nil || price <= 0 || record.Timestamp == nil {
		return
	}
	key := pool{string(record.InstanceType), aws.ToString(record.AvailabilityZone)}
	if known, ok := prices[key]; !ok || record.Timestamp.After(known.at) {
		prices[key] = spotPrice{price: price, at: *record.Timestamp}
	}
}
