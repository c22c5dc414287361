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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
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
	ValidationDelay = 15 * time.Second
	// maxDriftSimulations is how many drifted nodes one pass tries: each takes a scheduling simulation, and the nodes
	// that failed come last in the next pass.
	maxDriftSimulations = 50
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
	Open(ctx context.Context, pool string, reason karpv1.DisruptionReason) (why string, open bool)
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
	// Compile prepares a snapshot for scheduling simulations; nil means consolidate.Compile.
	Compile func(*snapshot.Snapshot) *schedule.Problem
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

	proposals []proposal
	// gaugedPools are the pools that gauges exist for.
	gaugedPools map[string]bool
	// methodRuns is when each method last ran.
	methodRuns map[string]methodRun
	// driftFailedAt is when a drifted node was last found to be irreplaceable, since its pods fit nowhere.
	driftFailedAt map[types.UID]time.Time
	// excluded are nodes that could not be tainted, and until when they are excluded from consolidation.
	excluded map[types.UID]time.Time
	// refusedReplacements are nodes with a replacement that the API server rejected as invalid.
	refusedReplacements map[types.UID]refusalBackoff
	// panicsInARow counts consecutive passes that panicked although no pod was the cause.
	panicsInARow int
	// ledger tracks the cost of pools.
	ledger disrupt.PoolCosts
	// lastSearch is the last search that found nothing to consolidate.
	lastSearch fruitlessSearch
	// manyPendingSince is since when many pods wait for nodes; zero while few do.
	manyPendingSince time.Time
	// interrupted is true if a burst of pods stopped the last search. The next one is not interrupted, so that bursts which follow each other
	// do not keep nodes from being consolidated.
	interrupted bool
	// pauses are what replacements wait for, by pool and reason.
	pauses pauses
	// idle is the last pass, if it found nothing to do.
	idle idlePass
	// passSnapshot is the snapshot of the current pass.
	passSnapshot *snapshot.Snapshot
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
	case acted:
		return failureBackoff
	case l.panicsInARow > 0:
		return panics.Backoff(passInterval, maxPanicBackoff, l.panicsInARow-1)
	}
	wait, now := l.Pace.Of(passInterval), l.Now()
	for i := range l.proposals {
		wait = min(wait, max(l.proposals[i].due.Sub(now), 0))
	}
	if due := l.lastSearch.due; due.After(now) {
		wait = min(wait, due.Sub(now))
	}
	if err != nil {
		return max(wait, failureBackoff)
	}
	return wait
}

// passState is the working state of one pass.
type passState struct {
	*disrupt.View
	// rec records the pass; nil records nothing.
	rec *recorder.Pass
	// budgets are the disruptions that the budgets still allow, by reason.
	budgets map[karpv1.DisruptionReason]*disrupt.RemainingBudgets
	// costs are what the nodes of pools cost, in $/h.
	costs map[string]float64
	// taken are claims that a command of this pass, or a proposal, includes.
	taken map[types.UID]bool
	// started counts the commands of this pass.
	started int
	// searched is true if nothing can be consolidated in a cluster with the present fingerprint.
	searched bool
	// moved is true after a command that uses or removes capacity which the snapshot still shows as free.
	moved   bool
	compile func(*snapshot.Snapshot) *schedule.Problem
	problem *schedule.Problem
}

// compiled is the snapshot prepared for scheduling simulations, at first use.
func (r *passState) compiled() *schedule.Problem {
	if r.problem == nil {
		r.problem = r.compile(r.Snapshot)
	}
	return r.problem
}

// take counts candidates against the budgets of all reasons, and excludes them from other commands of this pass.
func (r *passState) take(candidates []*disrupt.Candidate) {
	r.rec.Call(recorder.CallTake, recorder.ClaimNames(candidates), nil)
	r.use(candidates)
}

// use is take for candidates that the record has already.
func (r *passState) use(candidates []*disrupt.Candidate) {
	for _, room := range r.budgets {
		room.Use(candidates)
	}
	for _, c := range candidates {
		r.taken[c.Node.ClaimUID] = true
	}
}

// free returns the candidates that no command has taken.
func (r *passState) free(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c *disrupt.Candidate) bool { return r.taken[c.Node.ClaimUID] })
}

// pass takes a snapshot, executes earlier proposals that are due and still valid, and runs each method to find more. It does nothing
// while the last pass found nothing to do, and nothing has changed since.
func (l *Loop) pass(ctx context.Context) (acted bool, err error) {
	l.logOverdueMethods()
	l.passSnapshot = nil
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
	l.passSnapshot = snap
	errs = append(errs, l.untaintOrphans(ctx, snap))
	r := l.newPassState(snap)
	r.rec = l.Recorder.Begin(recorder.Disruption, all, snap)
	defer r.rec.Flush()
	for _, reason := range l.reasons() {
		allowances := disrupt.Allowances(snap, reason)
		l.recordBudgets(reason, allowances)
		r.budgets[reason] = r.RemainingBudgets(allowances)
		l.deletePoolGauges(allowances)
	}
	l.recordCosts(r)
	l.recordBlockedNodes(r.View)
	l.recordPodEvents(r.View)
	l.Queue.withAttempts(func(a *disrupt.DriftBackoff) { a.Prune(r.View) })
	for _, step := range []func(context.Context, *passState) error{
		l.repairUnhealthy, l.executeDue, l.proposeEmpty, l.replaceStatic, l.replaceDrifted,
		l.proposeConsolidations,
	} {
		errs = append(errs, step(ctx, r))
	}
	err = errors.Join(errs...)
	if known && err == nil {
		l.rememberIdle(r, version)
	}
	return r.started > 0, err
}

