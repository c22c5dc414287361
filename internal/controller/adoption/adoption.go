// Package adoption checks the owners of instances that are tagged with this cluster's name. It adopts instances that an
// earlier autoscaler of this cluster has launched, and reports another cluster with the same name.
//
// A shared name stops nothing: this cluster's nodes are managed as before, and foreign instances are left alone, since
// every change of an instance checks its owner first.
package adoption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	// passInterval is the pause between passes for up to perInterval instances. It grows with the number of instances: EC2 describes
	// each of them at length, and reading that takes 0.1 ms. The loop takes about one hundredth of a core with 5,000 instances, and
	// less with fewer.
	passInterval = 3 * time.Second
	perInterval  = 100
	// maxInterval bounds the pause: a cluster of the same name is reported within a minute, however large the fleet is.
	maxInterval = 45 * time.Second
	// eventInterval sets how often an event about an unchanged state is repeated.
	eventInterval = 5 * time.Minute
	// joinGracePeriod is the age up to which an instance without a Node is not reported: its node may still register.
	joinGracePeriod = 5 * time.Minute
)

// ReasonClusterNameShared is the reason of the condition and event of that name.
const ReasonClusterNameShared = karpv1.ConditionClusterNameShared

// instances lists the instances that are tagged with this cluster's name, each with its owner, and adopts one.
type instances interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
	Adopt(ctx context.Context, i cloudprovider.Instance) error
}

// Loop adopts instances and reports foreign and unknown ones.
type Loop struct {
	Client  client.Client
	Cloud   instances
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Recorder records adoptions as decisions.
	Recorder *recorder.Recorder

	// attempts are the instances that are not adopted yet, by ID.
	attempts map[string]attempt
}

// attempt is that to adopt an instance: the decision, and whether it has failed.
type attempt struct {
	decision string
	failed   bool
}

// NeedLeaderElection makes sure that only one process adopts.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs passes until ctx is done.
func (l *Loop) Start(ctx context.Context) error {
	for {
		seen, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("checking the owners of instances", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause(seen)):
		}
	}
}

// pause is the time from a pass that has seen so many instances to the next.
func pause(seen int) time.Duration {
	return min(passInterval*time.Duration(1+seen/perInterval), maxInterval)
}

// pass checks all instances once, and returns their number.
func (l *Loop) pass(ctx context.Context) (seen int, err error) {
	instances, err := l.Cloud.List(ctx)
	if err != nil {
		return 0, err
	}
	c := countOwners(instances, l.Now())
	l.Metrics.CountForeign(c.foreign)
	l.Metrics.UnknownInstances.Set(float64(len(c.unknown)))
	return len(instances), errors.Join(l.adopt(ctx, c.adoptable), l.report(ctx, c))
}

// census groups instances by their owner.
type census struct {
	adoptable []cloudprovider.Instance
	// foreign counts instances by the UID of their cluster.
	foreign map[string]int
	// unknown are the IDs of instances without a known owner that are older than joinGracePeriod.
	unknown []string
}

func countOwners(instances []cloudprovider.Instance, now time.Time) census {
	c := census{foreign: map[string]int{}}
	for _, i := range instances {
		switch i.Owner {
		case cloudprovider.Adoptable:
			c.adoptable = append(c.adoptable, i)
		case cloudprovider.Foreign:
			c.foreign[i.Tags[awsv1.TagClusterUID]]++
		case cloudprovider.Unknown:
			if now.Sub(i.LaunchedAt) > joinGracePeriod && i.State != cloudprovider.ShuttingDown {
				c.unknown = append(c.unknown, i.ID)
			}
		}
	}
	slices.Sort(c.unknown)
	return c
}

func (l *Loop) adopt(ctx context.Context, instances []cloudprovider.Instance) error {
	l.decide(instances)
	var errs []error
	for _, i := range instances {
		err := l.Cloud.Adopt(ctx, i)
		l.record(i, err)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.Metrics.Adopted.Inc()
		l.Log.Info("adopted instance", "provider-id", i.ProviderID, "decision-id", l.attempts[i.ID].decision)
	}
	return errors.Join(errs...)
}

// decide records the decision to adopt those instances that no pass before has tried to adopt.
func (l *Loop) decide(instances []cloudprovider.Instance) {
	now := make(map[string]attempt, len(instances))
	var fresh []string
	for _, i := range instances {
		if known, tried := l.attempts[i.ID]; tried {
			now[i.ID] = known
		} else {
			fresh = append(fresh, i.ID)
		}
	}
	if len(fresh) > 0 {
		id := l.Recorder.Decide(recorder.AdoptionDecision(len(fresh)))
		for _, instance := range fresh {
			now[instance] = attempt{decision: id}
		}
	}
	l.attempts = now
}

// record records what became of the adoption of an instance: that it failed, once.
func (l *Loop) record(i cloudprovider.Instance, failure error) {
	try := l.attempts[i.ID]
	step := recorder.Step{Decision: try.decision, What: recorder.StepAdopted, Object: cmp.Or(i.NodeClaim, i.ID), Message: i.ProviderID}
	if failure != nil {
		if try.failed {
			return
		}
		step.What, step.Message = recorder.StepFailed, i.ProviderID+": "+failure.Error()
		l.attempts[i.ID] = attempt{try.decision, true}
	}
	l.Recorder.Step(step)
}

// report publishes events and maintains the condition on every NodePool.
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
			l.Events.WarnEvery(eventInterval, pool, ReasonClusterNameShared, "%s", c.sharedNameMessage())
		}
		if len(c.unknown) > 0 {
			l.Events.WarnEvery(eventInterval, pool, "UnknownInstances", "%s", c.unknownMessage())
		}
		errs = append(errs, l.updateCondition(ctx, pool, c))
	}
	return errors.Join(errs...)
}

// updateCondition maintains the condition of a pool.
func (l *Loop) updateCondition(ctx context.Context, pool *karpv1.NodePool, c census) error {
	_, err := patch.Status(ctx, l.Client, pool, func() {
		if len(c.foreign) > 0 {
			condition.SetTrueWithReason(
				pool,
				karpv1.ConditionClusterNameShared,
				condition.Because(ReasonClusterNameShared, c.sharedNameMessage()),
				l.Now(),
			)
		} else {
			condition.Clear(pool, karpv1.ConditionClusterNameShared, l.Now())
		}
	})
	return client.IgnoreNotFound(err)
}

// sharedNameMessage names the other clusters. The metric has the numbers of their instances, which change all the time.
func (c census) sharedNameMessage() string {
	return fmt.Sprintf(
		"the cluster with UID %s has the same settings.clusterName: its instances have this cluster's name in their tags and are left alone. "+
			"Give each cluster its own name: IAM policies, security groups and other tools rely on it",
		strings.Join(slices.Sorted(maps.Keys(c.foreign)), ", "),
	)
}

// unknownMessage names a few of the unknown instances.
func (c census) unknownMessage() string {
	const shown = 5
	some := c.unknown[:min(shown, len(c.unknown))]
	more := ""
	if rest := len(c.unknown) - len(some); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf(
		"instances %s%s have this cluster's name in their tags, but not its UID, and no Node and NodeClaim of this cluster: they are left alone. "+
			"If they are left over from this cluster, adopt them with `dovetail adopt %s`",
		strings.Join(some, ", "),
		more,
		strings.Join(some, " "),
	)
}
