package pricing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
)

// fakePricing is the Pricing API: prices by tenancy (of Windows, with "Windows " before it) and type, a page for each type.
type fakePricing struct {
	currency string
	prices   map[string]map[string]string
	err      error
	mu       sync.Mutex
	calls    int
}

func (l *fakePricing) GetProducts(
	_ context.Context,
	in *pricing.GetProductsInput,
	_ ...func(*pricing.Options),
) (*pricing.GetProductsOutput, error) {
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	filters := map[string]string{}
	for _, f := range in.Filters {
		filters[aws.ToString(f.Field)] = aws.ToString(f.Value)
	}
	tenancy := filters["tenancy"]
	if filters["operatingSystem"] == "Windows" && filters["licenseModel"] == "No License required" {
		tenancy = "Windows " + tenancy
	}
	names := slices.Sorted(maps.Keys(l.prices[tenancy]))
	page, _ := strconv.Atoi(aws.ToString(in.NextToken))
	if page >= len(names) {
		return &pricing.GetProductsOutput{}, nil
	}
	out := &pricing.GetProductsOutput{PriceList: []string{item(names[page], l.currency, l.prices[tenancy][names[page]])}}
	if page+1 < len(names) {
		out.NextToken = aws.String(strconv.Itoa(page + 1))
	}
	return out, nil
}

// exchange is EC2's history of spot prices.
type exchange struct {
	records []ec2types.SpotPrice
	err     error
}

func (e *exchange) DescribeSpotPriceHistory(
	_ context.Context,
	in *ec2.DescribeSpotPriceHistoryInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	out := &ec2.DescribeSpotPriceHistoryOutput{}
	for _, r := range e.records {
		if slices.Contains(in.ProductDescriptions, string(r.ProductDescription)) {
			out.SpotPriceHistory = append(out.SpotPriceHistory, r)
		}
	}
	return out, e.err
}

func quote(instanceType, zone, price string) ec2types.SpotPrice {
	return ec2types.SpotPrice{
		InstanceType:       ec2types.InstanceType(instanceType),
		AvailabilityZone:   aws.String(zone),
		SpotPrice:          aws.String(price),
		Timestamp:          aws.Time(noon),
		ProductDescription: "Linux/UNIX",
	}
}

