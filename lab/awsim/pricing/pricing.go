// Package pricing simulates the AWS Price List: GetProducts for Amazon EC2, filled from the offline catalog.
//
// Only instances with Linux and Windows are listed: each type in each region that offers it with its on-demand
// prices, in shared tenancy, or in dedicated tenancy for bare metal types.
package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const (
	serviceCode = "AmazonEC2"
	largestPage = 100
)

// PriceList is the products on sale. It is safe for concurrent use.
type PriceList struct{ list func() (*list, error) }

// list makes the products of a region when they are first needed: those of all regions would be a lot.
type list struct {
	catalog *offline.Catalog
	fields  map[string]bool

	mu       sync.Mutex
	products map[string][]product // by region; sorted by key
}

type product struct {
	key        string            // region, type and operating system
	attributes map[string]string // as they are filtered on, productFamily and serviceCode included
	document   string            // as GetProducts returns it
}

// New returns the price list of a catalog, which is loaded at the first request.
func New(load func() (*offline.Catalog, error)) *PriceList {
	return &PriceList{list: sync.OnceValues(func() (*list, error) {
		catalog, err := load()
		if err != nil {
			return nil, err
		}
		l := &list{catalog: catalog, fields: map[string]bool{}, products: map[string][]product{}}
		products, err := l.of(offline.Base)
		for _, p := range products {
			for name := range p.attributes {
				l.fields[name] = true
			}
		}
		return l, err
	})}
}

// systems are the operating systems on the list.
var systems = []struct {
	platform        offline.Platform
	name, operation string
}{
	{offline.Linux, "Linux", "RunInstances"},
	{offline.Windows, "Windows", "RunInstances:0002"},
}

// of returns the products of a region.
func (l *list) of(region string) ([]product, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.products[region]; ok {
		return known, nil
	}
	var products []product
	for _, t := range l.catalog.Types() {
		if l.catalog.ZoneIDs(region, t.Name) == nil {
			continue
		}
		for i, system := range systems {
			price, sold := l.catalog.Price(offline.PriceQuery{Region: region, Type: t.Name, Platform: system.platform})
			if !sold {
				continue
			}
			p, err := productOf(sale{region, l.catalog.Currency(region), t, i, price.PerHour})
			if err != nil {
				return nil, fmt.Errorf("list %s in %s: %w", t.Name, region, err)
			}
			products = append(products, p)
		}
	}
	slices.SortFunc(products, func(a, b product) int { return cmp.Compare(a.key, b.key) })
	l.products[region] = products
	return products, nil
}

// Service returns the API handlers of the price list. Its endpoints stand in a few regions only and sell all the
// others.
func (l *PriceList) Service() protocol.Service {
	return protocol.Service{
		Name: "pricing", Protocol: protocol.JSON11, Global: true,
		Handlers: map[string]protocol.Handler{"GetProducts": protocol.JSON(l.getProducts)},
	}
}

// sale is what is sold at a price.
type sale struct {
	region, currency string
	typ              offline.Type
	system           int // index of systems
	price            float64
}

func productOf(s sale) (product, error) {
	t, region, price, system := s.typ, s.region, s.price, systems[s.system]
	tenancy, family, usage := "Shared", "Compute Instance", "BoxUsage:"
	if t.BareMetal {
		tenancy, family, usage = "Dedicated", "Compute Instance (bare metal)", "DedicatedUsage:"
	}
	if prefix := usagePrefixes[region]; prefix != "" {
		usage = prefix + "-" + usage
	}
	attributes := map[string]string{
		"instanceType": t.Name, "regionCode": region, "location": cmp.Or(locations[region], region), "locationType": "AWS Region",
		"servicecode": serviceCode, "servicename": "Amazon Elastic Compute Cloud", "tenancy": tenancy, "operatingSystem": system.name,
		"preInstalledSw": "NA", "licenseModel": "No License required", "capacitystatus": "Used", "marketoption": "OnDemand",
		"operation": system.operation, "usagetype": usage + t.Name, "vcpu": strconv.Itoa(t.VCPUs), "memory": gib(t.MemoryMiB),
		"currentGeneration": yesNo(t.CurrentGeneration), "networkPerformance": t.NetworkPerformance,
		"instancefamily": instanceFamily(t), "storage": storage(t.Disks),
	}
	sku := code("product", region, t.Name, system.name)
	offer, rate := sku+"."+onDemandOffer, sku+"."+onDemandOffer+"."+hourlyRate
	document, err := json.Marshal(map[string]any{
		"product":     map[string]any{"productFamily": family, "attributes": attributes, "sku": sku},
		"serviceCode": serviceCode, "version": "20260720000000", "publicationDate": "2026-07-20T00:00:00Z",
		"terms": map[string]any{"OnDemand": map[string]any{offer: map[string]any{
			"priceDimensions": map[string]any{rate: map[string]any{
				"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "appliesTo": []string{}, "rateCode": rate,
				"description": fmt.Sprintf(
					"%s %s per On Demand %s %s Instance Hour",
					strconv.FormatFloat(price, 'f', -1, 64),
					s.currency,
					system.name,
					t.Name,
				),
				"pricePerUnit": map[string]string{s.currency: strconv.FormatFloat(price, 'f', 10, 64)},
			}},
			"sku": sku, "offerTermCode": onDemandOffer, "effectiveDate": "2026-07-01T00:00:00Z", "termAttributes": map[string]string{},
		}}},
	})
	attributes["productFamily"], attributes["serviceCode"], attributes["sku"] = family, serviceCode, sku
	return product{key: region + "/" + t.Name + "/" + system.name, attributes: attributes, document: string(document)}, err
}

