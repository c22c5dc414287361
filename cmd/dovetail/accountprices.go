package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	pricingapi "github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// The values of --prices.
const (
	pricesAuto, pricesAccount, pricesCatalog = "auto", "account", "catalog"
)

// priceReadTimeout bounds the reading of prices: the Pricing API answers in some 40 pages.
const priceReadTimeout = time.Minute

// priceAge sets how long prices of the account are used before they are read again, priceRetry how long it takes until prices that could
// not be read are requested again.
const priceAge, priceRetry = time.Hour, 5 * time.Minute

// priceSource decides where the prices of a command come from: for a live cluster the account's, as the controller's are, else the
// built-in catalog. All views of a command share it, so that each region is read once, and a failure is reported once.
type priceSource struct {
	choice
	// files is true for a cluster from files: its prices are the catalog's, unless --prices states otherwise.
	files bool
	// warnings gets one line when prices of the account cannot be read; nil for a screen, which shows where prices come from.
	warnings io.Writer

	mu      sync.Mutex
	regions map[string]*accountQuotes
	warned  string
}

// accountQuotes are the prices of a region, as they were read last.
type accountQuotes struct {
	quotes pricing.Quotes
	// from states where they come from; empty if there are none. problem states why some or all could not be read.
	from, problem string
	read          time.Time
	reading       bool
}

func newPriceSource() *priceSource {
	return &priceSource{
		choice: choice{pricesAuto, []string{pricesAuto, pricesAccount, pricesCatalog}}, regions: map[string]*accountQuotes{},
	}
}

func (s *priceSource) bind(cmd *cobra.Command) {
	cmd.Flags().Var(&s.choice, "prices", "`source` of prices: account (needs AWS credentials), catalog (built in), or auto:\n"+
		"the account's for a live cluster if they can be read, else the catalog's")
	complete(cmd, "prices", func(*cobra.Command) []string { return s.known })
}

// of gives a catalog the prices of the source. A file has prices of its own.
func (s *priceSource) of(ctx context.Context, base inspect.Prices) (inspect.Prices, error) {
	region, ok := base.Catalog.(*offlineregion.Region)
	if !ok {
		return base, nil
	}
	base.From = fmt.Sprintf("the built-in catalog of %s, of %s", region.Name(), region.Month())
	if s.value == pricesCatalog || s.value == pricesAuto && s.files {
		return base, nil
	}
	quoted := s.quotes(ctx, region.Name())
	switch {
	case quoted.from == "" && s.value == pricesAccount:
		return inspect.Prices{}, fmt.Errorf("--prices=%s: %s", pricesAccount, quoted.problem)
	case quoted.from == "":
		base.Problem = "prices of the account cannot be read: " + quoted.problem
		base.From += ", since " + base.Problem
	default:
		base.Problem = quoted.problem
		base.From = quoted.from + "; prices that AWS does not list: " + base.From
		base.Catalog = quotedCatalog{region, quoted.quotes}
	}
	s.warn(base.Problem, base.From)
	return base, nil
}

// warn prints a problem once, until there is another.
func (s *priceSource) warn(problem, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warnings != nil && problem != "" && problem != s.warned {
		fmt.Fprintf(s.warnings, "warning: prices are of %s\n", visibleLine(from))
	}
	s.warned = problem
}

// quotes are the prices of a region. The first call reads them. When they are old, they are read again while they are used.
func (s *priceSource) quotes(ctx context.Context, region string) accountQuotes {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.regions[region]
	if known == nil {
		known = readQuotes(ctx, region)
		if ctx.Err() == nil {
			s.regions[region] = known
		}
		return *known
	}
	age := priceAge
	if known.problem != "" {
		age = priceRetry
	}
	if !known.reading && time.Since(known.read) > age {
		known.reading = true
		go func() {
			next := readQuotes(ctx, region)
			s.mu.Lock()
			defer s.mu.Unlock()
			known.reading, known.read = false, next.read
			if next.from != "" { // else those of before are the best that is known
				s.regions[region] = next
			}
		}()
	}
	return *known
}

func readQuotes(ctx context.Context, region string) *accountQuotes {
	out := &accountQuotes{}
	var err error
	out.quotes, out.from, err = readPrices(ctx, region)
	if err != nil {
		out.problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	out.read = time.Now()
	return out
}

// readPrices reads the prices of Linux of a region, and states where they come from. An error beside prices is why some are missing.
func readPrices(ctx context.Context, region string) (pricing.Quotes, string, error) {
	quick, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	sdk, err := operator.LoadSDK(quick, version, region, slog.New(slog.DiscardHandler))
	if err == nil {
		err = session.Authenticate(quick, sdk, os.Getenv)
	}
	if err != nil {
		return pricing.Quotes{}, "", err
	}
	builtIn, err := offline.Load(region)
	if err != nil {
		return pricing.Quotes{}, "", err
	}
	prices := pricing.New(pricing.Config{
		Region: region, EC2: ec2.NewFromConfig(sdk), Fallback: builtIn, Now: time.Now,
		Pricing: pricingapi.NewFromConfig(sdk, func(o *pricingapi.Options) { o.Region = pricing.PricingRegion(region) }),
	})
	quotes := prices.For(offline.Linux)
	slow, done := context.WithTimeout(ctx, priceReadTimeout)
	defer done()
	failed := prices.Refresh(slow)
	from, read := "", 0
	for _, s := range prices.State() {
		text := "those of the built-in catalog"
		if !s.Read.IsZero() {
			read++
			text = "those of AWS in " + region + ", read at " + s.Read.UTC().Format("2006-01-02 15:04 MST")
		}
		if from != "" {
			from += "; "
		}
		from += s.CapacityType + " prices are " + text
	}
	switch {
	case read == 0:
		return pricing.Quotes{}, "", cmp.Or(awserrors.WithoutRequestIDs(failed), errors.New("AWS reports none"))
	case failed != nil:
		return quotes, from, awserrors.WithoutRequestIDs(failed)
	}
	return quotes, from, nil
}

// quotedCatalog is a region with the prices of the account, for Linux.
type quotedCatalog struct {
	*offlineregion.Region
	quotes pricing.Quotes
}

var _ planner.Catalog = quotedCatalog{}

// Types returns the types of the region with the prices of the account, as far as these are known.
func (c quotedCatalog) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	types, err := c.Region.Types(class)
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
	if known {
		o.Price, o.PriceDerived = price, false
	}
}