func windows(instanceType, zone, price string) ec2types.SpotPrice {
	q := quote(instanceType, zone, price)
	q.ProductDescription = "Windows"
	return q
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func shared(prices map[string]string) map[string]map[string]string {
	return map[string]map[string]string{"Shared": prices, "Dedicated": {"m5.metal": "4.608"}}
}

// market is a region with its prices.
type market struct {
	*Prices
	list *fakePricing
	spot *exchange
}

func open(region string, prices map[string]string) market {
	m := market{
		list: &fakePricing{currency: currency(region), prices: shared(prices)},
		spot: &exchange{records: []ec2types.SpotPrice{quote("m5.large", "a", "0.03")}},
	}
	m.Prices = New(Config{
		Region: region, EC2: m.spot, Pricing: m.list, Now: func() time.Time { return noon },
		Fallback: builtIn{
			"us-east-1/m5.large": 0.096, "us-east-1/c5.large": 0.085, "us-east-1/m5.large windows": 0.188, "us-east-1/c5.large windows": 0.177,
			"cn-north-1/m5.large": 1.013, "us-gov-west-1/m5.large": 0.121,
		},
	})
	return m
}

func (m market) expect(t *testing.T, instanceType string, want float64) {
	t.Helper()
	if got, ok := m.OnDemand(instanceType); got != want || ok != (want > 0) {
		t.Errorf("%s costs %v (%v), want %v", instanceType, got, ok, want)
	}
}

func TestRefresh(t *testing.T) {
	t.Run("both queries count", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1", "c5.large": "0.09"})
		version := m.Version()
		if err := m.Refresh(t.Context()); err != nil || m.Version() == version {
			t.Fatalf("%v, version %d", err, m.Version())
		}
		m.expect(t, "m5.large", 0.1)
		m.expect(t, "m5.metal", 4.608)
		for _, s := range m.State() {
			if !s.Read.Equal(noon) || s.Err != nil || s.BuiltIn() {
				t.Errorf("%+v", s)
			}
		}
	})
	t.Run("the Pricing API fails", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1"})
		m.list.err = errors.New("AccessDeniedException")
		if err := m.RefreshOnDemand(t.Context()); err == nil {
			t.Fatal("no error")
		}
		m.expect(t, "m5.large", 0.096) // what ships with the program
		if s := m.State()[0]; !s.BuiltIn() || s.Err == nil {
			t.Errorf("%+v", s)
		}
		m.list.err = nil
		if err := m.RefreshOnDemand(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.list.err = errors.New("AccessDeniedException")
		if err := m.RefreshOnDemand(t.Context()); err == nil {
			t.Fatal("no error")
		}
		m.expect(t, "m5.large", 0.1) // what was read before
		if s := m.State()[0]; s.BuiltIn() || s.Err == nil || !s.Read.Equal(noon) {
			t.Errorf("%+v", s)
		}
	})
	t.Run("fewer types than before", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1", "c5.large": "0.09"})
		if err := m.RefreshOnDemand(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.list.prices = shared(map[string]string{"m5.large": "0.11"})
		if err := m.RefreshOnDemand(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.expect(t, "m5.large", 0.11)
		m.expect(t, "c5.large", 0.09)
		m.list.prices = map[string]map[string]string{"Dedicated": {"m5.metal": "5"}}
		if err := m.RefreshOnDemand(t.Context()); err == nil {
			t.Error("an empty list is taken for an answer")
		}
		m.expect(t, "m5.metal", 4.608)
	})
	t.Run("a region without bare metal", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1"})
		delete(m.list.prices, "Dedicated")
		if err := m.RefreshOnDemand(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.expect(t, "m5.large", 0.1)
	})
	t.Run("China pays in yuan", func(t *testing.T) {
		m := open("cn-north-1", map[string]string{"m5.large": "1.1"})
		m.expect(t, "m5.large", 1.013) // what ships with the program is in yuan, as spot prices are
		if err := m.RefreshOnDemand(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.expect(t, "m5.large", 1.1)
		m.list.currency = "USD"
		if err := m.RefreshOnDemand(t.Context()); err == nil {
			t.Error("prices in dollars are taken for yuan")
		}
	})
	t.Run("GovCloud and isolated VPCs", func(t *testing.T) {
		gov := open("us-gov-west-1", map[string]string{"m5.large": "0.1"})
		isolated := market{
			Prices: New(Config{Region: "eu-west-1", EC2: &exchange{records: gov.spot.records}, Fallback: gov.cfg.Fallback, Now: gov.cfg.Now}),
		}
		for m, price := range map[market]float64{gov: 0.121, isolated: 0.096} {
			if err := m.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.expect(t, "m5.large", price)
			if s := m.State()[0]; !s.BuiltIn() || s.NotReadReason == "" {
				t.Errorf("%+v", s)
			}
		}
		if gov.list.calls != 0 {
			t.Errorf("the Pricing API was called %d times", gov.list.calls)
		}
	})
	t.Run("a price of zero", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.0000", "c5.large": "0.09", "x9.large": "0.0000"})
		m.spot.records = append(m.spot.records, quote("c5.large", "a", "0.0000"))
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.expect(t, "m5.large", 0.096)
		m.expect(t, "x9.large", 0)
		if price, ok := m.Spot("c5.large", "a"); ok {
			t.Errorf("c5.large as spot costs %v", price)
		}
	})
	t.Run("one kind fails, the other is read", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1"})
		m.spot.err = errors.New("UnauthorizedOperation")
		if err := m.Refresh(t.Context()); err == nil {
			t.Error("no error")
		}
		m.expect(t, "m5.large", 0.1)
		if price, ok := m.Spot("m5.large", "a"); !ok || price != 0.1 {
			t.Errorf("spot costs %v, %v; want the on-demand price until EC2 has listed spot prices", price, ok)
		}
		m.spot.err, m.spot.records = nil, nil
		if err := m.RefreshSpot(t.Context()); err == nil {
			t.Error("an empty history is taken for an answer")
		}
	})
}

func TestSpotPoolsWithoutAPrice(t *testing.T) {
	t.Run("spot never reported in a zone", func(t *testing.T) {
		m := open("us-east-1", map[string]string{"m5.large": "0.1"})
		if price, ok := m.Spot("m5.large", "b"); !ok || price != 0.096 {
			t.Errorf("before the first answer: %v, %v", price, ok)
		}
		if err := m.RefreshSpot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if price, ok := m.Spot("m5.large", "b"); ok {
			t.Errorf("a pool that EC2 does not trade has the price %v", price)
		}
		m.spot.records = []ec2types.SpotPrice{quote("m5.large", "b", "0.04")}
		if err := m.RefreshSpot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if price, ok := m.Spot("m5.large", "a"); !ok || price != 0.03 {
			t.Errorf("what was traded before costs %v, %v", price, ok)
		}
	})
}
