package offline

import (
	"math"
	"strings"
	"testing"
)

// leastSold sets how many types the smallest regions offer at a known price.
const leastSold = 250

func TestEveryRegionHasPrices(t *testing.T) {
	c := load(t)
	if n := len(c.Regions()); n != 34 {
		t.Errorf("%d regions, want 30, two of GovCloud and two of China: %v", n, c.Regions())
	}
	for _, region := range c.Regions() {
		sold := 0
		for _, typ := range c.Types() {
			if c.ZoneIDs(region, typ.Name) == nil {
				continue
			}
			od, hasOD := c.Price(PriceQuery{Region: region, Type: typ.Name})
			spot, hasSpot := c.Price(PriceQuery{Region: region, Type: typ.Name, Spot: true})
			if hasOD {
				sold++
			}
			if hasOD && (od.PerHour < 0.0025 || od.PerHour > 3000) {
				t.Errorf("%s in %s: %v an hour", typ.Name, region, od)
			}
			if hasOD != hasSpot || spot.PerHour > od.PerHour || hasSpot && spot.PerHour <= 0 {
				t.Errorf("%s in %s: spot %v, on demand %v", typ.Name, region, spot, od)
			}
		}
		if sold < leastSold {
			t.Errorf("%s sells %d types, want at least %d", region, sold, leastSold)
		}
		if c.Basis(region) == "" {
			t.Errorf("%s: nothing says where its prices come from", region)
		}
	}
}

func TestPricesOfNothing(t *testing.T) {
	c := load(t)
	for _, s := range []PriceQuery{
		{Region: "us-east-1", Type: "m99.large"},
		{Region: "mars-north-1", Type: "m5.large"},
		{Region: "mars-north-1", Type: "m5.large", Spot: true},
		{Region: "us-east-1", Type: "m7g.large", Platform: Windows},
		{Region: "us-east-1", Type: "mac2.metal"},
	} {
		if p, ok := c.Price(s); ok {
			t.Errorf("%+v costs %v", s, p)
		}
	}
	one, err := Load("eu-west-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := one.OnDemand("eu-west-2", "m5.large"); ok {
		t.Error("a region that was not loaded has a price")
	}
	if same, _ := one.OnDemand("eu-west-1", "m8i.large"); same == 0 {
		t.Error("what was loaded alone has no derived price")
	}
	if elsewhere, err := Load("mars-north-1"); err != nil || len(elsewhere.Regions()) != 1 {
		t.Errorf("a region that is none: %v", err)
	}
}

// priced is a sale and what it costs.
type priced struct {
	name string
	PriceQuery
	want    float64
	derived bool
}

func expect(t *testing.T, c *Catalog, want priced) {
	t.Helper()
	if got, ok := c.Price(want.PriceQuery); !ok || got.Derived != want.derived || math.Abs(got.PerHour-want.want) > 1e-5 {
		t.Errorf("%s: %+v costs %+v, want %v", want.name, want.PriceQuery, got, want.want)
	}
}

func TestAPriceThatARegionLacksIsDerivedAndMarked(t *testing.T) {
	c := load(t)
	for _, tc := range []priced{
		{"a region's own", PriceQuery{Region: "eu-west-1", Type: "m5.large"}, 0.107, false},
		{"its own as spot", PriceQuery{Region: "eu-west-1", Type: "m5.large", Spot: true}, 0.04708, false},
		{"younger than the region's list: us-east-1's 0.10584 times 1.115", PriceQuery{Region: "eu-west-1", Type: "m8i.large"}, 0.11801, true},
		{"us-east-1's is not derived", PriceQuery{Region: "us-east-1", Type: "m8i.large"}, 0.10584, false},
		{
			"spot, of which no price is known: the share that others cost",
			PriceQuery{Region: "us-east-1", Type: "m8i.large", Spot: true},
			0.03599, true,
		},
		{
			"repriced in us-east-1 since: the region's 40.9447 less as much",
			PriceQuery{Region: "eu-central-1", Type: "p4d.24xlarge"},
			27.43298,
			true,
		},
		{"only other regions sell it", PriceQuery{Region: "us-east-1", Type: "hpc6a.48xlarge"}, 2.88029, true},
		{"GovCloud's own", PriceQuery{Region: "us-gov-west-1", Type: "m5.large"}, 0.121, false},
		{"GovCloud's own of a type that others no longer sell", PriceQuery{Region: "us-gov-west-1", Type: "p3.2xlarge"}, 3.672, false},
		{"spot in GovCloud: the share that us-east-1 takes", PriceQuery{Region: "us-gov-west-1", Type: "m5.large", Spot: true}, 0.03993, true},
		{"China's own, in yuan", PriceQuery{Region: "cn-north-1", Type: "m5.large"}, 1.013, false},
		{"Ningxia, by the prices of Beijing", PriceQuery{Region: "cn-northwest-1", Type: "m5.large"}, 1.013, true},
	} {
		expect(t, c, tc)
	}
	for region, want := range map[string]string{
		"eu-west-1":      "prices of May 2025; one that is not listed is us-east-1's times 1.115",
		"cn-northwest-1": "those of cn-north-1 are taken, of November 2024",
		"us-gov-west-1":  "the share of its on-demand price that it costs in us-east-1",
		"us-east-1":      "prices of July 2026; one that is not listed is that of other regions",
	} {
		if got := c.Basis(region); !strings.Contains(got, want) {
			t.Errorf("prices of %s are explained by %q, want %q in it", region, got, want)
		}
	}
}

