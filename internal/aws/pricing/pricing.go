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
}

// pool is where spot capacity is traded.
type pool struct{ instanceType, zone string }

type spotPrice struct {
	price float64
	at    time.Time
}

// New returns Prices that know only the fallback.
func New(cfg Config) *Prices {
	return &Prices{cfg: cfg, onDemand: map[string]float64{}, spot: map[pool]spotPrice{}}
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

func (p *Prices) fallback(instanceType string) (float64, bool) {
	if p.cfg.Fallback == nil {
		return 0, false
	}
	for _, region := range []string{p.cfg.Region, fallbackRegion} {
		if price, ok := p.cfg.Fallback.OnDemand(region, instanceType); ok && price > 0 {
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
	return errors.Join(p.RefreshOnDemand(ctx), p.RefreshSpot(ctx))
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
	if p.cfg.Pricing == nil || strings.HasPrefix(p.cfg.Region, "us-gov") {
		return nil
	}
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
			note(prices, record)
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

func note(prices map[pool]spotPrice, record ec2types.SpotPrice) {
	price, err := strconv.ParseFloat(aws.ToString(record.SpotPrice), 64)
	if err != nil || price <= 0 || record.Timestamp == nil {
		return
	}
	key := pool{string(record.InstanceType), aws.ToString(record.AvailabilityZone)}
	if known, ok := prices[key]; !ok || record.Timestamp.After(known.at) {
		prices[key] = spotPrice{price: price, at: *record.Timestamp}
	}
}
