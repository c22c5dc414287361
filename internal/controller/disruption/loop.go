// Package disruption consolidates nodes that cost more than they are worth and replaces drifted ones, within the
// budgets of their pools. The engine decides what to disrupt; this package validates the decision and executes it.
//
// A Loop finds commands. A command that saves money must stay valid for ValidationDelay before it starts, while the loop
// goes on searching. A command that starts is written to the claims that it deletes, and the Queue completes it, in
// this process or in the next.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	noderepair "github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	// passInterval is the pause after a pass that found nothing; a change of a claim stops it early. It is Karpenter's.
	passInterval = 10 * time.Second
	// longestTurn is how long a pass waits for others that are in progress: nodes for pods are planned in seconds. A pass that takes longer
	// waits for the API server, and has no need of a core.
	longestTurn = 30 * time.Second
	// failureBackoff is the shortest pause after a pass that failed.
	failureBackoff = time.Second
	// ValidationDelay is how long a command must stay valid before it is executed. It is Karpenter's.
	ValidationDelay = pass.ValidationDelay
)

// clusterState takes snapshots. The loop reports its decisions to it, since the cache shows them late.
type clusterState interface {
	deletionMarks
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	Version(ctx context.Context) (cluster.Version, bool)
	LockProvisioning() (done func())
	MarkDisrupting(uid types.UID, replacements []string)
	Created(claim *karpv1.NodeClaim)
	Nominate(node string)
	Invalidate()
	Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error)
	Release(pool string)
	ReservedRoom(ctx context.Context, pool *karpv1.NodePool) (reservation.TemplateRoom, error)
}

// breaker pauses replacements in a pool, by reason, after replacements that failed.
type breaker interface {
	// Limit returns how many replacements may start, and why no more; limited is false if any number may.
	Limit(ctx context.Context, pool string, reason karpv1.DisruptionReason) (limit pass.StartLimit, limited bool)
	Started(pool string, reason karpv1.DisruptionReason)
	haltChecker
}

// launches are the passes that launch nodes for pods.
type launches interface {
	// AwaitBurstEnd waits until no burst of pods is planned, for at most the time given. It returns false if ctx is done first.
	AwaitBurstEnd(ctx context.Context, atMost time.Duration) bool
	// InBurst reports whether many pods arrive or are planned.
	InBurst() bool
}

// Loop finds nodes to disrupt, one pass at a time.
type Loop struct {
	Client client.Client
	// Live reads from the API server: the last check before a node is deleted must not be of a stale cache.
	Live   client.Reader
	State  clusterState
	Queue  *Queue
	Labels requirement.Labels
	// Consolidation are the settings of the search for nodes to consolidate.
	Consolidation consolidate.Settings
	// StaticCapacity is the feature gate StaticCapacity: drifted nodes of static pools are replaced, too.
	StaticCapacity bool
	// TerminateFirst are the reasons for which nodes may go before their replacements come.
	TerminateFirst TerminateFirst
	// Breaker may be nil: then nothing pauses.
	Breaker breaker
	// Repairs counts repairs; nil if the feature gate NodeRepair is off, and nothing is repaired here.
	Repairs *noderepair.Metrics
	// Rebooter checks whether instances can be rebooted; nil if nodes are only replaced.
	Rebooter rebootChecker
	Events   *event.Recorder
	Metrics  *metrics.Metrics
	Log      *slog.Logger
	Now      func() time.Time
	// ID returns a unique ID for a command.
	ID func() string
	// ValidationDelay is the constant of that name in production.
	ValidationDelay time.Duration
	// Pace divides the pause between passes.
	Pace pace.Pace
	// Provisioning has passes wait, and searches end, while many pods arrive and get nodes; nil never does.
	Provisioning launches
	// Turns are the passes over the cluster that are in progress, of others as well; nil waits for none.
	Turns *turns.Turns
	// Decide decides a pass; nil means pass.Decide.
	Decide func(pass.Input) (pass.Decisions, pass.Memory)
	// Quarantine holds the pods that are left out of planning; nil means an empty one of this Loop.
	Quarantine *quarantine.Registry
	// Costly has the pending pods that provisioning leaves out of most plans; nil has none.
	Costly *provisioning.CostlyPods
	// Panics records passes that panicked; nil records nothing.
	Panics *panics.Reporter
	// Recorder records passes and decisions; nil records nothing.
	Recorder *recorder.Recorder

	// wake stops the pause before the next pass; nil never does.
	wake chan struct{}

	// gaugedPools are the pools that gauges exist for.
	gaugedPools map[string]bool
	// methodRuns is when each method last ran.
	methodRuns map[string]methodRun
	// panicsInARow counts consecutive passes that panicked although no pod was the cause.
	panicsInARow int
	// restsUntil is the earliest start of the next search for savings, whatever changes: other work of the process needs CPU time, too.
	restsUntil time.Time
	// interrupted is true if a burst of pods stopped the last search. The next one is not interrupted, so that bursts which follow each other
	// do not keep nodes from being consolidated.
	interrupted bool
	// pauses are what replacements wait for, by pool and reason.
	pauses pauses
	// idle is the last pass, if it found nothing to do.
	idle idlePass
	// passInput is what the current pass depends on; nil before it is known.
	passInput *pass.Input
	// retrySoon is true if the last pass dropped a command, since the cluster had changed.
	retrySoon bool
}

