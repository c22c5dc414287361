package destroy

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Kind groups reasons that share a limit.
type Kind string

// The kinds.
const (
	// Planned deletions are decided: consolidation, drift, emptiness, expiration within budgets, fewer replicas.
	Planned Kind = "planned"
	// Fault is what looks broken: nodes that are not healthy, do not become ready, or have lost their instance or NodeClaim.
	Fault Kind = "fault"
	// Expired is the end of expireAfter, whatever budgets allow.
	Expired Kind = "expired"
	// Interrupted instances are taken by EC2, whatever this controller does. They are not limited.
	Interrupted Kind = "interrupted"
	// Requested deletions are those of people. They are not limited.
	Requested Kind = "requested"
)

// Limited reports whether deletions of the kind have a limit.
func (k Kind) Limited() bool { return k == Planned || k == Fault || k == Expired }

// Why is the reason of a deletion.
type Why struct {
	Kind Kind
	// Reason is Karpenter's where it has one, as on its metrics: Drifted, expired, garbage_collected.
	Reason string
	// Decision is the ID of the disruption command; empty where none decided.
	Decision string
	// Pool is the NodePool of the node that a pod leaves; other objects have it themselves.
	Pool string
	// Empty is true for a planned deletion of a node without a pod that would have to move: it has no limit. The Guard sets it.
	Empty bool
	// Patient deletions are as many as a person has requested: past the limit of a minute the rest waits for the next one, and nothing is
	// paused. The limit of an hour holds for them, too.
	Patient bool
	// Unchanged is true if the deletion holds only for the version of the object that the caller has read: it fails with a conflict if
	// the object has changed since.
	Unchanged bool
}

// cause is what the object states of it.
func (w Why) cause() karpv1.DeletionCause {
	return karpv1.DeletionCause{Kind: string(w.Kind), Reason: w.Reason, Decision: w.Decision, Empty: w.Empty}
}

// Limited reports whether the deletion has a limit, and waits while deletions are paused.
func (w Why) Limited() bool { return w.Kind.Limited() && !w.Empty }

// WhyOf is the reason that this controller has deleted a claim for. A claim that is deleted and states none was deleted by somebody else.
func WhyOf(claim *karpv1.NodeClaim) Why {
	cause, found := claim.DeletionCause()
	if !found {
		return Why{Kind: Requested, Reason: "deleted by another client of the API server"}
	}
	return Why{Kind: Kind(cause.Kind), Reason: cause.Reason, Decision: cause.Decision, Empty: cause.Empty}
}
