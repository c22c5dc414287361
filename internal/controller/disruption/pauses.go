package disruption

import (
	"context"
	"log/slog"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// pausedEventWindow is the dedupe window of the event on a pool with nodes that are not replaced for now.
const pausedEventWindow = 15 * time.Minute

// pauses are what replacements in a pool wait for, so that the log has one line when they begin to wait and one when they go on: the
// nodes of a first batch are watched for minutes, and nothing else is logged meanwhile.
type pauses map[pauseKey]string

type pauseKey struct {
	pool   string
	reason karpv1.DisruptionReason
}

// note logs that replacements begin to wait, wait for something else, or go on; why is empty if they do not wait.
func (p *pauses) note(log *slog.Logger, pool string, reason karpv1.DisruptionReason, why string) {
	key := pauseKey{pool, reason}
	before := (*p)[key]
	switch {
	case why == before:
		return
	case why == "":
		delete(*p, key)
		log.Info("replacing nodes again", "NodePool", pool, "reason", reason)
		return
	case *p == nil:
		*p = pauses{}
	}
	(*p)[key] = why
	log.Info("waiting to replace more nodes", "NodePool", pool, "reason", reason, "why", why)
}

// poolPaused reports whether the breaker pauses replacements in the pool, with an event and a line in the log.
func (l *Loop) poolPaused(ctx context.Context, pool *karpv1.NodePool, reason karpv1.DisruptionReason) bool {
	if l.Breaker == nil {
		return false
	}
	why, open := l.Breaker.Open(ctx, pool.Name, reason)
	if !open {
		why = ""
	}
	l.pauses.note(l.Log, pool.Name, reason, why)
	if open {
		l.Events.NormalEvery(pausedEventWindow, pool, "DisruptionBlocked", "Nodes are not replaced for reason %s: %s", reason, why)
	}
	return open
}

// pausedByBreaker checks the breaker for each pool that would lose or gain a node.
func (l *Loop) pausedByBreaker(ctx context.Context, cmd *disrupt.Command) (string, bool) {
	if l.Breaker == nil || replacementCount(cmd) == 0 && cmd.TerminateFirst == "" {
		return "", false
	}
	pools := map[string]bool{}
	for _, c := range cmd.Candidates {
		pools[c.Pool.Name] = true
	}
	for i := range cmd.Plan.Launches {
		pools[cmd.Plan.Launches[i].Pool.Name] = true
	}
	for _, name := range cmd.RefillPools {
		pools[name] = true
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
