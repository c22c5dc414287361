// Package zonalshift follows the zonal shifts of the cluster, and tells the pools that they concern.
package zonalshift

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const (
	// every is how often the shifts are asked for.
	every = 30 * time.Second
	// retrySoon is the pause after a failure; it doubles with each further one, up to retryLate.
	retrySoon, retryLate = 5 * time.Second, time.Minute
	// staleAfter is how old the last answer may be before pools are warned: one that fails once is no news.
	staleAfter = 2 * time.Minute
	// reminder is how often a pool is told of the same shift.
	reminder = time.Hour
)

// watcher knows from which zones the cluster keeps away, by their IDs.
type watcher interface {
	RefreshZonalShifts(ctx context.Context) error
	ShiftedZones() []string
	ZonalShiftState() cloudprovider.ShiftState
}

// Refresher asks for the shifts in every replica, so that one which is elected later launches nothing where it must not.
type Refresher struct {
	Cloud watcher
	// Readable is 1 while the shifts can be read, 0 while they cannot.
	Readable prometheus.Gauge
	Log      *slog.Logger
}

// NewReadable declares the gauge of a Refresher in reg.
func NewReadable(reg prometheus.Registerer) (prometheus.Gauge, error) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dovetail_zonal_shifts_readable", Help: "1 while the zonal shifts of the cluster can be read, 0 while they cannot.",
	})
	return g, reg.Register(g)
}

// NeedLeaderElection is false: reading is for all.
func (*Refresher) NeedLeaderElection() bool { return false }

// Start asks until ctx ends.
func (r *Refresher) Start(ctx context.Context) error {
	retry := retrySoon
	return repeat(ctx, func() time.Duration {
		err := r.Cloud.RefreshZonalShifts(ctx)
		if err == nil {
			r.Readable.Set(1)
			retry = retrySoon
			return every
		}
		wait := retry
		retry = min(2*retry, retryLate)
		r.Readable.Set(0)
		if ctx.Err() == nil {
			r.Log.Error("zonal shifts cannot be read; those known hold until they end", "retryIn", wait.String(), "error", err)
		}
		return wait
	})
}

// repeat does it at once and then again and again, each time after the pause that it returns, until ctx ends.
func repeat(ctx context.Context, do func() time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(do()):
		}
	}
}

// Teller tells NodePools of zones in which they launch nothing, and when they do again.
type Teller struct {
	Client client.Client
	Cloud  watcher
	Labels requirement.Labels
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time

	// told are the zones of which every pool has been told that they are shifted.
	told []string
}

// NeedLeaderElection makes sure that one process tells.
func (*Teller) NeedLeaderElection() bool { return true }

// Start tells until ctx ends.
func (t *Teller) Start(ctx context.Context) error {
	return repeat(ctx, func() time.Duration {
		if err := t.pass(ctx); err != nil && ctx.Err() == nil {
			t.Log.Error("telling node pools of zonal shifts", "error", err)
		}
		return every
	})
}

func (t *Teller) pass(ctx context.Context) error {
	now, unread := t.Cloud.ShiftedZones(), t.unread()
	if len(now) == 0 && len(t.told) == 0 && unread == "" {
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
		if unread != "" && awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			t.Events.WarnEvery(reminder, pool, "ZonalShiftsUnreadable", "%s", unread)
		}
		for id, name := range t.zones(pool, classes.Items) {
			was, is := slices.Contains(t.told, id), slices.Contains(now, id)
			switch {
			case is: // also to a pool that has come since
				t.Events.WarnEvery(reminder, pool, "ZonalShiftActive", "The cluster is shifted away from zone %s (%s): no nodes are launched there", name, id)
			case was:
				t.Events.Normal(pool, "ZonalShiftCleared", "The cluster is not shifted away from zone %s (%s) any more", name, id)
			}
		}
	}
	t.told = now
	return nil
}

// unread says that the shifts are not known, and what follows; empty while they are.
func (t *Teller) unread() string {
	switch s := t.Cloud.ZonalShiftState(); {
	case s.Err == nil:
		return ""
	case s.Read.IsZero():
		return fmt.Sprintf("The zonal shifts of the cluster cannot be read (%v). "+
			"Until they can, nodes may be launched in a zone that the cluster is shifted away from", s.Err)
	case t.Now().Sub(s.Read) >= staleAfter:
		return fmt.Sprintf("The zonal shifts of the cluster cannot be read since %s (%v). "+
			"Those known hold until they end; nodes may be launched in a zone shifted away from since", s.Read.UTC().Format(time.RFC3339), s.Err)
	}
	return ""
}

// zones are those that a pool can launch in: name by ID. One whose requirements cannot be read launches nothing.
func (t *Teller) zones(pool *karpv1.NodePool, classes []awsv1.EC2NodeClass) map[string]string {
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