// NeedLeaderElection makes sure that only one process disrupts.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs passes until ctx is done.
func (l *Loop) Start(ctx context.Context) error {
	for goOn := true; goOn; {
		if l.Provisioning != nil && !l.Provisioning.AwaitBurstEnd(ctx, disrupt.LongestBurst) {
			return nil
		}
		began := l.Now()
		acted, err := l.runInTurn(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("disrupting nodes", "error", err)
		}
		goOn = l.waitForNextPass(ctx, l.pause(acted, err), l.Now().Sub(began))
	}
	return nil
}

// runInTurn runs a pass when no other is in progress.
func (l *Loop) runInTurn(ctx context.Context) (acted bool, err error) {
	if l.Turns != nil {
		defer l.Turns.Take(ctx, longestTurn)()
	}
	return l.runPass(ctx)
}

// pause is how long to wait before the next pass: not at all after a pass that started a command, since there may be
// more to do. After a pass that failed, due proposals are still due.
func (l *Loop) pause(acted bool, err error) time.Duration {
	switch {
	case acted && err == nil:
		return 0
	case acted, l.retrySoon:
		return failureBackoff
	case l.panicsInARow > 0:
		return backoff.Doubling{First: passInterval, Max: maxPanicBackoff}.After(l.panicsInARow - 1)
	}
	wait, now := l.Pace.Of(passInterval), l.Now()
	remembers := l.Queue.memory.now()
	for i := range remembers.Proposals {
		wait = min(wait, max(remembers.Proposals[i].Due.Sub(now), 0))
	}
	if due := remembers.Search.Due; due.After(now) {
		wait = min(wait, due.Sub(now))
	}
	if err != nil {
		return max(wait, failureBackoff)
	}
	return wait
}

