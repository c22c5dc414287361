package nodeclaim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// While EC2 fails to list instances, it is not called again for each of a thousand claims.
func TestInstanceCacheBacksOffAfterAFailure(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	throttled, calls := errors.New("throttled"), 0
	s := &instanceCache{
		list: func(context.Context) ([]cloudprovider.Instance, error) {
			calls++
			if calls == 1 {
				return nil, throttled
			}
			return []cloudprovider.Instance{{ProviderID: "p"}}, nil
		},
		get: func(context.Context, string) (cloudprovider.Instance, error) {
			return cloudprovider.Instance{}, cloudprovider.ErrNotFound
		},
		now: func() time.Time { return now },
	}
	for range 1000 {
		if _, err := s.instance(t.Context(), "p"); !errors.Is(err, throttled) {
			t.Fatalf("error %v", err)
		}
	}
	if calls != 1 {
		t.Errorf("EC2 was called %d times within a moment, want once", calls)
	}
	now = now.Add(listingBackoff)
	if i, err := s.instance(t.Context(), "p"); err != nil || i.ProviderID != "p" {
		t.Errorf("%+v, %v", i, err)
	}
}

// A canceled caller must not make the others wait for the backoff.
func TestInstanceCacheDoesNotKeepTheErrorOfACallerThatLeft(t *testing.T) {
	s := &instanceCache{
		list: func(ctx context.Context) ([]cloudprovider.Instance, error) {
			return []cloudprovider.Instance{{ProviderID: "p"}}, ctx.Err()
		},
		now: time.Now,
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.instance(gone, "p"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := s.instance(t.Context(), "p"); err != nil {
		t.Errorf("error %v", err)
	}
}
