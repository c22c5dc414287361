// Package refresh renews what is known of the cloud, and clears away launch templates that nobody uses.
package refresh

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// catalogEvery is how often instance types and prices are read again, and how soon after a failure.
	catalogEvery, catalogRetry = 12 * time.Hour, 5 * time.Minute
	versionEvery               = 5 * time.Minute
	templatesEvery             = 10 * time.Minute
	// templateAge is how long a launch template is kept after it was made: a launch may still refer to it.
	templateAge = time.Hour
)

// catalog is what is known of instance types, prices and the cluster's version.
type catalog interface {
	Refresh(ctx context.Context) error
	RefreshVersion(ctx context.Context) error
	// PriceState tells whether the prices could be read the last time.
	PriceState() []cloudprovider.PriceState
}

// Catalog renews in every replica, so that one that is elected later does not plan with old prices.
type Catalog struct {
	Cloud catalog
	Log   *slog.Logger
}

// NeedLeaderElection is false: reading is for all.
func (*Catalog) NeedLeaderElection() bool { return false }

// Start renews until ctx ends. The caller has read everything once already. The error is
// cloud.ErrIdentityMismatch when the cluster's name has come to name another cluster: it ends the controller.
func (c *Catalog) Start(ctx context.Context) error {
	types := time.NewTimer(c.wait(nil))
	defer types.Stop()
	version := time.NewTicker(versionEvery)
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
			types.Reset(c.wait(err))
		case <-version.C:
			if slices.ContainsFunc(c.Cloud.PriceState(), func(s cloudprovider.PriceState) bool { return s.Due }) {
				types.Reset(0) // a node class is the first of its platform
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

// wait is how long what is known will do, after the last attempt to renew it came to err.
func (c *Catalog) wait(err error) time.Duration {
	failed := func(s cloudprovider.PriceState) bool { return s.Err != nil }
	if err != nil || slices.ContainsFunc(c.Cloud.PriceState(), failed) {
		return catalogRetry
	}
	return catalogEvery
}

// templates deletes launch templates of this cluster.
type templates interface {
	CollectLaunchTemplates(ctx context.Context, cutoff time.Time) error
}

// Templates deletes launch templates that have not been used for a while, on the leader.
type Templates struct {
	Cloud templates
	Log   *slog.Logger
	Now   func() time.Time
}

// NeedLeaderElection makes sure that only one process deletes.
func (*Templates) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (t *Templates) Start(ctx context.Context) error {
	ticker := time.NewTicker(templatesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := t.Cloud.CollectLaunchTemplates(ctx, t.Now().Add(-templateAge)); err != nil {
				t.Log.Error("collecting launch templates", "error", err)
			}
		}
	}
}
