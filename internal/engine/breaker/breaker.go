// Package breaker is a circuit breaker for replacements: it decides whether nodes of a pool may still be replaced for
// a reason, by the outcomes of the claims that were launched to replace others.
//
// Claims with a bad image, or of a node class that an edit broke, do not come up. Each further one costs an instance
// for nothing, and delays the drain of a node that works. When too many of them have failed, the breaker opens: the
// reason pauses in the pool. It closes when the cause is gone (NodePool or node class were edited, or the failed
// images are no longer used), or when a probe comes up: a single claim that is launched after a while, with
// exponential backoff.
//
// Worse is an image with which nodes come up and fail soon after: each further one replaces a node that works. So a
// claim has come up only after a soak (Judge). Nodes that fail in it pause all reasons (AddVerdicts), and of a new image
// only a first batch is launched before nodes of it have survived (FirstBatch).
//
// Where a NodePool rolls out with canaries, the first fault pauses, and package rollout limits how many nodes are replaced in a wave.
//
// The state is a Book, an annotation of the NodePool: a controller that restarts knows what the one before had
// learned.
package breaker

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rollout"
)

// A first probe follows a quarter of an hour after the pause, as long as a fix takes at the least; the interval
// doubles up to maxProbe, so that a permanent cause costs six instances a day.
const (
	firstProbe = 15 * time.Minute
	maxProbe   = 4 * time.Hour
)

// DefaultThreshold sets how many failures pause a reason where nothing else is configured.
const DefaultThreshold = 2

// minOutcomes sets how many outcomes of a reason are remembered at least.
const minOutcomes = 10

// Cause describes what the outcomes of a pool's claims depend on. If it changes, the history is reset.
type Cause struct {
	// Pool and Class are generations.
	Pool     int64     `json:"pool"`
	Class    int64     `json:"class"`
	ClassUID types.UID `json:"classUID,omitempty"`
}

// History is the history of a pool.
type History struct {
	Cause   Cause                               `json:"cause"`
	Reasons map[karpv1.DisruptionReason]*Record `json:"reasons,omitempty"`
	// Soaks are the nodes that came up and failed soon after; nil if none did.
	Soaks *SoakRecord `json:"soaks,omitempty"`
	// Since is the time when the cause was first seen: older claims state nothing about it.
	Since metav1.Time `json:"since"`
	// Rollout is the roll-out with canaries that is under way; nil if none is.
	Rollout *rollout.State `json:"rollout,omitempty"`
	// Good is what nodes were launched from that have survived their soak, with no roll-out under way; nil if not known.
	Good *Good `json:"good,omitempty"`
	// FirstFault has the first failure pause, however many nodes have come up. It follows from the NodePool, and readers set it.
	FirstFault bool `json:"-"`
}

// Good is what nodes of a pool were launched from that have survived their soak.
type Good struct {
	// Images are sorted. Pool and Class are hashes.
	Images []string `json:"images"`
	Pool   string   `json:"pool"`
	Class  string   `json:"class"`
}

// pauses reports whether so many failures, of so many outcomes, pause replacing.
func (b *History) pauses(failed, of, threshold int) bool {
	return b.FirstFault && failed > 0 || failed >= threshold && 2*failed > of
}

// resumes reports whether so few failures, of so many outcomes, let replacing go on.
func (b *History) resumes(failed, of int) bool { return failed == 0 || !b.FirstFault && 2*failed <= of }

// Record is the history of one reason.
type Record struct {
	// Outcomes are the last ones, oldest first, one per claim.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Past is the time when the last dropped outcome was decided; anything up to then has been counted.
	Past metav1.Time `json:"past,omitzero"`
	// Paused is since when the reason is paused; zero if it is not.
	Paused metav1.Time `json:"paused,omitzero"`
	// Next is the time when the next probe may be launched, Wait the seconds between the last failure and that.
	Next metav1.Time `json:"next,omitzero"`
	Wait int64       `json:"wait,omitempty"`
}

// Outcome describes what became of a claim.
type Outcome struct {
	Claim   string      `json:"claim"`
	UID     types.UID   `json:"uid"`
	Created metav1.Time `json:"created"`
	// At is the time when it was decided.
	At metav1.Time `json:"at"`
	// Why it failed, in a few words; empty if it came up.
	Why string `json:"why,omitempty"`
	// After counts how many seconds after its initialization it failed.
	After int64 `json:"after,omitempty"`
	// Image, Type and Zone are those of its instance; empty if it got none.
	Image string `json:"image,omitempty"`
	Type  string `json:"type,omitempty"`
	Zone  string `json:"zone,omitempty"`
	// Kubelet is the version of its kubelet, Evidence shows what is wrong; both only where nodes are rolled out with canaries.
	Kubelet  string            `json:"kubelet,omitempty"`
	Evidence *rollout.Evidence `json:"evidence,omitempty"`
}

// Failed reports whether the claim did not come up.
func (o Outcome) Failed() bool { return o.Why != "" }

// ResetIfChanged resets the history if the cause of the failures is gone, and reports whether it has changed. images are those
// that the node class launches now.
func (b *History) ResetIfChanged(cause Cause, images []string, now time.Time) bool {
	if b.Cause == (Cause{}) {
		b.Cause = cause // the first one
		return true
	}
	if b.Cause == cause && !b.imagesReplaced(images) {
		return false
	}
	*b = History{Cause: cause, Since: truncated(now), FirstFault: b.FirstFault}
	return true
}

