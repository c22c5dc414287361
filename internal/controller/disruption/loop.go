// Package disruption gives back nodes that are no longer worth their price or out of date, as far as the budgets of their pools
// allow. What to end is the engine's decision; this package makes sure that it still holds, and acts.
//
// A Loop looks for commands. Those that save money must hold for a while before they are started, during which it goes on
// looking. A command that is started is written on the claims that it ends, and the Queue carries it through, in this process
// or in the next.
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
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// idle is the pause after a pass that found nothing, unless a claim changes before it is over.
	idle = 10 * time.Second
	// retry is the least pause after a pass that failed.
	retry = time.Second
	// SettleTime is how long a decision must hold before it is acted upon.
	SettleTime = 15 * time.Second
	// drifts is how many nodes that are out of date are tried in one pass.
	drifts = 50
)

// world cuts snapshots, and is told at once what the loop has decided.
type world interface {
	marks
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	Buying() (done func())
	Disrupt(uid types.UID, replacements []string)
	Created(claim *karpv1.NodeClaim)
	Nominate(node string)
	Forget()
	Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error)
	Release(pool string)
}

// breaker tells whether nodes of a pool may be replaced for a reason.
type breaker interface {
	Open(ctx context.Context, pool string, reason karpv1.DisruptionReason) (why string, open bool)
	Started(pool string, reason karpv1.DisruptionReason)
	halter
}

// Loop finds nodes to end, one pass at a time.
type Loop struct {
	Client client.Client
	// Live reads the API server itself: the last look before a node is ended must not be an old one.
	Live   client.Reader
	State  world
	Queue  *Queue
	Labels requirement.Labels
	// Consolidation are the settings of the search for what is not worth its price.
	Consolidation consolidate.Settings
	// FixedPools is the feature gate StaticCapacity: nodes of pools with replicas are replaced, too.
	FixedPools bool
	// Breaker may be nil: nothing pauses then.
	Breaker breaker
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// ID makes the names of commands, each once.
	ID func() string
	// Settle is SettleTime in production.
	Settle time.Duration
	// Compile makes the form of a snapshot in which what-ifs are asked; nil stands for consolidate.Compile.
	Compile func(*snapshot.Snapshot) *schedule.Problem
	// Quarantine remembers the pods that are left out, by this and by provisioning; nil stands for an empty one of this Loop.
	Quarantine *quarantine.Book
	// Panics records passes that panicked; nil records nothing.
	Panics *panics.Reporter

	// bell rings when a pass is worth its while before the pause is over; nil is silent.
	bell chan struct{}

	proposals []proposal
	// gauged are the pools of which gauges tell.
	gauged map[string]bool
	// turns is when the methods were last at it.
	turns map[string]turn
	// tried is when a node was last found to be one whose pods have nowhere to go.
	tried map[types.UID]time.Time
	// spoilt are nodes that could not be closed, and until when they are kept out of commands for several nodes.
	spoilt map[types.UID]time.Time
	// refused are nodes for which a replacement was refused as invalid.
	refused map[types.UID]pausing
	// panicked counts in a row the passes that panicked without a pod that would be the cause.
	panicked int
	// ledger keeps what pools cost; calm is the last view on which nothing more was found to save.
	ledger disrupt.Ledger
	calm   calm
	// planning is the snapshot of the pass under way.
	planning *snapshot.Snapshot
}

// NeedLeaderElection makes sure that only one process disrupts.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs passes until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for goOn := true; goOn; {
		began := l.Now()
		acted, err := l.protected(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("disrupting nodes", "error", err)
		}
		goOn = l.await(ctx, l.pause(acted, err), l.Now().Sub(began))
	}
	return nil
}

// pause is how long to wait for the next pass: not at all after one that has acted, since there may be more to do. After one that
// failed what is due is still due.
func (l *Loop) pause(acted bool, err error) time.Duration {
	switch {
	case acted && err == nil:
		return 0
	case acted:
		return retry
	case l.panicked > 0:
		return panics.Backoff(idle, mostPanicPause, l.panicked-1)
	}
	wait, now := idle, l.Now()
	for i := range l.proposals {
		wait = min(wait, max(l.proposals[i].due.Sub(now), 0))
	}
	if err != nil {
		return max(wait, retry)
	}
	return wait
}

// round is what one pass works on.
type round struct {
	*disrupt.View
	// rooms are what the budgets have left, by reason.
	rooms map[karpv1.DisruptionReason]*disrupt.Room
	// taken are claims that a method of this pass, or a proposal, already has its eye on.
	taken map[types.UID]bool
	// started counts commands; moved is true after one whose pods need room elsewhere, or which has ended such room: the snapshot
	// does not show it.
	started int
	moved   bool
	compile func(*snapshot.Snapshot) *schedule.Problem
	problem *schedule.Problem
}

