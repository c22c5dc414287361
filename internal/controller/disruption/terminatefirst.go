package disruption

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// TerminateFirst are the feature gates TerminateFirstDrift and TerminateFirstRepair: nodes with replacements that cannot be
// launched first are terminated first.
//
// Nothing of it is kept in memory or written down. Whether another node may go is read off the nodes that exist: those
// launched instead of earlier ones must be initialized. A command has no replacements, so a process that dies before it
// deletes the claim leaves a command that the queue rolls back.
type TerminateFirst struct{ Drift, Repair bool }

// countTerminateFirst counts a command that was started, if it terminates a node first.
func (l *Loop) countTerminateFirst(cmd *disrupt.Command) {
	if cmd.TerminateFirst != "" {
		l.Metrics.TerminateFirst.WithLabelValues(
			cmd.Candidates[0].Node.Pool, strings.ToLower(string(cmd.Reason)), string(cmd.TerminateFirst),
		).Inc()
	}
}