// imagesReplaced reports whether claims have failed, all of them with images that are no longer used.
func (b *History) imagesReplaced(images []string) bool {
	var all []Outcome
	for _, r := range b.Reasons {
		all = append(all, r.Outcomes...)
	}
	if b.Soaks != nil {
		all = append(all, b.Soaks.Failures...)
	}
	failed := false
	for _, o := range all {
		if !o.Failed() {
			continue
		}
		if o.Image == "" || slices.Contains(images, o.Image) {
			return false
		}
		failed = true
	}
	return failed
}

// AddOutcome adds an outcome, which may be known already; threshold is the number of failures that pauses a reason. It
// reports whether the history has changed. A claim that counted as failed and came up after all counts as a success.
func (b *History) AddOutcome(reason karpv1.DisruptionReason, o Outcome, threshold int) bool {
	if o.Created.Before(&b.Since) {
		return false
	}
	r := b.Reasons[reason]
	if r == nil {
		r = &Record{}
	}
	known := slices.IndexFunc(r.Outcomes, func(k Outcome) bool { return k.UID == o.UID })
	switch {
	case known >= 0 && (r.Outcomes[known].Failed() == o.Failed() || o.Failed()):
		return false
	case known >= 0:
		r.Outcomes = slices.Delete(r.Outcomes, known, known+1)
	case !o.At.After(r.Past.Time):
		return false
	}
	r.Outcomes = append(r.Outcomes, o)
	if len(r.Outcomes) > max(minOutcomes, 2*threshold) {
		if first := r.Outcomes[0].At; first.After(r.Past.Time) {
			r.Past = first
		}
		r.Outcomes = slices.Delete(r.Outcomes, 0, 1)
	}
	if b.Reasons == nil {
		b.Reasons = map[karpv1.DisruptionReason]*Record{}
	}
	b.Reasons[reason] = r
	b.updateState(r, o, threshold)
	return true
}

// updateState pauses the reason, or resumes it, after an outcome.
func (b *History) updateState(r *Record, o Outcome, threshold int) {
	switch failed := r.failed(); {
	case r.Paused.IsZero() && o.Failed() && b.pauses(failed, len(r.Outcomes), threshold):
		r.Paused, r.Wait = o.At, int64(firstProbe/time.Second)
		r.Next = metav1.NewTime(o.At.Add(firstProbe))
	case r.Paused.IsZero():
	case o.Failed() && !o.Created.Before(&r.Next): // it was the probe
		r.Wait = min(2*r.Wait, int64(maxProbe/time.Second))
		r.Next = metav1.NewTime(o.At.Add(time.Duration(r.Wait) * time.Second))
	case !o.Failed() && (!o.Created.Before(&r.Next) || b.resumes(failed, len(r.Outcomes))):
		*r = Record{Past: o.At}
	}
}

func (r *Record) failed() int {
	n := 0
	for _, o := range r.Outcomes {
		if o.Failed() {
			n++
		}
	}
	return n
}

// State is the state of the breaker for a reason.
type State int

// The states of a breaker.
const (
	// Closed: nodes may be replaced.
	Closed State = iota
	// Probing: no node may be replaced, since a probe is in flight.
	Probing
	// Open: no node may be replaced.
	Open
	// HalfOpen: one node may be replaced, as a probe.
	HalfOpen
)

// State returns the state for a reason. underWay are the creation times of the claims for it that have no outcome
// yet.
func (b *History) State(reason karpv1.DisruptionReason, underWay []time.Time, now time.Time) State {
	r := b.Reasons[reason]
	if r == nil || r.Paused.IsZero() {
		return Closed
	}
	return stateOf(r.Next.Time, underWay, now)
}

// stateOf is the state of a breaker that is not closed, with the next probe due at a time.
func stateOf(next time.Time, underWay []time.Time, now time.Time) State {
	switch {
	case now.Before(next):
		return Open
	case slices.ContainsFunc(underWay, func(created time.Time) bool { return !created.Before(next) }):
		return Probing
	}
	return HalfOpen
}

// Blocks reports whether a command for a reason, started at a time, is not worth waiting for: the reason is paused,
// or new nodes fail, and the command is not the probe.
func (b *History) Blocks(reason karpv1.DisruptionReason, started time.Time) bool {
	if _, fail := b.NewNodesFail(); fail && covered(reason) && started.Before(b.Soaks.Next.Time) {
		return true
	}
	r := b.Reasons[reason]
	return r != nil && !r.Paused.IsZero() && started.Before(r.Next.Time)
}

// Paused are the paused reasons, sorted.
func (b *History) Paused() []karpv1.DisruptionReason {
	var out []karpv1.DisruptionReason
	for reason, r := range b.Reasons {
		if !r.Paused.IsZero() {
			out = append(out, reason)
		}
	}
	slices.Sort(out)
	return out
}

// truncated cuts a time to the precision of API objects.
func truncated(t time.Time) metav1.Time { return metav1.NewTime(t.UTC()).Rfc3339Copy() }
