// Package adoption looks at whose the instances under this cluster's name are: it takes over those that an
// autoscaler before this one has launched, and names the clash when another cluster bears the same name.
//
// A clash stops nothing: work on our own nodes goes on, and those of others are left alone by everybody,
// since whatever ends or tags an instance asks for its owner first.
package adoption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

const (
	// lookEvery is the pause between two looks at up to pageSize instances; more take as many times longer, so
	// that the calls to EC2 do not grow with the fleet.
	lookEvery = 3 * time.Second
	pageSize  = 1000
	// remindEvery is how often an event says again what has not changed.
	remindEvery = 5 * time.Minute
	// joinsWithin spares instances whose node may still be on its way: nothing is odd about them yet.
	joinsWithin = 5 * time.Minute
)

// ReasonClusterNameShared is the reason of the condition and event of that name.
const ReasonClusterNameShared = karpv1.ConditionClusterNameShared

// fleet lists the instances under this cluster's name, each with its owner, and adopts those that are adoptable.
type fleet interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
	Adopt(ctx context.Context, i cloudprovider.Instance) error
}

// Loop adopts and reports.
type Loop struct {
	Client  client.Client
	Cloud   fleet
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// NeedLeaderElection makes sure that only one process adopts.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for {
		seen, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("looking at whose instances are", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery * time.Duration(1+seen/pageSize)):
		}
	}
}

// pass looks once, and returns how many instances there are.
func (l *Loop) pass(ctx context.Context) (seen int, err error) {
	instances, err := l.Cloud.List(ctx)
	if err != nil {
		return 0, err
	}
	c := take(instances, l.Now())
	l.Metrics.CountForeign(c.foreign)
	l.Metrics.UnknownInstances.Set(float64(len(c.unknown)))
	return len(instances), errors.Join(l.adopt(ctx, c.adoptable), l.report(ctx, c))
}

// census is whose instances there are.
type census struct {
	adoptable []cloudprovider.Instance
	// foreign counts instances by the UID of their cluster.
	foreign map[string]int
	// unknown are the IDs of instances that nobody knows and that are past the time in which they could join.
	unknown []string
}

func take(instances []cloudprovider.Instance, now time.Time) census {
	c := census{foreign: map[string]int{}}
	for _, i := range instances {
		switch i.Owner {
		case cloudprovider.Adoptable:
			c.adoptable = append(c.adoptable, i)
		case cloudprovider.Foreign:
			c.foreign[i.Tags[awsv1.TagClusterUID]]++
		case cloudprovider.Unknown:
			if now.Sub(i.LaunchedAt) > joinsWithin && i.State != cloudprovider.ShuttingDown {
				c.unknown = append(c.unknown, i.ID)
			}
		}
	}
	slices.Sort(c.unknown)
	return c
}

func (l *Loop) adopt(ctx context.Context, instances []cloudprovider.Instance) error {
	var errs []error
	for _, i := range instances {
		if err := l.Cloud.Adopt(ctx, i); err != nil {
			errs = append(errs, err)
			continue
		}
		l.Metrics.Adopted.Inc()
		l.Log.Info("adopted instance", "provider-id", i.ProviderID)
	}
	return errors.Join(errs...)
}

// report says on every NodePool what people should know.
func (l *Loop) report(ctx context.Context, c census) error {
	var pools karpv1.NodePoolList
	if err := l.Client.List(ctx, &pools); err != nil {
		return err
	}
	var errs []error
	for n := range pools.Items {
		pool := &pools.Items[n]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) || pool.DeletionTimestamp != nil {
			continue
		}
		if len(c.foreign) > 0 {
			l.Events.WarnEvery(remindEvery, pool, ReasonClusterNameShared, "%s", c.clash())
		}
		if len(c.unknown) > 0 {
			l.Events.WarnEvery(remindEvery, pool, "UnknownInstances", "%s", c.strangers())
		}
		errs = append(errs, l.mark(ctx, pool, c))
	}
	return errors.Join(errs...)
}

// mark keeps the condition of a pool.
func (l *Loop) mark(ctx context.Context, pool *karpv1.NodePool, c census) error {
	before := pool.DeepCopy()
	if len(c.foreign) > 0 {
		condition.SetTrueWithReason(pool, karpv1.ConditionClusterNameShared, ReasonClusterNameShared, c.clash(), l.Now())
	} else {
		condition.Clear(pool, karpv1.ConditionClusterNameShared, l.Now())
	}
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return nil
	}
	err := l.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// clash names the other clusters. How many instances they have is in the metric: it changes all the time.
func (c census) clash() string {
	return fmt.Sprintf("settings.clusterName is also that of the cluster with UID %s: its instances bear this cluster's name and are left alone. "+
		"Give each cluster its own name: policies, security groups and other tools go by it", strings.Join(slices.Sorted(maps.Keys(c.foreign)), ", "))
}

// strangers names a few of the instances that nobody knows.
func (c census) strangers() string {
	const shown = 5
	some := c.unknown[:min(shown, len(c.unknown))]
	more := ""
	if rest := len(c.unknown) - len(some); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("instances %s%s bear this cluster's name, but not its identity, and no Node and NodeClaim here have them: they are left alone. "+
		"If they are this cluster's leftovers, release them by `dovetail adopt %s`", strings.Join(some, ", "), more, strings.Join(some, " "))
}