// compiled is the snapshot in the form in which what-ifs are asked; made when first needed.
func (r *round) compiled() *schedule.Problem {
	if r.problem == nil {
		r.problem = r.compile(r.Snapshot)
	}
	return r.problem
}

// take notes that nodes are being disrupted, whatever for.
func (r *round) take(candidates []*disrupt.Candidate) {
	for _, room := range r.rooms {
		room.Take(candidates)
	}
	for _, c := range candidates {
		r.taken[c.Node.ClaimUID] = true
	}
}

// free are those of the candidates that nobody has taken.
func (r *round) free(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c *disrupt.Candidate) bool { return r.taken[c.Node.ClaimUID] })
}

// pass looks at the world once: what was proposed before is started if it still holds, then each method looks for more.
func (l *Loop) pass(ctx context.Context) (acted bool, err error) {
	l.tellTurns()
	errs := []error{l.Queue.settle(ctx)}
	all, err := l.State.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	snap := l.without(all)
	l.planning = snap
	errs = append(errs, l.cleanUp(ctx, snap))
	r := l.round(snap)
	for _, reason := range []karpv1.DisruptionReason{karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized} {
		allowances := disrupt.Allowances(snap, reason)
		l.tellBudgets(reason, allowances)
		r.rooms[reason] = r.Room(allowances)
		l.forgetPools(allowances)
	}
	l.tellBlocked(r.View)
	l.tellPods(r.View)
	l.Queue.remember(func(a *disrupt.Attempts) { a.Forget(r.View) })
	for _, step := range []func(context.Context, *round) error{l.carryOut, l.proposeEmpty, l.replaceFixed, l.replaceDrifted, l.proposeMoves} {
		errs = append(errs, step(ctx, r))
	}
	return r.started > 0, errors.Join(errs...)
}

// round looks at a snapshot, and at nothing else.
func (l *Loop) round(snap *snapshot.Snapshot) *round {
	compile := l.Compile
	if compile == nil {
		compile = consolidate.Compile
	}
	return &round{View: disrupt.Look(snap), rooms: map[karpv1.DisruptionReason]*disrupt.Room{}, taken: map[types.UID]bool{}, compile: compile}
}

// run starts a command that holds now. One that does not hold any more when looked at from near is dropped.
func (l *Loop) run(ctx context.Context, r *round, cmd *disrupt.Command) error {
	if why, open := l.paused(ctx, cmd); open {
		l.Log.Debug("disruption pauses", "reason", cmd.Reason, "why", why)
		return nil
	}
	id := l.ID()
	l.announce(cmd, id)
	err := l.start(ctx, cmd, id)
	if errors.Is(err, errSlipped) || errors.Is(err, errSpent) { // before anything was ended or bought
		l.Metrics.FailedValidations.WithLabelValues(cmd.Kind).Add(float64(len(cmd.Candidates)))
		return nil
	}
	r.moved = true
	if apierrors.IsInvalid(err) {
		l.refuse(cmd, err)
	}
	if err != nil {
		if at := (*unclosed)(nil); len(cmd.Candidates) > 1 && errors.As(err, &at) {
			l.spoil(at.node.ClaimUID)
		}
		if cmd.Reason == karpv1.DisruptionDrifted {
			l.Queue.remember(func(a *disrupt.Attempts) {
				a.Refused(cmd.Candidates[0].Node.Pool, uids(cmd), l.Now(), l.Queue.Jitter())
			})
		}
		return fmt.Errorf("disrupt nodes: %w", err)
	}
	l.count(cmd)
	r.started++
	return nil
}

// paused asks the breaker about each pool of a node that would go and of one that would come.
func (l *Loop) paused(ctx context.Context, cmd *disrupt.Command) (string, bool) {
	if l.Breaker == nil || bought(cmd) == 0 {
		return "", false
	}
	pools := map[string]bool{}
	for _, c := range cmd.Candidates {
		pools[c.Pool.Name] = true
	}
	for i := range cmd.Plan.Launches {
		pools[cmd.Plan.Launches[i].Pool.Name] = true
	}
	for name := range pools {
		if why, open := l.Breaker.Open(ctx, name, cmd.Reason); open {
			return why, true
		}
	}
	for name := range pools {
		l.Breaker.Started(name, cmd.Reason)
	}
	return "", false
}

