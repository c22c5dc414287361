// Package zonalshift follows the zonal shifts of the cluster, and tells the pools that they concern.
package zonalshift

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const (
	// every is how often the shifts are asked for.
	every = 30 * time.Second
	// reminder is how often a pool is told of the same shift.
	reminder = time.Hour
)

// watcher knows from which zones the cluster keeps away, by their IDs.
type watcher interface {
	RefreshZonalShifts(ctx context.Context) error
	ShiftedZones() []string
}

// Refresher asks for the shifts in every replica, so that one which is elected later launches nothing where it must not.
type Refresher struct {
	Cloud watcher
	Log   *slog.Logger
}

// NeedLeaderElection is false: reading is for all.
func (*Refresher) NeedLeaderElection() bool { return false }

// Start asks until ctx ends. The caller has asked once already.
func (r *Refresher) Start(ctx context.Context) error {
	return repeat(ctx, func() {
		if err := r.Cloud.RefreshZonalShifts(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error("reading zonal shifts; what was known of them holds until they end", "error", err)
		}
	})
}

// repeat does it at once and then again and again, until ctx ends.
func repeat(ctx context.Context, do func()) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
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

	// told are the zones of which every pool has been told that they are shifted.
	told []string
}

// NeedLeaderElection makes sure that one process tells.
func (*Teller) NeedLeaderElection() bool { return true }

// Start tells until ctx ends.
func (t *Teller) Start(ctx context.Context) error {
	return repeat(ctx, func() {
		if err := t.pass(ctx); err != nil && ctx.Err() == nil {
			t.Log.Error("telling node pools of zonal shifts", "error", err)
		}
	})
}

func (t *Teller) pass(ctx context.Context) error {
	now := t.Cloud.ShiftedZones()
	if len(now) == 0 && len(t.told) == 0 {
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
