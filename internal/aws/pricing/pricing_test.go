package pricing

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

func item(instanceType, currency, price string) string {
	return `{"product":{"attributes":{"instanceType":"` + instanceType + `"}},"terms":{"OnDemand":{"A.B":{"priceDimensions":{"A.B.C":{"pricePerUnit":{"` + currency + `":"` + price + `"}}}}}}}`
}

func TestParseProduct(t *testing.T) {
	for _, tc := range []struct {
		name, item, currency string
		price                float64
		ok                   bool
	}{
		{"a price", item("m5.large", "USD", "0.0960000000"), "USD", 0.096, true},
		{"China", item("m5.large", "CNY", "1.1"), "CNY", 1.1, true},
		{"another currency only", item("m5.large", "USD", "0.096"), "CNY", 0, false},
		{"zero is not free", item("m5.large", "USD", "0.0000"), "USD", 0, false},
		{"not a number", item("m5.large", "USD", "n/a"), "USD", 0, false},
		{"no type", item("", "USD", "0.096"), "USD", 0, false},
		{"no JSON", "{", "USD", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, price, ok := ParseProduct(tc.item, tc.currency)
			if price != tc.price || ok != tc.ok {
				t.Errorf("got %v, %v", price, ok)
			}
		})
	}
}

func TestNewestSpotPriceCounts(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := func(price string, minute int) ec2types.SpotPrice {
		return ec2types.SpotPrice{
			InstanceType:     "m5.large",
			AvailabilityZone: aws.String("a"),
			SpotPrice:        aws.String(price),
			Timestamp:        aws.Time(at.Add(time.Duration(minute) * time.Minute)),
		}
	}
	prices := map[catalog.OfferingKey]spotPrice{}
	without := record("9", 9)
	without.Timestamp = nil
	for _, r := range []ec2types.SpotPrice{record("0.03", 1), record("0.05", 3), record("0.04", 2), record("0", 4), record("x", 5), without} {
		newest(prices, r)
	}
	if got := prices[spotKey("m5.large", "a")].price; got != 0.05 {
		t.Errorf("price is %v", got)
	}
}

// builtIn are prices that ship with the program, by region and type; " windows" behind the type is of Windows.
type builtIn map[string]float64

func (b builtIn) Price(s offline.PriceQuery) (offline.Price, bool) {
	key := s.Region + "/" + s.Type
	if s.Platform == offline.Windows {
		key += " windows"
	}
	price, ok := b[key]
	return offline.Price{PerHour: price}, ok
}

func (b builtIn) Basis(region string) string {
	for key := range b {
		if strings.HasPrefix(key, region+"/") {
			return "prices of " + region
		}
	}
	return ""
}

func TestFallbackPricesBeforeTheFirstRead(t *testing.T) {
	p := New(
		Config{
			Region:   "eu-west-3",
			Fallback: builtIn{"us-east-1/m5.large": 0.096, "eu-west-3/c5.large": 0.1, "us-east-1/c5.large": 0.08, "eu-west-3/zero": 0},
		},
	)
	far := New(Config{Region: "mx-central-1", Fallback: p.cfg.Fallback})
	for _, tc := range []struct {
		name         string
		prices       *Prices
		instanceType string
		price        float64
		ok           bool
	}{
		{"the region's own", p, "c5.large", 0.1, true},
		{"what the region's table does not have, though another's has", p, "m5.large", 0, false},
		{"a region without a table costs what us-east-1 does", far, "m5.large", 0.096, true},
		{"unknown", p, "x9.large", 0, false},
		{"zero is not free", p, "zero", 0, false},
	} {
		price, ok := tc.prices.OnDemand(tc.instanceType)
		spot, spotOK := tc.prices.Spot(tc.instanceType, "eu-west-3a")
		if price != tc.price || ok != tc.ok || spot != tc.price || spotOK != tc.ok {
			t.Errorf("%s: on demand %v %v, spot %v %v", tc.name, price, ok, spot, spotOK)
		}
	}
}

// What ships with the program, in regions that the Pricing API of other partitions does not list.
func TestGovCloudAndChinaUseTheirOwnFallbackPrices(t *testing.T) {
	data, err := offline.Load("us-gov-west-1", "cn-north-1", "cn-northwest-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		region, instanceType string
		price                float64
		said                 string
	}{
		{"us-gov-west-1", "m5.large", 0.121, "us-gov-west-1: prices of July 2026"},
		{"us-gov-west-1", "p3.2xlarge", 3.672, "us-gov-west-1: prices of July 2026"},
		{"cn-north-1", "m5.large", 1.013, "cn-north-1: prices of November 2024"},
		{"cn-northwest-1", "m5.large", 1.013, "those of cn-north-1 are taken"},
		{"us-iso-east-1", "m5.large", 0.096, "us-iso-east-1 is not among them; prices of us-east-1 are used instead"},
	} {
		p := New(Config{Region: tc.region, Fallback: data})
		if price, ok := p.OnDemand(tc.instanceType); !ok || price != tc.price {
			t.Errorf("%s in %s costs %v, %v; want %v", tc.instanceType, tc.region, price, ok, tc.price)
		}
		if state := p.State()[0]; state.NotReadReason == "" || !strings.Contains(state.Basis, tc.said) {
			t.Errorf("%s: %+v, want %q", tc.region, state, tc.said)
		}
	}
}

func TestPricingRegion(t *testing.T) {
	for region, want := range map[string]string{
		"ap-southeast-2": "ap-south-1", "cn-north-1": "cn-northwest-1", "eu-west-1": "eu-central-1", "us-west-2": "us-east-1",
		"sa-east-1": "us-east-1",
	} {
		if got := PricingRegion(region); got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
	}
}