// The codes of on-demand terms are the same for all products.
const (
	onDemandOffer = "JRTCKXETXF"
	hourlyRate    = "6YS6EN2CT7"
)

// locations are the names of regions in the price list, as far as they are known here, usagePrefixes what their usage
// types begin with.
var (
	locations = map[string]string{
		"us-east-1": "US East (N. Virginia)", "us-east-2": "US East (Ohio)", "us-west-1": "US West (N. California)",
		"us-west-2": "US West (Oregon)", "eu-west-1": "EU (Ireland)", "eu-central-1": "EU (Frankfurt)",
		"us-gov-west-1": "AWS GovCloud (US-West)", "us-gov-east-1": "AWS GovCloud (US-East)",
		"cn-north-1": "China (Beijing)", "cn-northwest-1": "China (Ningxia)",
	}
	usagePrefixes = map[string]string{
		"us-east-2": "USE2", "us-west-1": "USW1", "us-west-2": "USW2", "eu-west-1": "EU", "eu-central-1": "EUC1",
		"us-gov-west-1": "UGW1", "us-gov-east-1": "UGE1", "cn-north-1": "CNN1", "cn-northwest-1": "CNW1",
	}
)

func code(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, " ")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

func gib(mib int64) string { return strconv.FormatFloat(float64(mib)/1024, 'f', -1, 64) + " GiB" }

func yesNo(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

func instanceFamily(t offline.Type) string {
	switch {
	case len(t.GPUs) > 0:
		return "GPU instance"
	case len(t.Neuron) > 0 || len(t.InferenceAccelerators) > 0:
		return "Machine Learning ASIC Instances"
	case len(t.FPGAs) > 0:
		return "FPGA Instances"
	}
	return cmp.Or(familyNames[t.Name[:1]], "General purpose")
}

var familyNames = map[string]string{
	"c": "Compute optimized", "h": "Compute optimized", "r": "Memory optimized", "x": "Memory optimized", "z": "Memory optimized",
	"u": "Memory optimized", "i": "Storage optimized", "d": "Storage optimized",
}

func storage(d offline.Disks) string {
	if d.Count == 0 {
		return "EBS only"
	}
	kind := strings.ToUpper(d.Kind)
	if d.NVMe == "required" {
		kind = "NVMe " + kind
	}
	return fmt.Sprintf("%d x %d %s", d.Count, d.SizeGB, kind)
}

type filter struct{ Type, Field, Value string }

type getInput struct {
	Filters       []filter
	FormatVersion string
	MaxResults    *int
	NextToken     string
	ServiceCode   string
}

type getOutput struct {
	FormatVersion string
	NextToken     string `json:",omitempty"`
	PriceList     []string
}

func (l *PriceList) getProducts(_ *protocol.Request, in *getInput) (*getOutput, error) {
	products, err := l.list()
	if err != nil {
		return nil, err
	}
	size, err := products.check(in)
	if err != nil {
		return nil, err
	}
	from, err := readToken(in)
	if err != nil {
		return nil, err
	}
	out := &getOutput{FormatVersion: "aws_v1", PriceList: []string{}}
	if in.ServiceCode != serviceCode {
		return out, nil
	}
	for _, region := range products.catalog.Regions() {
		if slices.ContainsFunc(in.Filters, func(f filter) bool { return f.Field == "regionCode" && f.Value != region }) {
			continue
		}
		listed, err := products.of(region)
		if err != nil {
			return nil, err
		}
		for _, p := range listed {
			if p.key <= from || !p.matches(in.Filters) {
				continue
			}
			if len(out.PriceList) == size {
				out.NextToken = writeToken(in, from)
				return out, nil
			}
			out.PriceList = append(out.PriceList, p.document)
			from = p.key
		}
	}
	return out, nil
}

func (p product) matches(filters []filter) bool {
	return !slices.ContainsFunc(filters, func(f filter) bool { return !strings.EqualFold(p.attributes[f.Field], f.Value) })
}

// check returns the size of a page.
func (l *list) check(in *getInput) (int, error) {
	if in.ServiceCode == "" {
		return 0, invalid("ServiceCode must not be null")
	}
	if in.FormatVersion != "" && in.FormatVersion != "aws_v1" {
		return 0, invalid("Invalid format version: %s", in.FormatVersion)
	}
	for _, f := range in.Filters {
		switch {
		case f.Type != "TERM_MATCH":
			return 0, invalid("The simulator supports filters of type TERM_MATCH alone, not %q", f.Type)
		case f.Field == "" || f.Value == "":
			return 0, invalid("Field and Value of a filter must not be empty")
		case in.ServiceCode == serviceCode && !l.fields[f.Field]:
			return 0, protocol.Errorf("NotFoundException", "Attribute %s is not found for service %s", f.Field, in.ServiceCode)
		}
	}
	size := largestPage
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if size < 1 || size > largestPage {
		return 0, invalid("MaxResults must be between 1 and %d", largestPage)
	}
	return size, nil
}

func invalid(format string, args ...any) error {
	return protocol.Errorf("InvalidParameterException", format, args...)
}

// A token holds the last product of the page before, and is good for the same question only.

func writeToken(in *getInput, last string) string {
	return base64.StdEncoding.EncodeToString([]byte(question(in) + " " + last))
}

func readToken(in *getInput) (string, error) {
	if in.NextToken == "" {
		return "", nil
	}
	token, err := base64.StdEncoding.DecodeString(in.NextToken)
	last, ok := strings.CutPrefix(string(token), question(in)+" ")
	if err != nil || !ok {
		return "", protocol.Errorf("InvalidNextTokenException", "The pagination token is invalid")
	}
	return last, nil
}

func question(in *getInput) string { return code(fmt.Sprint(in.ServiceCode, in.Filters)) }