// replaceFixed replaces nodes of pools of a fixed size that are out of date, one for one.
func (l *Loop) replaceFixed(ctx context.Context, r *round) error {
	if !l.FixedPools {
		return nil
	}
	l.hasTurn(staticDrift)
	var errs []error
	var turns []disrupt.Turn
	l.Queue.remember(func(a *disrupt.Attempts) { turns = a.StaticDrift(r.View, r.rooms[karpv1.DisruptionDrifted]) })
	for _, turn := range turns {
		if turn.Pool.DeletionTimestamp != nil || !condition.IsTrue(turn.Pool, condition.Ready) {
			continue // what would be bought would not be launched
		}
		if turn.Candidates = l.accepted(turn.Candidates); len(turn.Candidates) == 0 {
			continue
		}
		granted, err := l.State.Reserve(ctx, turn.Pool, int64(len(turn.Candidates)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range turn.Candidates[:granted] {
			r.take([]*disrupt.Candidate{c})
			errs = append(errs, l.run(ctx, r, &disrupt.Command{Reason: karpv1.DisruptionDrifted, Candidates: []*disrupt.Candidate{c}}))
			l.State.Release(turn.Pool.Name)
		}
	}
	return errors.Join(errs...)
}

// replaceDrifted replaces one node that is out of date. The next pass, which follows at once, sees what that one has
// taken of the room on others.
func (l *Loop) replaceDrifted(ctx context.Context, r *round) error {
	candidates := l.accepted(r.free(r.Drifted(false)))
	l.Metrics.EligibleNodes.WithLabelValues("drifted").Set(float64(len(candidates)))
	if r.moved {
		return nil
	}
	l.hasTurn(drift)
	if len(candidates) == 0 {
		return nil
	}
	began := l.Now()
	l.Queue.remember(func(a *disrupt.Attempts) { candidates = a.DriftOrder(candidates, r.Snapshot.Now) })
	held := map[string]bool{}
	candidates = slices.DeleteFunc(candidates, func(c *disrupt.Candidate) bool {
		pool := c.Node.Pool
		if _, asked := held[pool]; !asked {
			held[pool] = r.rooms[karpv1.DisruptionDrifted].Left(pool) == 0 || l.pausedPool(ctx, pool)
		}
		return held[pool]
	})
	if len(candidates) == 0 {
		return nil
	}
	slices.SortStableFunc(candidates, func(a, b *disrupt.Candidate) int { return l.tried[a.Node.ClaimUID].Compare(l.tried[b.Node.ClaimUID]) })
	cmd, left := disrupt.Drift(r.compiled(), r.View, candidates, r.rooms[karpv1.DisruptionDrifted], drifts, schedule.Bounded())
	l.Metrics.Evaluation.WithLabelValues("drifted", "").Observe(l.Now().Sub(began).Seconds())
	l.tellLeft(r, left)
	if cmd == nil {
		return nil
	}
	l.Queue.remember(func(a *disrupt.Attempts) { a.Started(cmd.Candidates[0].Pool.Name, r.Snapshot.Now) })
	r.take(cmd.Candidates)
	return l.run(ctx, r, cmd)
}

// pausedPool tells whether the breaker keeps nodes of the pool from being replaced because they are out of date.
func (l *Loop) pausedPool(ctx context.Context, pool string) bool {
	if l.Breaker == nil {
		return false
	}
	_, open := l.Breaker.Open(ctx, pool, karpv1.DisruptionDrifted)
	return open
}

// cleanUp opens nodes that nobody is ending: whoever has closed them has not said why, or not so that we can read it. One that
// cannot be opened keeps no other closed.
func (l *Loop) cleanUp(ctx context.Context, snap *snapshot.Snapshot) error {
	var errs []error
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Claim == "" || !n.Registered || n.Deleting || n.Disrupting || !slices.ContainsFunc(n.Taints, disrupted) {
			continue
		}
		if err := l.cleanUpOne(ctx, n); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("open node %q, which nobody ends: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Loop) cleanUpOne(ctx context.Context, n *snapshot.Node) error {
	node := &corev1.Node{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil || node.DeletionTimestamp != nil {
		return err
	}
	claim := &karpv1.NodeClaim{}
	if err := l.Live.Get(ctx, client.ObjectKey{Name: n.Claim}, claim); err != nil {
		return err
	}
	if _, ending, err := claim.DisruptionCommand(); ending && err == nil || claim.DeletionTimestamp != nil {
		return nil // somebody does after all
	}
	// The taint goes last: as long as it is there, the next pass comes here again.
	before := claim.DeepCopy()
	if _, ok := claim.Annotations[karpv1.AnnotationDisruptionCommand]; ok {
		delete(claim.Annotations, karpv1.AnnotationDisruptionCommand)
		if err := l.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	before = claim.DeepCopy()
	if condition.Clear(claim, karpv1.ConditionDisruptionReason, l.Now()) {
		if err := l.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	return setTaint(ctx, l.Client, l.Live, n.Name, false /* present */)
}
