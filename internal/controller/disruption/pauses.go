package disruption

import (
	"log/slog"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
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

// reportLimits publishes where replacements wait, and logs where they go on.
func (l *Loop) reportLimits(decided *pass.Decisions) {
	for i := range decided.Limits {
		limit := &decided.Limits[i]
		l.pauses.note(l.Log, limit.NodePool, limit.Reason, limit.Why)
		if limit.Why != "" {
			l.Events.NormalEvery(pausedEventWindow, decided.View.Pool(limit.NodePool), "DisruptionBlocked",
				"Nodes are not replaced for reason %s: %s", limit.Reason, limit.Why)
		}
	}
	for i := range decided.Withheld {
		l.Log.Debug("disruption pauses", "reason", decided.Withheld[i].Command.Reason, "why", decided.Withheld[i].Why)
	}
}
