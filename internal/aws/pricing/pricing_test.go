package pricing

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
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
		return ec2types.SpotPrice{InstanceType: "m5.large", AvailabilityZone: aws.String("a"), SpotPrice: aws.String(price), Timestamp: aws.Time(at.Add(time.Duration(minute) * time.Minute))}
	}
	prices := map[pool]spotPrice{}
	without := record("9", 9)
	without.Timestamp = nil
	for _, r := range []ec2types.SpotPrice{record("0.03", 1), record("0.05", 3), record("0.04", 2), record("0", 4), record("x", 5), without} {
		newest(prices, r)
	}
	if got := prices[pool{"m5.large", "a"}].price; got != 0.05 {
		t.Errorf("price is %v", got)
	}
}

type list map[string]float64

func (l list) OnDemand(region, instanceType string) (float64, bool) {
	price, ok := l[region+"/"+instanceType]
	return price, ok
}

func TestBeforeTheFirstAnswer(t *testing.T) {
	p := New(Config{Region: "eu-west-3", Fallback: list{"us-east-1/m5.large": 0.096, "eu-west-3/c5.large": 0.1, "us-east-1/c5.large": 0.08, "eu-west-3/zero": 0}})
	for _, tc := range []struct {
		name, instanceType string
		price              float64
		ok                 bool
	}{
		{"the region's own", "c5.large", 0.1, true},
		{"a region without list costs what us-east-1 does", "m5.large", 0.096, true},
		{"unknown", "x9.large", 0, false},
		{"zero is not free", "zero", 0, false},
	} {
		price, ok := p.OnDemand(tc.instanceType)
		spot, spotOK := p.Spot(tc.instanceType, "eu-west-3a")
		if price != tc.price || ok != tc.ok || spot != tc.price || spotOK != tc.ok {
			t.Errorf("%s: on demand %v %v, spot %v %v", tc.name, price, ok, spot, spotOK)
		}
	}
}

func TestPricingRegion(t *testing.T) {
	for region, want := range map[string]string{
		"ap-southeast-2": "ap-south-1", "cn-north-1": "cn-northwest-1", "eu-west-1": "eu-central-1", "us-west-2": "us-east-1", "sa-east-1": "us-east-1",
	} {
		if got := PricingRegion(region); got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
	}
}
