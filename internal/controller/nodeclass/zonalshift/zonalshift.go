// Package zonalshift follows the zonal shifts of the cluster, and reports them on the NodePools in the shifted zones.
package zonalshift

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const (
	// interval is the time between two reads of the shifts. A shift should keep launches out of its zone within a minute.
	interval = 30 * time.Second
	// minRetry is the retry delay after a failure; it doubles with each further one, up to maxRetry.
	minRetry, maxRetry = 5 * time.Second, time.Minute
	// staleAfter sets how old the last result may be before pools get a warning: one failure is no news.
	staleAfter = 2 * time.Minute
	// eventWindow is the dedupe window of the event about a shift on a pool.
	eventWindow = time.Hour
)

// watcher knows the zones that the cluster is shifted away from, by their IDs.
type watcher interface {
	RefreshZonalShifts(ctx context.Context) error
	ShiftedZones() []string
	ZonalShiftState() cloudprovider.ShiftState
}

// Refresher reads the shifts in every replica, so that a later leader launches nothing in a shifted zone.
type Refresher struct {
	Cloud watcher
	// Readable is 1 while the shifts can be read, 0 while they cannot.
	Readable prometheus.Gauge
	Log      *slog.Logger
}

// NewReadableGauge declares the gauge of a Refresher in reg. It has no labels, and no value until a Refresher gets it: where shifts are
// not followed, 0 would be an alert.
func NewReadableGauge(reg prometheus.Registerer) (*prometheus.GaugeVec, error) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_zonal_shifts_readable", Help: "1 while the zonal shifts of the cluster can be read, 0 while they cannot.",
	}, nil)
	return g, reg.Register(g)
}

// NeedLeaderElection is false: every replica reads.
func (*Refresher) NeedLeaderElection() bool { return false }

// Start reads until ctx is canceled.
func (r *Refresher) Start(ctx context.Context) error {
	retry, next := minRetry, interval
	_ = wait.DelayFunc(func() time.Duration { return next }).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := r.Cloud.RefreshZonalShifts(ctx)
		if err == nil {
			r.Readable.Set(1)
			retry, next = minRetry, interval
			return false, nil
		}
		next, retry = retry, min(2*retry, maxRetry)
		r.Readable.Set(0)
		if ctx.Err() == nil {
			r.Log.Error("zonal shifts cannot be read; known shifts stay in effect until they expire", "retryIn", next.String(), "error", err)
		}
		return false, nil
	}) // returns only the context's error
	return nil
}

// EventRecorder records events on NodePools about zones in which they launch nothing, and when they launch there again.
type EventRecorder struct {
	Client client.Client
	Cloud  watcher
	Labels requirement.Labels
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time

	// reported are the shifted zones that are reported on every pool.
	reported []string
}

// NeedLeaderElection makes sure that one replica records.
func (*EventRecorder) NeedLeaderElection() bool { return true }

// Start records until ctx is canceled.
func (t *EventRecorder) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := t.pass(ctx); err != nil && ctx.Err() == nil {
			t.Log.Error("recording zonal shifts on node pools", "error", err)
		}
	}, interval)
	return nil
}

func (t *EventRecorder) pass(ctx context.Context) error {
	current, stale := t.Cloud.ShiftedZones(), t.staleMessage()
	if len(current) == 0 && len(t.reported) == 0 && stale == "" {
		return nil
	}
	var pools karpv1.NodePoolList
	if err := t.Client.List(ctx, &pools); err != nil {
		return err
	}
	var classes awsv1.EC2NodeClassList
	if err := t.Client.List(ctx, &classes); err != nil {
		return err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if stale != "" && awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			t.Events.WarnEvery(eventWindow, pool, "ZonalShiftsUnreadable", "%s", stale)
		}
		for id, name := range t.zones(pool, classes.Items) {
			was, is := slices.Contains(t.reported, id), slices.Contains(current, id)
			switch {
			case is: // also for a pool created since
				t.Events.WarnEvery(
					eventWindow,
					pool,
					"ZonalShiftActive",
					"The cluster is shifted away from zone %s (%s): no nodes are launched there",
					name,
					id,
				)
			case was:
				t.Events.Normal(pool, "ZonalShiftCleared", "The cluster is not shifted away from zone %s (%s) any more", name, id)
			}
		}
	}
	t.reported = current
	return nil
}

// staleMessage returns the warning for shifts that cannot be read, with its consequence; empty while they can.
func (t *EventRecorder) staleMessage() string {
	switch s := t.Cloud.ZonalShiftState(); {
	case s.Err == nil:
		return ""
	case s.Read.IsZero():
		return fmt.Sprintf("The zonal shifts of the cluster cannot be read (%v). "+
			"Until they can, nodes may be launched in a zone that the cluster is shifted away from", s.Err)
	case t.Now().Sub(s.Read) >= staleAfter:
		return fmt.Sprintf("The zonal shifts of the cluster cannot be read since %s (%v). "+
			"Known shifts stay in effect until they expire; nodes may be launched in a zone shifted away from since", s.Read.UTC().Format(time.RFC3339), s.Err)
	}
	return ""
}

// zones returns the zones in which a pool can launch: name by ID. A pool with invalid requirements launches nothing.
func (t *EventRecorder) zones(pool *karpv1.NodePool, classes []awsv1.EC2NodeClass) map[string]string {
	ref := pool.Spec.Template.Spec.NodeClassRef
	n := slices.IndexFunc(classes, func(c awsv1.EC2NodeClass) bool { return awsv1.IsEC2NodeClass(ref) && c.Name == ref.Name })
	reqs, err := t.Labels.FromPool(pool, [2]string{})
	if n < 0 || err != nil {
		return nil
	}
	out := map[string]string{}
	for _, s := range classes[n].Status.Subnets {
		if reqs.Get(corev1.LabelTopologyZone).Has(s.Zone) && reqs.Get(awsv1.LabelZoneID).Has(s.ZoneID) {
			out[s.ZoneID] = s.Zone
		}
	}
	return out
}
