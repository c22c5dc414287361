package offerings

import (
	"context"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/lastknown"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
)

// Keeper keeps answers of AWS for the next process.
type Keeper interface {
	// Load reads a kept answer into a value, and returns when AWS gave it; false if none is kept.
	Load(ctx context.Context, a lastknown.Answer, into any) (at time.Time, found bool, err error)
	Save(ctx context.Context, a lastknown.Answer, at time.Time, answer any) error
}

// keepTypes keeps the instance types that were just listed.
func (s *Source) keepTypes(ctx context.Context) {
	if s.cfg.Kept == nil {
		return
	}
	if types, at, ok := s.cfg.Inventory.Keep(); ok {
		s.kept(lastknown.InstanceTypes, s.cfg.Kept.Save(ctx, lastknown.InstanceTypes, at, types))
	}
}

// keepPrices keeps the prices that were just read.
func (s *Source) keepPrices(ctx context.Context) {
	if s.cfg.Kept == nil {
		return
	}
	if prices, at, ok := s.cfg.Prices.Keep(); ok {
		s.kept(lastknown.Prices, s.cfg.Kept.Save(ctx, lastknown.Prices, at, prices))
	}
}

// kept logs what could not be kept: this process needs it not.
func (s *Source) kept(a lastknown.Answer, err error) {
	if err != nil {
		s.cfg.Log.Warn("an answer of AWS is not kept; a restart while AWS fails would not have it", "answer", string(a), "error", err)
	}
}

// Recall has answers that AWS gave to an earlier process stand in until this one has its own. It makes no call of AWS.
func (s *Source) Recall(ctx context.Context) {
	if s.cfg.Kept == nil {
		return
	}
	var types inventory.Kept
	at, found, err := s.cfg.Kept.Load(ctx, lastknown.InstanceTypes, &types)
	s.recalled(lastknown.InstanceTypes, found && s.cfg.Inventory.Recall(types, at), err)
	var prices pricing.Kept
	_, found, err = s.cfg.Kept.Load(ctx, lastknown.Prices, &prices)
	s.recalled(lastknown.Prices, found && s.cfg.Prices.Recall(prices), err)
}

// recalled logs whether an answer stands in.
func (s *Source) recalled(a lastknown.Answer, stands bool, err error) {
	switch {
	case err != nil:
		s.cfg.Log.Warn("what AWS answered an earlier process cannot be read", "answer", string(a), "error", err)
	case stands:
		s.cfg.Log.Debug("what AWS answered an earlier process is there if AWS fails", "answer", string(a))
	}
}

// RecalledTypes returns when EC2 gave the instance types that stand in; false if none do.
func (s *Source) RecalledTypes() (time.Time, bool) { return s.cfg.Inventory.Recalled() }

// RecalledPrices returns when AWS gave the oldest prices that stand in; false if none do.
func (s *Source) RecalledPrices() (time.Time, bool) { return s.cfg.Prices.Recalled() }
