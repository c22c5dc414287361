// Package zonalshift knows which availability zones a cluster is shifted away from, by a zonal shift that somebody has started
// or by an autoshift of AWS, and does not trust what EC2 reports about instances there.
//
// Each response replaces the last one, so that a canceled shift finishes whatever other shifts there are. While there is no response,
// the last one holds: a shift until it expires, an autoshift, which has no end, for an hour.
package zonalshift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
)

// autoshiftTTL sets how long an autoshift holds after it was last seen. Autoshifts have no expiry time. An hour outlasts an outage of
// the API in the region, which is likely just then, and does not avoid a zone forever if the API stays out of reach.
const autoshiftTTL = time.Hour

// API describes what Watcher calls of the Application Recovery Controller.
type API interface {
	GetManagedResource(
		ctx context.Context,
		in *arczonalshift.GetManagedResourceInput,
		optFns ...func(*arczonalshift.Options),
	) (*arczonalshift.GetManagedResourceOutput, error)
}

// Watcher knows the shifts of one cluster. It is safe for concurrent use.
type Watcher struct {
	api API
	now func() time.Time

	mu    sync.Mutex
	until map[string]time.Time // by zone ID
}

// New returns a Watcher that knows of no shift.
func New(api API, now func() time.Time) *Watcher { return &Watcher{api: api, now: now} }

// Refresh reads the shifts of the cluster with this ARN.
func (w *Watcher) Refresh(ctx context.Context, cluster string) error {
	now := w.now()
	out, err := w.api.GetManagedResource(ctx, &arczonalshift.GetManagedResourceInput{ResourceIdentifier: aws.String(cluster)})
	if err != nil {
		return fmt.Errorf("read the zonal shifts of %s: %w", cluster, err)
	}
	until := map[string]time.Time{}
	later := func(zone *string, end time.Time) {
		if id := aws.ToString(zone); id != "" && end.After(until[id]) {
			until[id] = end
		}
	}
	for _, s := range out.ZonalShifts {
		if s.AppliedStatus == types.AppliedStatusApplied {
			later(s.AwayFrom, aws.ToTime(s.ExpiryTime))
		}
	}
	for _, s := range out.Autoshifts {
		if s.AppliedStatus == types.AutoshiftAppliedStatusApplied {
			later(s.AwayFrom, now.Add(autoshiftTTL))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = until
	return nil
}

// Away reports whether the cluster is shifted away from the zone with this ID.
func (w *Watcher) Away(zoneID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now().Before(w.until[zoneID])
}

// Zones are the IDs of the zones that the cluster is shifted away from, sorted.
func (w *Watcher) Zones() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	var out []string
	for _, id := range slices.Sorted(maps.Keys(w.until)) {
		if now.Before(w.until[id]) {
			out = append(out, id)
		}
	}
	return out
}