func TestWindowsCostsItsLicenseBesideLinux(t *testing.T) {
	c := load(t)
	for _, tc := range []priced{
		{"listed", PriceQuery{Region: "us-east-1", Type: "m5.large"}, 0.188, false},
		{"the same fee everywhere", PriceQuery{Region: "eu-west-1", Type: "m5.large"}, 0.199, false},
		{"a cheaper fee of small burstable types", PriceQuery{Region: "us-east-1", Type: "t3.large"}, 0.1108, false},
		{"younger than the list: 0.046 for each vCPU", PriceQuery{Region: "us-east-1", Type: "m8i.large"}, 0.19784, true},
		{"a flex type younger than the list", PriceQuery{Region: "us-east-1", Type: "m8i-flex.large"}, 0.18795, true},
		{"spot pays the same fee", PriceQuery{Region: "eu-west-1", Type: "m5.large", Spot: true}, 0.13908, true},
		{"China, in yuan", PriceQuery{Region: "cn-north-1", Type: "m5.large"}, 1.657, true},
	} {
		tc.Platform = Windows
		expect(t, c, tc)
	}
}

// Prices of us-east-1 as of July 2026, typed from AWS' price list, compared to a tenth of a per mille,
// the rounding of either.
var priceList = map[string]float64{
	"a1.metal": 0.408, "c5.large": 0.085, "c5.metal": 4.08, "c5n.18xlarge": 3.888, "c6a.48xlarge": 7.344,
	"c6g.medium": 0.034, "c6gn.16xlarge": 2.7648, "c6i.large": 0.085, "c6in.32xlarge": 7.2576, "c7a.medium": 0.05132,
	"c7g.xlarge": 0.145, "c7i.2xlarge": 0.357, "c7i-flex.large": 0.0847875, "c8g.24xlarge": 3.82848, "m7i.metal-24xl": 5.32224,
	"p4d.24xlarge": 21.95764, "p5.48xlarge": 55.04, "r5b.metal": 7.8672,
	"d3.xlarge": 0.499, "f2.48xlarge": 15.84, "g4ad.xlarge": 0.37853, "g4dn.xlarge": 0.526, "g5.48xlarge": 16.288,
	"g5g.metal": 2.744, "g6.4xlarge": 1.3232, "g6e.xlarge": 1.861, "gr6.4xlarge": 1.5392, "hpc7g.16xlarge": 1.6832,
	"i3.large": 0.156, "i3en.metal": 10.848, "i4i.32xlarge": 10.9824, "i7ie.large": 0.2599, "inf1.6xlarge": 1.18,
	"inf2.48xlarge": 12.981264, "m5.large": 0.096, "m5.xlarge": 0.192, "m5zn.12xlarge": 3.9641, "m6a.large": 0.0864,
	"m6g.large": 0.077, "m6i.32xlarge": 6.144, "m6idn.32xlarge": 10.18368, "m7g.medium": 0.0408, "m7i.24xlarge": 4.8384,
	"m7i-flex.8xlarge": 1.53216, "r5.24xlarge": 6.048, "r7iz.32xlarge": 11.904, "t2.small": 0.023,
	"t2.medium": 0.0464, "t3.large": 0.0832, "t3a.nano": 0.0047, "t4g.micro": 0.0084, "trn1.32xlarge": 21.5,
	"u-3tb1.56xlarge": 27.3, "u7in-16tb.224xlarge": 180.47559, "vt1.24xlarge": 5.2, "x1e.32xlarge": 26.688,
	"x2gd.large": 0.167, "x8g.large": 0.1954, "z1d.12xlarge": 4.464,
}

func TestPricesAgreeWithThePriceList(t *testing.T) {
	c := load(t)
	for name, want := range priceList {
		got, ok := c.OnDemand("us-east-1", name)
		if !ok || math.Abs(got-want) > max(0.0001, want*0.0001) {
			t.Errorf("%s costs %v $/h, want %v", name, got, want)
		}
	}
}
