package nodereport

import (
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
)

// Outcome describes what happens to a node, without a simulation of its own: cheap enough for all nodes of a pool.
type Outcome struct {
	State State
	// Reason is a DisruptionReason, or that of a Verdict.
	Reason string
	// Why is in words; Class is the same for nodes that stay for the same reason, whatever objects are in the way.
	Why, Class string
	// Price and Saves are in $/h. Saves holds what the whole command saves, which removes Together nodes.
	Price, Saves float64
	Together     int
	// Unexamined is true if the search stopped before it came to the node.
	Unexamined bool
	// Command is the ID of a disruption command that has begun; empty if there is none, or another controller's.
	Command string
}

// Outcome is the outcome of the node at an index of the snapshot, which has a NodeClaim.
func (d *Decisions) Outcome(index int) Outcome {
	b := newBuilder(d, index)
	b.brief = true
	if out, known := b.begun(); known {
		return out
	}
	return b.outcome()
}

// Outcome is the outcome of the node at an index of the snapshot, which has a NodeClaim, as far as it takes no plan: of a node that stays
// or goes, only the price is known.
func (k *Known) Outcome(index int) (out Outcome, known bool) {
	return newBuilder(k.decisions, index).begun()
}

// begun is the outcome of a node that is leaving or starting; false for others, with their price.
func (b *builder) begun() (Outcome, bool) {
	out := Outcome{Price: b.price()}
	if v, leaving := b.leaving(); leaving {
		out.State, out.Reason, out.Why = Leaving, v.Reason, "it "+v.Text
		if c, has, err := b.claim.DisruptionCommand(); has && err == nil {
			out.Command = c.ID
		}
		return out, true
	}
	if v, starting := b.starting(); starting {
		out.State, out.Reason, out.Why = Starting, v.Reason, "it "+v.Text
		return out, true
	}
	return out, false
}

// outcome is that of a node that is up, and not leaving.
func (b *builder) outcome() Outcome {
	out := Outcome{Price: b.price()}
	r := &Report{Drift: drifted.Of(b.View, b.claim)}
	if b.n.ExpireAfter > 0 {
		at := disrupt.ExpiresAt(b.n)
		r.ExpiresAt, r.Expiration = &at, b.expiration()
	}
	r.Blockers = b.blockers()
	v := b.decide(r)
	out.State, out.Reason, out.Why = v.State, v.Reason, b.general(v, r)
	out.Class = out.Why
	out.Unexamined = v.Reason == reasonLater || v.Reason == reasonConsolidation && b.notReached()
	if c := b.Command(b.n); v.State == Goes && c != nil && !disrupt.ReplacesFor(karpv1.DisruptionReason(v.Reason)) {
		out.Saves, out.Together = c.Savings, len(c.Candidates)
	}
	return out
}

// general returns why a node stays, in words that hold for others with the same reason.
func (b *builder) general(v Verdict, r *Report) string {
	if v.State != Stays || len(r.Blockers) == 0 || slices.Contains([]string{reasonLater, reasonPaused, reasonWaits}, v.Reason) {
		return v.Text
	}
	k := &r.Blockers[0]
	switch k.Code {
	case reasonConsolidation, reasonPolicy, reasonBudget:
		return k.Message
	case "PDB", "NoNodePool":
		return fmt.Sprintf("%s blocks (%s)", k.Object, k.Field)
	case "PodDoNotDisrupt":
		return "a pod has the annotation " + karpv1.AnnotationDoNotDisrupt
	case "NodeDoNotDisrupt":
		return "the node has the annotation " + karpv1.AnnotationDoNotDisrupt
	case "PodGroupTogether":
		return "its PodGroup is disrupted as a whole, and has pods on other nodes"
	case "Nominated":
		return "pods are on their way to it"
	case "NotConsolidatable":
		return "consolidateAfter has not passed since a pod came or went"
	}
	return k.Message
}
