package inflight

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Undo is what a rollback does: first it deletes the replacements, then it restores the candidates. The record on a candidate goes last,
// so that an interrupted rollback starts again.
type Undo struct {
	// KeepReplacements is true if a candidate is being deleted already: its pods need them.
	KeepReplacements bool
	// Restore are the candidates with nodes that lose the taint. Others belong to another command by now, which decides about them.
	Restore, Others []*karpv1.NodeClaim
}

// UndoOf is the rollback of the command with an ID. The candidates are all that the command has named; nil is one that does not exist.
func UndoOf(id string, candidates []*karpv1.NodeClaim) (out Undo) {
	for _, claim := range candidates {
		if claim == nil || claim.DeletionTimestamp != nil {
			out.KeepReplacements = true
			continue
		}
		if other, ok, err := claim.DisruptionCommand(); ok && err == nil && other.ID != id {
			out.Others = append(out.Others, claim)
			continue
		}
		out.Restore = append(out.Restore, claim)
	}
	return out
}

// Needs reports whether a candidate needs the replacements of the command with an ID: it has been deleted, or will be. candidate is nil if
// it does not exist.
func Needs(id string, candidate *karpv1.NodeClaim) bool {
	if candidate == nil || candidate.DeletionTimestamp != nil {
		return true
	}
	c, ok, err := candidate.DisruptionCommand()
	return ok && err == nil && c.ID == id
}

// Occupied reports whether a replacement that nothing needs stays all the same, as an ordinary node of its pool: it runs pods that would
// have to move, or that are protected.
func Occupied(pods []*corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return disrupt.PreventsEmptiness(p) || !snapshot.Disruptable(p, now) })
}
