package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	pricingapi "github.com/aws/aws-sdk-go-v2/service/pricing"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// priceReadTimeout bounds the reading of prices: the Pricing API answers in some 40 pages.
const priceReadTimeout = time.Minute

// priceAge sets how long prices of the account are used before they are read again, priceRetry how long it takes until prices that could
// not be read are requested again.
const priceAge, priceRetry = time.Hour, 5 * time.Minute

// accountQuotes are the prices of a region, as they were read last.
type accountQuotes struct {
	quotes quotes
	// from states where they come from; empty if there are none. problem states why some or all could not be read.
	from, problem string
	read          time.Time
	reading       bool
}

// account returns the prices of a region in the account. The first call reads them. When they are old, they are read again while they
// are used.
func (s *priceSource) account(ctx context.Context, region string) accountQuotes {
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