// pass takes a snapshot, has the engine decide on it, and performs what it decides. It does nothing while the last pass found nothing to
// do, and nothing has changed since.
func (l *Loop) pass(ctx context.Context) (acted bool, err error) {
	l.logOverdueMethods()
	l.passInput, l.retrySoon = nil, false
	version, known := l.State.Version(ctx)
	if known && l.stillIdle(version) {
		return false, nil
	}
	l.idle = idlePass{}
	errs := []error{l.Queue.retryRollbacks(ctx)}
	all, err := l.State.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	snap := l.Costly.Without(l.withoutQuarantined(all), l.Now())
	errs = append(errs, l.untaintOrphans(ctx, snap))
	rec := l.Recorder.Begin(recorder.Disruption, all, snap)
	defer rec.Flush()
	in, err := l.input(ctx, snap)
	errs = append(errs, err)
	l.passInput = &in
	measured := l.measured(&in)
	decided, remembers := l.decide(in)
	if decided.Found != nil || decided.Stats.InterruptedAt > 0 { // a search was made
		l.interrupted = decided.Stats.InterruptedAt > 0
	}
	l.identify(&decided, &remembers)
	l.record(rec, &in, &decided)
	l.report(&decided, measured)
	l.Queue.memory.keep(remembers)
	if len(decided.Start) > 0 {
		rec.Commit()
	}
	done, err := l.perform(ctx, decided.Start)
	l.retrySoon = done.dropped
	if err = errors.Join(append(errs, err)...); known && err == nil {
		l.rememberIdle(&decided, version)
	}
	return done.started > 0, err
}

// decide is pass.Decide, or what a test has in its place.
func (l *Loop) decide(in pass.Input) (pass.Decisions, pass.Memory) {
	if l.Decide != nil {
		return l.Decide(in)
	}
	return pass.Decide(in)
}

// identify gives commands their IDs. Empty nodes that start together share a prefix.
func (l *Loop) identify(decided *pass.Decisions, remembers *pass.Memory) {
	var emptyID string
	empties := 0
	for i := range decided.Start {
		switch c := &decided.Start[i]; {
		case c.ConsolidationType == disrupt.TypeEmpty:
			if emptyID == "" {
				emptyID = l.ID()
			}
			c.ID = partOf(emptyID, empties)
			empties++
		case c.ID == "":
			c.ID = l.ID()
		}
	}
	proposed := remembers.Proposals[len(remembers.Proposals)-len(decided.Propose):]
	for i := range decided.Propose {
		if c := &decided.Propose[i]; c.ConsolidationType != disrupt.TypeEmpty { // those get theirs when they start
			c.ID = l.ID()
			proposed[i].ID = c.ID
			for k := range decided.Found.Commands {
				if found := &decided.Found.Commands[k]; found.Candidates[0] == c.Candidates[0] {
					found.ID = c.ID
				}
			}
		}
	}
}

// untaintOrphans removes the disruption taint from nodes that no command disrupts: the claim has no command, or one
// that cannot be parsed. An error with one node does not affect the others.
func (l *Loop) untaintOrphans(ctx context.Context, snap *snapshot.Snapshot) error {
	var errs []error
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Claim == "" || !n.Registered || n.Deleting || n.Disrupting || !slices.ContainsFunc(n.Taints, karpv1.IsTaintDisrupted) {
			continue
		}
		if err := l.untaintOrphan(ctx, n); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("remove the disruption taint of node %q, which no command disrupts: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Loop) untaintOrphan(ctx context.Context, n *snapshot.Node) error {
	node := &corev1.Node{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil || node.DeletionTimestamp != nil {
		return err
	}
	claim := &karpv1.NodeClaim{}
	if err := l.Live.Get(ctx, client.ObjectKey{Name: n.Claim}, claim); err != nil {
		return err
	}
	if _, disrupted, err := claim.DisruptionCommand(); disrupted && err == nil || claim.DeletionTimestamp != nil {
		return nil // the snapshot was stale
	}
	// The taint goes last: as long as it exists, the next pass tries again.
	if _, err := patch.Object(ctx, l.Client, claim, func() { delete(claim.Annotations, karpv1.AnnotationDisruptionCommand) }); err != nil {
		return err
	}
	_, err := patch.Status(ctx, l.Client, claim, func() { condition.Clear(claim, karpv1.ConditionDisruptionReason, l.Now()) })
	if err != nil {
		return err
	}
	return setTaint(ctx, l.Client, l.Live, n.Name, false /* present */)
}
