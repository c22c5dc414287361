package refresh

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// fakeCloud records when it was read, and fails as configured.
type fakeCloud struct {
	began  time.Time
	read   []time.Duration
	denied int
	// due is the time when prices of a new platform are needed.
	due time.Duration
}

func (s *fakeCloud) Refresh(context.Context) error {
	s.read = append(s.read, time.Since(s.began))
	if s.denied--; s.denied > 0 {
		return errors.New("denied")
	}
	return nil
}

func (s *fakeCloud) RefreshVersion(context.Context) error { return nil }

func (s *fakeCloud) PriceState() []cloudprovider.PriceState {
	if s.due > 0 && time.Since(s.began) >= s.due && len(s.read) == 0 {
		return []cloudprovider.PriceState{{CapacityType: "on-demand", RefreshDue: true}}
	}
	if s.denied > 0 {
		return []cloudprovider.PriceState{{CapacityType: "on-demand", Err: errors.New("denied")}}
	}
	return []cloudprovider.PriceState{{CapacityType: "on-demand"}}
}

// Prices that could not be read are read again soon, from the start on; others last half a day.
func TestCatalogIsRenewed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		denied int // how many readings fail, that at the start included
		want   []time.Duration
	}{
		{"all is well", 0, []time.Duration{12 * time.Hour, 24 * time.Hour}},
		{"the first reading failed", 1, []time.Duration{5 * time.Minute, 12*time.Hour + 5*time.Minute}},
		{"three readings failed", 3, []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 12*time.Hour + 15*time.Minute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Minute)
				defer cancel()
				s := &fakeCloud{began: time.Now(), denied: tt.denied}
				if err := (&Catalog{Cloud: s, Log: slog.New(slog.DiscardHandler)}).Start(ctx); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(s.read, tt.want) {
					t.Errorf("read after %v, want %v", s.read, tt.want)
				}
			})
		})
	}
}

// The first node class of Windows does not wait half a day for its prices.
func TestPricesOfANewPlatformAreReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := &fakeCloud{began: time.Now(), due: 7 * time.Minute}
		if err := (&Catalog{Cloud: s, Log: slog.New(slog.DiscardHandler)}).Start(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{10 * time.Minute}; !slices.Equal(s.read, want) {
			t.Errorf("read after %v, want %v", s.read, want)
		}
	})
}
