package ec2

import (
	"slices"
	"strconv"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type describeOfferingsInput struct {
	listInput
	LocationType string `query:"LocationType"`
}

type describeOfferingsOutput struct {
	Offerings []offering `xml:"instanceTypeOfferingSet>item"`
	Next      *string    `xml:"nextToken"`
}

// offering is an instance type that a location offers.
type offering struct {
	InstanceType string `xml:"instanceType"`
	LocationType string `xml:"locationType"`
	Location     string `xml:"location"`
}

func (m *market) describeInstanceTypeOfferings(_ *protocol.Request, in *describeOfferingsInput) (*describeOfferingsOutput, error) {
	if err := oneOf("LocationType", in.LocationType, "region", "availability-zone", "availability-zone-id"); err != nil {
		return nil, err
	}
	n := resourceKind[offering]{
		id: func(o offering) string { return o.InstanceType + " " + o.Location }, minResults: 5, maxResults: 1000,
		properties: properties[offering]{
			"instance-type": one(func(o offering) string { return o.InstanceType }),
			"location":      one(func(o offering) string { return o.Location }),
		},
	}
	p, err := n.list(in.listInput, nil, m.offerings(in.LocationType))
	if err != nil {
		return nil, err
	}
	return &describeOfferingsOutput{Offerings: p.items, Next: p.next}, nil
}

func (m *market) offerings(locationType string) []offering {
	var all []offering
	for _, t := range m.types {
		if locationType == "" || locationType == "region" {
			all = append(all, offering{t.Name, "region", m.region})
			continue
		}
		for i, zone := range m.zones {
			if t.zones[i] {
				location := pick(locationType == "availability-zone", zone.Name, zone.ID)
				all = append(all, offering{t.Name, locationType, location})
			}
		}
	}
	return all
}

type describeSpotPricesInput struct {
	listInput
	Zone     string     `query:"AvailabilityZone"`
	ZoneID   string     `query:"AvailabilityZoneId"`
	Start    *time.Time `query:"StartTime"`
	End      *time.Time `query:"EndTime"`
	Types    []string   `query:"InstanceType"`
	Products []string   `query:"ProductDescription"`
}

type describeSpotPricesOutput struct {
	Next   *string     `xml:"nextToken"`
	Prices []spotQuote `xml:"spotPriceHistorySet>item"`
}

// spotQuote is the spot price of a type in a zone since a time.
type spotQuote struct {
	InstanceType string `xml:"instanceType"`
	Product      string `xml:"productDescription"`
	Price        string `xml:"spotPrice"` // $/h
	Since        string `xml:"timestamp"`
	Zone         string `xml:"availabilityZone"`
	ZoneID       string `xml:"availabilityZoneId"`
}

// spotProducts are the product descriptions, and what they cost beside Linux. The types that run Windows pay its
// license as spot, too.
func spotProducts(t *instanceType) map[string]float64 {
	products := map[string]float64{"Linux/UNIX": 0, "Linux/UNIX (Amazon VPC)": 0}
	if t.license > 0 {
		products["Windows"], products["Windows (Amazon VPC)"] = t.license, t.license
	}
	return products
}

// describeSpotPriceHistory quotes one price per type, zone and product. The simulated prices do not move, so whatever
// the period requested, the price in force is the one that was set before it.
func (e *EC2) describeSpotPriceHistory(_ *protocol.Request, in *describeSpotPricesInput) (*describeSpotPricesOutput, error) {
	if in.Start != nil && in.End != nil && in.End.Before(*in.Start) {
		return nil, invalidValue("The start time must be before the end time")
	}
	for _, t := range in.Types {
		if e.market.byName[t] == nil {
			return nil, invalidValue("Invalid instance type '%s'", t)
		}
	}
	if in.Zone != "" && e.market.zoneIndex(in.Zone) < 0 {
		return nil, invalidValue("Invalid availability zone: [%s]", in.Zone)
	}
	n := resourceKind[spotQuote]{
		id:         func(q spotQuote) string { return q.InstanceType + " " + q.Zone + " " + q.Product },
		minResults: 1, maxResults: 2000,
		properties: properties[spotQuote]{
			"availability-zone":    one(func(q spotQuote) string { return q.Zone }),
			"availability-zone-id": one(func(q spotQuote) string { return q.ZoneID }),
			"instance-type":        one(func(q spotQuote) string { return q.InstanceType }),
			"product-description":  one(func(q spotQuote) string { return q.Product }),
			"spot-price":           one(func(q spotQuote) string { return q.Price }),
			"timestamp":            one(func(q spotQuote) string { return q.Since }),
		},
	}
	p, err := n.list(in.listInput, nil, e.quotes(in))
	if err != nil {
		return nil, err
	}
	return &describeSpotPricesOutput{Prices: p.items, Next: p.next}, nil
}

func (e *EC2) quotes(in *describeSpotPricesInput) []spotQuote {
	since := stamp(e.opened.Add(-time.Hour).Truncate(time.Second))
	var quotes []spotQuote
	for _, t := range e.market.types {
		if len(in.Types) > 0 && !slices.Contains(in.Types, t.Name) {
			continue
		}
		for _, zone := range e.market.zones {
			if in.Zone != "" && in.Zone != zone.Name || in.ZoneID != "" && in.ZoneID != zone.ID {
				continue
			}
			price := e.market.spotPrice(t, zone.Name)
			if price == 0 {
				continue
			}
			for product, license := range spotProducts(t) {
				if len(in.Products) > 0 && !slices.Contains(in.Products, product) {
					continue
				}
				quotes = append(quotes, spotQuote{
					InstanceType: t.Name, Product: product, Price: strconv.FormatFloat(price+license, 'f', 6, 64),
					Since: since, Zone: zone.Name, ZoneID: zone.ID,
				})
			}
		}
	}
	return quotes
}

// stamp writes a time as EC2 does; the zero time is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