// newPassState derives the state of a pass from its snapshot alone.
func (l *Loop) newPassState(snap *snapshot.Snapshot) *passState {
	compile := l.Compile
	if compile == nil {
		compile = consolidate.Compile
	}
	return &passState{
		View:    disrupt.NewView(snap),
		budgets: map[karpv1.DisruptionReason]*disrupt.RemainingBudgets{},
		taken:   map[types.UID]bool{},
		compile: compile,
	}
}

// execute starts a command that is valid in the snapshot. It drops a command that the API server's state no longer
// allows.
func (l *Loop) execute(ctx context.Context, r *passState, cmd *disrupt.Command) error {
	if why, open := l.pausedByBreaker(ctx, cmd); open {
		l.Log.Debug("disruption pauses", "reason", cmd.Reason, "why", why)
		return nil
	}
	l.decide(r, cmd)
	r.rec.Commit()
	l.logCommand(cmd, cmd.ID)
	err := l.start(ctx, cmd, cmd.ID)
	l.recordStart(cmd.ID, err)
	if errors.Is(err, errPodsChanged) || errors.Is(err, errLimitReached) { // nothing was deleted or launched
		l.Metrics.FailedValidations.WithLabelValues(cmd.ConsolidationType).Add(float64(len(cmd.Candidates)))
		return nil
	}
	r.moved = true
	if apierrors.IsInvalid(err) {
		l.backOffRefused(cmd, err)
	}
	if err != nil {
		if at := (*taintError)(nil); len(cmd.Candidates) > 1 && errors.As(err, &at) {
			l.exclude(at.node.ClaimUID)
		}
		if cmd.Reason == karpv1.DisruptionDrifted || cmd.Reason == karpv1.DisruptionUnhealthy {
			l.Queue.withAttempts(func(a *disrupt.DriftBackoff) {
				a.Refused(cmd.Candidates[0].Node.Pool, candidateUIDs(cmd), l.Now(), l.Queue.Jitter())
			})
		}
		return fmt.Errorf("disrupt nodes: %w", err)
	}
	l.countDecision(cmd)
	r.started++
	return nil
}

// replaceStatic replaces drifted nodes of static pools, one for one.
func (l *Loop) replaceStatic(ctx context.Context, r *passState) error {
	if !l.StaticCapacity {
		return nil
	}
	l.noteMethodRun(methodStaticDrift)
	var errs []error
	var turns []disrupt.StaticBatch
	l.Queue.withAttempts(func(a *disrupt.DriftBackoff) {
		turns = a.StaticDrift(r.View, r.budgets[karpv1.DisruptionDrifted])
		if len(turns) > 0 {
			r.rec.Call(recorder.CallStatic, a.Record(), recorder.RecordStatic(turns))
		}
	})
	for _, turn := range turns {
		if turn.Pool.DeletionTimestamp != nil || !condition.IsTrue(turn.Pool, condition.Ready) {
			continue // replacements would not launch
		}
		if turn.Candidates = l.withoutBackedOff(turn.Candidates); len(turn.Candidates) > 0 {
			errs = append(errs, l.replaceInStaticPool(ctx, r, turn)...)
		}
	}
	return errors.Join(errs...)
}

// replaceDrifted replaces one drifted node. The next pass, which follows at once, has a snapshot of the capacity that
// is left.
func (l *Loop) replaceDrifted(ctx context.Context, r *passState) error {
	candidates := l.withoutBackedOff(r.free(r.Drifted(false)))
	l.Metrics.EligibleNodes.WithLabelValues("drifted").Set(float64(len(candidates)))
	if r.moved {
		return nil
	}
	l.noteMethodRun(methodDrift)
	if len(candidates) == 0 {
		return nil
	}
	began := l.Now()
	l.Queue.withAttempts(func(a *disrupt.DriftBackoff) { candidates = a.DriftOrder(candidates, r.Snapshot.Now) })
	blocked := map[string]bool{}
	candidates = slices.DeleteFunc(candidates, func(c *disrupt.Candidate) bool {
		pool := c.Node.Pool
		if _, known := blocked[pool]; !known {
			blocked[pool] = r.budgets[karpv1.DisruptionDrifted].Remaining(pool) == 0 || l.poolPaused(ctx, c.Pool, karpv1.DisruptionDrifted)
		}
		return blocked[pool]
	})
	if len(candidates) == 0 {
		return nil
	}
	slices.SortStableFunc(candidates, func(a, b *disrupt.Candidate) int {
		return l.driftFailedAt[a.Node.ClaimUID].Compare(l.driftFailedAt[b.Node.ClaimUID])
	})
	freed := l.freedSlots(r, karpv1.DisruptionDrifted)
	cmd, left := replace.Drift(
		r.compiled(),
		r.View,
		replace.DriftSearch{
			Order:         candidates,
			Remaining:     r.budgets[karpv1.DisruptionDrifted],
			MaxRejections: maxDriftSimulations,
			Budget:        schedule.DefaultBudget(),
			Freed:         freed,
		},
	)
	r.rec.Call(
		recorder.CallDrift,
		recorder.DriftInput{Claims: recorder.ClaimNames(candidates), MaxRejections: maxDriftSimulations, Freed: freed != nil},
		recorder.RecordDrift(cmd, left),
	)
	l.Metrics.Evaluation.WithLabelValues("drifted", "").Observe(l.Now().Sub(began).Seconds())
	l.recordFailedDrift(r, left)
	if cmd == nil {
		return nil
	}
	l.Queue.withAttempts(func(a *disrupt.DriftBackoff) { a.Started(cmd.Candidates[0].Pool.Name, r.Snapshot.Now) })
	r.take(cmd.Candidates)
	return l.execute(ctx, r, cmd)
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
