package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/pricefile"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/report"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// The values of --prices that are no file.
const (
	pricesAuto, pricesAccount, pricesCatalog = "auto", "account", "catalog"
)

// priceSource decides where the prices of a command come from: for a live cluster the account's, as the controller's are, else the
// catalog; a file of prices before either. All views of a command share it, so that each region and the file are read once, and a
// failure is reported once.
type priceSource struct {
	// value is one of the constants above, or the path of a file.
	value string
	// warnings gets one line when prices are not those that were requested; nil for a screen, which shows where prices come from.
	warnings io.Writer

	mu      sync.Mutex
	regions map[string]*accountQuotes
	file    *pricefile.Prices
	warned  string
}

func newPriceSource() *priceSource {
	return &priceSource{value: pricesAuto, regions: map[string]*accountQuotes{}}
}

var _ pflag.Value = (*priceSource)(nil)

// Set implements pflag.Value.
func (s *priceSource) Set(text string) error {
	words := []string{pricesAuto, pricesAccount, pricesCatalog}
	if _, err := os.Stat(text); err != nil && !slices.Contains(words, text) && !looksLikePath(text) {
		hint := ""
		if near := spelling.Nearest(text, words, 2); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return fmt.Errorf("%q is neither a file nor one of %s%s", text, strings.Join(words, ", "), hint)
	}
	s.value = text
	return nil
}

// String implements pflag.Value.
func (s *priceSource) String() string { return s.value }

// Type implements pflag.Value.
func (*priceSource) Type() string { return "source" }

// looksLikePath reports whether text can only be the path of a file.
func looksLikePath(text string) bool { return strings.ContainsAny(text, "./\\") }

func (s *priceSource) bind(cmd *cobra.Command) {
	cmd.Flags().Var(s, "prices", "`source` of prices: account (needs AWS credentials), catalog (built in), auto\n"+
		"(the account's for a live cluster if they can be read, else the catalog's), or a file of prices, before these")
	// Without a directive, the shell completes files, too.
	_ = cmd.RegisterFlagCompletionFunc("prices", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{pricesAuto, pricesAccount, pricesCatalog}, cobra.ShellCompDirectiveDefault
	}) // the flag is there
}

// fromFile reports whether a file has the prices.
func (s *priceSource) fromFile() bool {
	return s.value != pricesAuto && s.value != pricesAccount && s.value != pricesCatalog
}

// of gives a catalog the prices of the source. Those of a file come before all, then those of a catalog file, then those of the account
// for a live cluster, then those of the built-in catalog. With --prices account, any cluster has those of the account.
func (s *priceSource) of(ctx context.Context, base inspect.Prices, live bool) (inspect.Prices, error) {
	region, builtIn := base.Catalog.(*offlineregion.Region)
	if builtIn {
		base.From = fmt.Sprintf("the built-in catalog of %s, of %s", region.Name(), region.Month())
	}
	if builtIn && s.value != pricesCatalog && (live || s.value == pricesAccount) {
		var err error
		if base, err = s.ofAccount(ctx, base, region); err != nil {
			return inspect.Prices{}, err
		}
		if !s.fromFile() {
			s.warn("prices are of "+base.From, base.Problem)
		}
	}
	if s.fromFile() {
		return s.ofFile(base)
	}
	return base, nil
}

// ofAccount gives the built-in catalog of a region the prices of the account, as far as AWS lists them. Prices that cannot be read are an
// error only if they are requested by name.
func (s *priceSource) ofAccount(ctx context.Context, base inspect.Prices, region *offlineregion.Region) (inspect.Prices, error) {
	quoted := s.account(ctx, region.Name())
	switch {
	case quoted.from == "" && s.value == pricesAccount:
		return base, fmt.Errorf("--prices=%s: %s", pricesAccount, quoted.problem)
	case quoted.from == "":
		base.Problem = "prices of the account cannot be read: " + quoted.problem
		base.From += ", since " + base.Problem
	default:
		base.Problem = quoted.problem
		base.From = quoted.from + "; prices that AWS does not list: " + base.From
		base.Catalog = quotedCatalog{region, quoted.quotes}
	}
	return base, nil
}

// ofFile gives a catalog the prices of the file.
func (s *priceSource) ofFile(base inspect.Prices) (inspect.Prices, error) {
	prices, err := s.readFile()
	unused := ""
	if err == nil {
		unused, err = notInCatalog(prices, base.Catalog)
	}
	if err != nil {
		return inspect.Prices{}, fmt.Errorf("--prices %s: %w", s.value, err)
	}
	if base.Problem != "" && unused != "" {
		base.Problem += "; "
	}
	base.Problem += unused
	base.From = "the file " + s.value + "; prices that it lacks: " + base.From
	base.Catalog = quotedCatalog{base.Catalog, prices}
	s.warn(base.Problem, base.Problem)
	return base, nil
}

// largestPriceFile is what a file of prices has at most, in bytes. That of all types of EC2 with a spot price for each zone of a region has
// 300 kB.
const largestPriceFile = 4 << 20

