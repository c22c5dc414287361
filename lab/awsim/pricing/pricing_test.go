package pricing_test

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

func term(field, value string) types.Filter {
	return types.Filter{Type: types.FilterTypeTermMatch, Field: &field, Value: &value}
}

// onSale is the question that an autoscaler requests its price list.
func onSale(region, tenancy, family string) *pricing.GetProductsInput {
	return withSystem("Linux", region, tenancy, family)
}

func withSystem(system, region, tenancy, family string) *pricing.GetProductsInput {
	return &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100), Filters: []types.Filter{
		term("regionCode", region), term("serviceCode", "AmazonEC2"), term("preInstalledSw", "NA"), term("operatingSystem", system),
		term("capacitystatus", "Used"), term("marketoption", "OnDemand"), term("tenancy", tenancy), term("productFamily", family),
	}}
}

// prices reads all pages as clients of the price list do.
func prices(t *testing.T, c *pricing.Client, in *pricing.GetProductsInput) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for pages := pricing.NewGetProductsPaginator(c, in); pages.HasMorePages(); {
		page := awsimtest.OK(pages.NextPage(t.Context()))(t)
		if len(page.PriceList) > int(*in.MaxResults) {
			t.Fatalf("page of %d, asked for %d", len(page.PriceList), *in.MaxResults)
		}
		for _, text := range page.PriceList {
			var item struct {
				Product struct {
					Attributes struct{ InstanceType, RegionCode string }
				}
				Terms struct {
					OnDemand map[string]struct {
						PriceDimensions map[string]struct {
							PricePerUnit map[string]string
							Unit         string
						}
					}
				}
			}
			if err := json.Unmarshal([]byte(text), &item); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			for _, offer := range item.Terms.OnDemand {
				for _, rate := range offer.PriceDimensions {
					price := awsimtest.OK(strconv.ParseFloat(rate.PricePerUnit["USD"], 64))(t)
					if _, twice := out[item.Product.Attributes.InstanceType]; twice || rate.Unit != "Hrs" {
						t.Errorf("%s: listed twice, or by the %s", item.Product.Attributes.InstanceType, rate.Unit)
					}
					out[item.Product.Attributes.InstanceType] = price
				}
			}
		}
	}
	return out
}

func TestPrices(t *testing.T) {
	w := awsimtest.Start(t)
	c := pricing.NewFromConfig(w.Config)
	catalog := awsimtest.OK(offline.Load())(t)
	for _, region := range []string{"us-east-1", "us-west-2", "eu-west-1", "us-gov-west-1"} {
		shared := prices(t, c, onSale(region, "Shared", "Compute Instance"))
		metal := prices(t, c, onSale(region, "Dedicated", "Compute Instance (bare metal)"))
		if len(shared) < 400 || len(metal) < 30 {
			t.Errorf("%s: %d types and %d bare metal on sale", region, len(shared), len(metal))
		}
		for _, typ := range catalog.Types() {
			want, sold := catalog.OnDemand(region, typ.Name)
			if catalog.ZoneIDs(region, typ.Name) == nil {
				want, sold = 0, false
			}
			list := shared
			if typ.BareMetal {
				list = metal
			}
			got, listed := list[typ.Name]
			if listed != sold || math.Abs(got-want) > 1e-9 {
				t.Errorf("%s in %s: $%v (%v), want $%v (%v)", typ.Name, region, got, listed, want, sold)
			}
		}
	}
}

func TestFilters(t *testing.T) {
	w := awsimtest.Start(t)
	c := pricing.NewFromConfig(w.Config)
	one := prices(t, c, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(1), Filters: []types.Filter{
		term("instanceType", "m5.large"), term("regionCode", "us-east-1"), term("operatingSystem", "Linux"),
	}})
	if len(one) != 1 || one["m5.large"] != 0.096 {
		t.Errorf("m5.large in us-east-1: %v, want $0.096", one)
	}
	nowhere := prices(t, c, onSale("eu-north-9", "Shared", "Compute Instance"))
	if len(nowhere) != 0 {
		t.Errorf("%d products in a region without prices; want none", len(nowhere))
	}
}

func TestWindowsIsListedWithItsLicense(t *testing.T) {
	w := awsimtest.Start(t)
	windows := prices(t, pricing.NewFromConfig(w.Config), withSystem("Windows", "us-east-1", "Shared", "Compute Instance"))
	if windows["m5.large"] != 0.188 || windows["m7g.large"] != 0 {
		t.Errorf("m5.large costs %v and m7g.large %v with Windows, want 0.188 and nothing", windows["m5.large"], windows["m7g.large"])
	}
}

func TestErrors(t *testing.T) {
	w := awsimtest.Start(t)
	c := pricing.NewFromConfig(w.Config)
	first := awsimtest.OK(c.GetProducts(t.Context(), onSale("us-east-1", "Shared", "Compute Instance")))(t)
	other := onSale("us-west-2", "Shared", "Compute Instance")
	other.NextToken = first.NextToken
	contains := []types.Filter{{Type: types.FilterTypeContains, Field: aws.String("instanceType"), Value: aws.String("m5")}}
	for _, row := range []struct {
		what, code string
		in         *pricing.GetProductsInput
	}{
		{"token of another question", "InvalidNextTokenException", other},
		{"page too large", "InvalidParameterException", &pricing.GetProductsInput{
			ServiceCode: aws.String("AmazonEC2"),
			MaxResults:  aws.Int32(101),
		}},
		{"attribute unknown", "NotFoundException", &pricing.GetProductsInput{
			ServiceCode: aws.String("AmazonEC2"),
			Filters:     []types.Filter{term("colour", "red")},
		}},
		{"format unknown", "InvalidParameterException", &pricing.GetProductsInput{
			ServiceCode:   aws.String("AmazonEC2"),
			FormatVersion: aws.String("aws_v2"),
		}},
		{"filter of another type", "InvalidParameterException", &pricing.GetProductsInput{
			ServiceCode: aws.String("AmazonEC2"),
			Filters:     contains,
		}},
	} {
		if _, err := c.GetProducts(t.Context(), row.in); awsimtest.Code(err) != row.code {
			t.Errorf("%s: %v, want %s", row.what, err, row.code)
		}
	}
}
