package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	pricingapi "github.com/aws/aws-sdk-go-v2/service/pricing"
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
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// The values of --prices.
const (
	pricesAuto, pricesAccount, pricesCatalog = "auto", "account", "catalog"
)

// priceReadTimeout bounds the reading of prices: the Pricing API answers in some 40 pages.
const priceReadTimeout = time.Minute

// accountPrices gives the built-in catalog of a region the prices that AWS reports now. Prices that cannot be read are those of the
// catalog, and the words say so. required makes that an error.
func accountPrices(ctx context.Context, base inspect.Prices, required bool) (inspect.Prices, error) {
	region, ok := base.Catalog.(*offlineregion.Region)
	if !ok {
		return base, nil // a file has prices of its own
	}
	base.From = fmt.Sprintf("the built-in catalog of %s, of %s", region.Name(), region.Month())
	quotes, from, err := readPrices(ctx, region.Name())
	if err != nil {
		if required {
			return inspect.Prices{}, fmt.Errorf("--prices=%s: %w", pricesAccount, err)
		}
		base.From += ", since those of the account cannot be read (no AWS credentials, or no answer)"
		return base, nil
	}
	return inspect.Prices{Catalog: quotedCatalog{region, quotes}, From: from + "; prices that AWS does not list: " + base.From}, nil
}

// readPrices reads the prices of Linux of a region.
func readPrices(ctx context.Context, region string) (pricing.Quotes, string, error) {
	quick, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	sdk, err := loadSDKIn(quick, region, slog.New(slog.DiscardHandler))
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
	if read == 0 {
		return pricing.Quotes{}, "", errors.Join(errors.New("no prices could be read"), awserrors.WithoutRequestIDs(failed))
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

// pricesOf opens the catalog of the flags, with the prices of the account where these were chosen and can be read.
func (f *assessFlags) pricesOf(ctx context.Context) func(*manifest.ClusterState) (inspect.Prices, error) {
	return func(w *manifest.ClusterState) (inspect.Prices, error) {
		base, err := f.viewFlags.prices(w)
		if err != nil {
			return inspect.Prices{}, err
		}
		if f.source.value == pricesCatalog || f.source.value == pricesAuto && len(f.files) > 0 {
			if region, ok := base.Catalog.(*offlineregion.Region); ok {
				base.From = fmt.Sprintf("the built-in catalog of %s, of %s", region.Name(), region.Month())
			}
			return base, nil
		}
		return accountPrices(ctx, base, f.source.value == pricesAccount)
	}
}