// readFile reads the file once.
func (s *priceSource) readFile() (*pricefile.Prices, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		return s.file, nil
	}
	file, err := os.Open(s.value)
	if err != nil {
		return nil, err
	}
	defer file.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(file, largestPriceFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > largestPriceFile {
		return nil, fmt.Errorf("it is larger than %d MiB, and a region has no prices for so much", largestPriceFile>>20)
	}
	document, err := onlyDocument(data)
	if err != nil {
		return nil, fmt.Errorf("not a file of prices: %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "json: "))
	}
	prices, err := pricefile.Decode(document)
	if err == nil {
		s.file = prices
	}
	return prices, err
}

// onlyDocument is the document of a YAML file, of which JSON is a part, as JSON. Further documents are an error: nobody would read them.
func onlyDocument(data []byte) (document []byte, _ error) {
	document = []byte("null")
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return document, nil
		}
		if err != nil {
			return nil, err
		}
		next, err := sigsyaml.YAMLToJSONStrict(text)
		switch {
		case err != nil:
			return nil, err
		case string(next) == "null": // comments
		case string(document) != "null":
			return nil, errors.New("it has several documents")
		default:
			document = next
		}
	}
}

// shownUnknown is how many names of a file that the catalog lacks are listed.
const shownUnknown = 3

// notInCatalog states which instance types and zones of a file the catalog lacks: most are misspelled. A file of which the catalog has
// none at all is an error.
func notInCatalog(prices *pricefile.Prices, c planner.Catalog) (string, error) {
	types, err := c.Types(nil)
	if err != nil {
		return "", err
	}
	var names, zones []string
	for _, it := range types {
		names = append(names, it.Name)
		for i := range it.Offerings {
			zones = append(zones, it.Offerings[i].Zone)
		}
	}
	slices.Sort(zones)
	zones = slices.Compact(zones)
	strange := missingFrom(names, prices.InstanceTypes())
	if len(strange) == len(prices.InstanceTypes()) {
		return "", errors.New("it has no instance type of the catalog: " + unknownNames(strange, names))
	}
	var out []string
	if len(strange) > 0 {
		out = append(out, fmt.Sprintf("the prices of %s are not used, which the catalog lacks: %s",
			report.Plural(len(strange), "instance type"), unknownNames(strange, names)))
	}
	if strange := missingFrom(zones, prices.Zones()); len(strange) > 0 {
		out = append(out, fmt.Sprintf("the spot prices of %s are not used, which the catalog lacks: %s",
			report.Plural(len(strange), "zone"), unknownNames(strange, zones)))
	}
	return strings.Join(out, "; "), nil
}

// missingFrom returns the names that are not known.
func missingFrom(known, names []string) []string {
	has := make(map[string]bool, len(known))
	for _, name := range known {
		has[name] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return has[name] })
}

// unknownNames lists the first of them, with the names that were probably meant.
func unknownNames(unknown, known []string) string {
	var out []string
	for _, name := range unknown[:min(shownUnknown, len(unknown))] {
		text := fmt.Sprintf("%.60q", name)
		if near := spelling.Nearest(name, known, 2); near != "" {
			text += " (did you mean " + near + "?)"
		}
		out = append(out, text)
	}
	if more := len(unknown) - shownUnknown; more > 0 {
		return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(out, ", ")
}

// warn prints a problem once, until there is another.
func (s *priceSource) warn(text, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warnings != nil && problem != "" && problem != s.warned {
		fmt.Fprintf(s.warnings, "warning: %s\n", visibleLine(text))
	}
	s.warned = problem
}

// quotes are prices of instance types in $/h, for Linux.
type quotes interface {
	OnDemand(instanceType string) (float64, bool)
	Spot(instanceType, zone string) (float64, bool)
}

// quotedCatalog is a catalog with the prices of an account or a file, for Linux.
type quotedCatalog struct {
	planner.Catalog
	quotes quotes
}

// Types returns the types of the catalog with those prices, as far as these are known.
func (c quotedCatalog) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	types, err := c.Catalog.Types(class)
	if err != nil {
		return nil, err
	}
	out := make([]*catalog.InstanceType, len(types))
	for i, it := range types {
		out[i] = it
		if os, known := it.Requirements.Get(corev1.LabelOSStable).Single(); known && os == string(corev1.Windows) {
			continue // the license is in the price of the catalog
		}
		priced := *it
		priced.Offerings = slices.Clone(it.Offerings)
		for k := range priced.Offerings {
			c.quote(it.Name, &priced.Offerings[k])
		}
		out[i] = &priced
	}
	return out, nil
}

// quote sets the price of an offering.
func (c quotedCatalog) quote(name string, o *catalog.Offering) {
	price, known := 0.0, false
	switch o.CapacityType {
	case karpv1.CapacityTypeSpot:
		price, known = c.quotes.Spot(name, o.Zone)
	case karpv1.CapacityTypeOnDemand:
		price, known = c.quotes.OnDemand(name)
	}
	if !known {
		return
	}
	o.Price, o.PriceDerived = price, false
	if o.UnavailableReason == catalog.ReasonNoPrice { // nothing else was in its way
		o.Available, o.UnavailableReason, o.UnavailableMessage = true, "", ""
	}
}
