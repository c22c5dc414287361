// Package refresh renews the data read from the cloud, and deletes unused launch templates.
package refresh

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// catalogInterval is the time between two reads of instance types and prices, which change a few times a month;
	// catalogRetry is the time after a failure.
	catalogInterval, catalogRetry = 12 * time.Hour, 5 * time.Minute
	versionInterval               = 5 * time.Minute
	templatesInterval             = 10 * time.Minute
	// templateMinAge sets how long a launch template is kept after its creation: a launch may still refer to it.
	templateMinAge = time.Hour
)

// catalog is the data read from the cloud: instance types, prices and the cluster's version.
type catalog interface {
	Refresh(ctx context.Context) error
	RefreshVersion(ctx context.Context) error
	// PriceState returns the result of the last read of prices.
	PriceState() []cloudprovider.PriceState
}

// Catalog refreshes in every replica, so that a later leader does not plan with old prices.
type Catalog struct {
	Cloud catalog
	Log   *slog.Logger
}

// NeedLeaderElection is false: every replica reads.
func (*Catalog) NeedLeaderElection() bool { return false }

// Start refreshes until ctx is canceled. The caller has read everything once already. The error is
// cloudprovider.ErrIdentityMismatch when the cluster's name belongs to another cluster by now: the controller must
// stop.
//
// Two timers share one goroutine, since a check of the version may make the prices due; wait has no loop over two
// timers.
func (c *Catalog) Start(ctx context.Context) error {
	types := time.NewTimer(c.untilNext(nil))
	defer types.Stop()
	version := time.NewTicker(versionInterval)
	defer version.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-types.C:
			err := c.Cloud.Refresh(ctx)
			if err != nil {
				c.Log.Error("reading instance types and prices; the old ones are used", "error", err)
			}
			types.Reset(c.untilNext(err))
		case <-version.C:
			if slices.ContainsFunc(c.Cloud.PriceState(), func(s cloudprovider.PriceState) bool { return s.RefreshDue }) {
				types.Reset(0) // a node class is the first with its platform
			}
			err := c.Cloud.RefreshVersion(ctx)
			if errors.Is(err, cloudprovider.ErrIdentityMismatch) {
				return err
			}
			if err != nil {
				c.Log.Error("reading the cluster's version; the old one is used", "error", err)
			}
		}
	}
}

// untilNext returns the time until the next refresh of the catalog, after one that returned err.
func (c *Catalog) untilNext(err error) time.Duration {
	failed := func(s cloudprovider.PriceState) bool { return s.Err != nil }
	if err != nil || slices.ContainsFunc(c.Cloud.PriceState(), failed) {
		return catalogRetry
	}
	return catalogInterval
}

// templates deletes launch templates of this cluster.
type templates interface {
	CollectLaunchTemplates(ctx context.Context, cutoff time.Time) error
}

// Templates deletes launch templates that have been unused for a while, on the leader.
type Templates struct {
	Cloud templates
	Log   *slog.Logger
	Now   func() time.Time
}

// NeedLeaderElection makes sure that only one replica deletes.
func (*Templates) NeedLeaderElection() bool { return true }

// Start collects until ctx is canceled, the first time after one interval.
func (t *Templates) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, templatesInterval, false /* immediate */, func(ctx context.Context) (bool, error) {
		if err := t.Cloud.CollectLaunchTemplates(ctx, t.Now().Add(-templateMinAge)); err != nil {
			t.Log.Error("collecting launch templates", "error", err)
		}
		return false, nil
	}) // returns only the context's error
	return nil
}
