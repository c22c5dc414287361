package disruption

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// performed is what became of the commands of a pass.
type performed struct {
	// started counts the commands that started.
	started int
	// dropped is true if a command did not start since the cluster has changed: the next pass decides anew.
	dropped bool
}

// perform starts the commands of a pass, in their order. An error with one does not affect the others.
func (l *Loop) perform(ctx context.Context, commands []pass.Decision) (performed, error) {
	var out performed
	var errs []error
	for len(commands) > 0 {
		first := 0
		for first < len(commands) && commands[first].ConsolidationType == disrupt.TypeEmpty {
			first++
		}
		if first > 0 {
			errs = append(errs, l.deleteEmpty(ctx, &out, commands[:first]))
			commands = commands[first:]
			continue
		}
		errs = append(errs, l.execute(ctx, &out, &commands[0].Command))
		commands = commands[1:]
	}
	return out, errors.Join(errs...)
}

// execute starts a command. It drops one that the API server's state no longer allows.
func (l *Loop) execute(ctx context.Context, out *performed, cmd *disrupt.Command) error {
	if cmd.Reason == karpv1.DisruptionUnhealthy {
		l.logRepair(cmd.Candidates[0].Node)
	}
	switch {
	case cmd.Reboot:
		return l.reboot(ctx, out, cmd)
	case cmd.Static():
		pool := cmd.Candidates[0].Pool
		granted, err := l.State.Reserve(ctx, pool, 1)
		if err != nil {
			return fmt.Errorf("count the nodes of static NodePool %q: %w", pool.Name, err)
		}
		if granted == 0 { // the static pool itself has taken the slot since
			out.dropped = true
			return nil
		}
		defer l.State.Release(pool.Name)
	}
	if l.Breaker != nil && (cmd.Replacements() > 0 || cmd.TerminateFirst != "") {
		for _, pool := range cmd.Pools() {
			l.Breaker.Started(pool, cmd.Reason)
		}
	}
	l.logCommand(cmd, cmd.ID)
	err := l.start(ctx, cmd, cmd.ID)
	l.recordStart(cmd.ID, err)
	if errors.Is(err, errPodsChanged) || errors.Is(err, errLimitReached) { // nothing was deleted or launched
		l.Metrics.FailedValidations.WithLabelValues(cmd.ConsolidationType).Add(float64(len(cmd.Candidates)))
		out.dropped = true
		return nil
	}
	if err != nil {
		l.reportFailedStart(cmd, err)
		return fmt.Errorf("disrupt nodes: %w", err)
	}
	l.countDecision(cmd)
	out.started++
	if cmd.Reason == karpv1.DisruptionUnhealthy {
		return l.countRepairOf(ctx, cmd)
	}
	return nil
}

// reportFailedStart reports to the next pass that a command could not be started.
func (l *Loop) reportFailedStart(cmd *disrupt.Command, err error) {
	now := l.Now()
	if apierrors.IsInvalid(err) {
		l.Queue.memory.report(pass.Feedback{What: pass.Invalid, At: now, Claims: candidateUIDs(cmd)})
		l.recordInvalidReplacement(cmd, provisioning.InvalidCauses(err))
	}
	if at := (*taintError)(nil); len(cmd.Candidates) > 1 && errors.As(err, &at) {
		l.Queue.memory.report(pass.Feedback{What: pass.NotTainted, At: now, Claims: []types.UID{at.node.ClaimUID}})
	}
	if cmd.Replaces() {
		l.Queue.memory.report(pass.Feedback{
			What: pass.NotStarted, At: now, Pool: cmd.Candidates[0].Node.Pool, Claims: candidateUIDs(cmd), Jitter: l.Queue.Jitter(),
		})
	}
}

// countRepairOf counts a repair that has started.
func (l *Loop) countRepairOf(ctx context.Context, cmd *disrupt.Command) error {
	claim := &karpv1.NodeClaim{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: cmd.Candidates[0].Node.Claim}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	l.countRepair(cmd.Candidates[0].Node, claim)
	return nil
}

// maxParallelDeletions is how many empty nodes are deleted in parallel: each takes about six sequential calls.
const maxParallelDeletions = 10

// deleteEmpty deletes empty nodes independently: an error with one does not affect the others. Logs and metrics show
// one command; its ID is the prefix of the nodes' command IDs.
func (l *Loop) deleteEmpty(ctx context.Context, out *performed, commands []pass.Decision) error {
	all := disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: disrupt.TypeEmpty}
	for i := range commands {
		all.Candidates = append(all.Candidates, commands[i].Candidates...)
		all.Savings += commands[i].Savings
	}
	l.logCommand(&all, prefixOf(commands[0].ID))
	outcomes := make([]error, len(commands))
	var starting errgroup.Group
	starting.SetLimit(maxParallelDeletions)
	for i := range commands {
		starting.Go(func() error {
			one := commands[i].Command
			one.Savings = one.Candidates[0].Price
			outcomes[i] = panics.Error(func() error { return l.start(ctx, &one, one.ID) })
			l.recordStart(one.ID, outcomes[i])
			return nil
		})
	}
	_ = starting.Wait() // outcomes has the errors
	started := all
	started.Candidates = nil
	var errs []error
	for i := range commands {
		err := outcomes[i]
		switch {
		case errors.Is(err, errPodsChanged):
			l.Metrics.FailedValidations.WithLabelValues(disrupt.TypeEmpty).Inc()
			out.dropped = true
		case err != nil:
			errs = append(errs, err)
		default:
			started.Candidates = append(started.Candidates, commands[i].Candidates...)
			out.started++
		}
	}
	if len(started.Candidates) > 0 {
		l.countDecision(&started)
	}
	return errors.Join(errs...)
}

// partOf is the ID of a node's command within one for several empty nodes, prefixOf the ID of that.
func partOf(id string, i int) string { return fmt.Sprintf("%s-%d", id, i) }

func prefixOf(part string) string {
	at := strings.LastIndexByte(part, '-')
	return part[:max(at, 0)]
}
