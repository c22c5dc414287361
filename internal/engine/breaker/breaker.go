// Package breaker decides whether nodes of a pool go on being replaced for some reason, by what has become of the claims that
// were bought to replace others.
//
// Claims of a bad image, or of a node class that an edit has broken, do not come up; every further one costs an instance for
// nothing and keeps a node that works from being drained. When too many of them have failed, the reason pauses in the pool. It goes on when the
// cause is gone: NodePool or node class were edited, or the images that failed are not used any more; or when one claim that
// is tried after a while, each time a longer one, does come up.
//
// What is remembered is a Book, which travels as an annotation of the NodePool: a controller that starts knows what the one
// before has learnt.
package breaker

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// How long after a reason has paused a single claim is tried, at first and at most.
const (
	firstProbe = 15 * time.Minute
	lastProbe  = 4 * time.Hour
)

// kept is how many outcomes are remembered of a reason, at least.
const kept = 10

// Cause is what the outcomes of a pool's claims depend on. With another cause everything begins anew.
type Cause struct {
	// Pool and Class are generations.
	Pool     int64     `json:"pool"`
	Class    int64     `json:"class"`
	ClassUID types.UID `json:"classUID,omitempty"`
}

// Book is what is remembered of a pool.
type Book struct {
	Cause   Cause                               `json:"cause"`
	Reasons map[karpv1.DisruptionReason]*Record `json:"reasons,omitempty"`
	// Since is when the cause was first seen: claims that are older tell nothing of it.
	Since metav1.Time `json:"since"`
}

// Record is what is remembered of one reason.
type Record struct {
	// Outcomes are the last ones, oldest first, each of another claim.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Past is when the last outcome was decided that is not kept any more; what is not later was noted before.
	Past metav1.Time `json:"past,omitzero"`
	// Paused is since when the reason pauses; zero if it does not.
	Paused metav1.Time `json:"paused,omitzero"`
	// Next is when a claim may be tried while it pauses, Wait how many seconds after the last failure that is.
	Next metav1.Time `json:"next,omitzero"`
	Wait int64       `json:"wait,omitempty"`
}

// Outcome is what became of a claim.
type Outcome struct {
	Claim   string      `json:"claim"`
	UID     types.UID   `json:"uid"`
	Created metav1.Time `json:"created"`
	// At is when it was decided.
	At metav1.Time `json:"at"`
	// Why it failed, in a few words; empty if it came up.
	Why string `json:"why,omitempty"`
	// Image, Type and Zone are those of its instance; empty if it got none.
	Image string `json:"image,omitempty"`
	Type  string `json:"type,omitempty"`
	Zone  string `json:"zone,omitempty"`
}

// Failed reports whether the claim did not come up.
func (o Outcome) Failed() bool { return o.Why != "" }

// Renew begins anew if the cause of what is in the book is gone, and reports whether the book has changed. images are those that the node
// class launches now.
func (b *Book) Renew(cause Cause, images []string, now time.Time) bool {
	if b.Cause == (Cause{}) {
		b.Cause = cause // it is the first
		return true
	}
	if b.Cause == cause && !b.outdated(images) {
		return false
	}
	*b = Book{Cause: cause, Since: second(now)}
	return true
}

// outdated reports whether claims have failed, and all of them with images that are not used any more.
func (b *Book) outdated(images []string) bool {
	failed := false
	for _, r := range b.Reasons {
		for _, o := range r.Outcomes {
			if !o.Failed() {
				continue
			}
			if o.Image == "" || slices.Contains(images, o.Image) {
				return false
			}
			failed = true
		}
	}
	return failed
}

// Note learns an outcome, of which it may have learnt before; threshold is after how many failures a reason pauses. It
// reports whether the book has changed. A claim that was given up and came up after all counts as one that did.
func (b *Book) Note(reason karpv1.DisruptionReason, o Outcome, threshold int) bool {
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
	if len(r.Outcomes) > max(kept, 2*threshold) {
		if first := r.Outcomes[0].At; first.After(r.Past.Time) {
			r.Past = first
		}
		r.Outcomes = slices.Delete(r.Outcomes, 0, 1)
	}
	if b.Reasons == nil {
		b.Reasons = map[karpv1.DisruptionReason]*Record{}
	}
	b.Reasons[reason] = r
	r.judge(o, threshold)
	return true
}

// judge pauses the reason, or lets it go on, after an outcome.
func (r *Record) judge(o Outcome, threshold int) {
	switch failed := r.failed(); {
	case r.Paused.IsZero() && o.Failed() && failed >= threshold && 2*failed > len(r.Outcomes):
		r.Paused, r.Wait = o.At, int64(firstProbe/time.Second)
		r.Next = metav1.NewTime(o.At.Add(firstProbe))
	case r.Paused.IsZero():
	case o.Failed() && !o.Created.Before(&r.Next): // it was the one that was tried
		r.Wait = min(2*r.Wait, int64(lastProbe/time.Second))
		r.Next = metav1.NewTime(o.At.Add(time.Duration(r.Wait) * time.Second))
	case !o.Failed() && (!o.Created.Before(&r.Next) || 2*failed <= len(r.Outcomes)):
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

// Standing is whether nodes may be replaced for a reason.
type Standing int

// The three answers.
const (
	// Closed: they may.
	Closed Standing = iota
	// Probing: they may not, for one claim is being tried.
	Probing
	// Open: they may not.
	Open
	// Due: one claim may be tried.
	Due
)

// Standing tells how a reason stands. underWay are the times at which claims for it were created that have come to nothing
// yet.
func (b *Book) Standing(reason karpv1.DisruptionReason, underWay []time.Time, now time.Time) Standing {
	r := b.Reasons[reason]
	switch {
	case r == nil || r.Paused.IsZero():
		return Closed
	case now.Before(r.Next.Time):
		return Open
	case slices.ContainsFunc(underWay, func(created time.Time) bool { return !created.Before(r.Next.Time) }):
		return Probing
	}
	return Due
}

// Halts tells whether what was started for a reason, at a time, is not to be waited for: the reason pauses, and this is not what is
// tried meanwhile.
func (b *Book) Halts(reason karpv1.DisruptionReason, started time.Time) bool {
	r := b.Reasons[reason]
	return r != nil && !r.Paused.IsZero() && started.Before(r.Next.Time)
}

// Paused are the reasons that pause, sorted.
func (b *Book) Paused() []karpv1.DisruptionReason {
	var out []karpv1.DisruptionReason
	for reason, r := range b.Reasons {
		if !r.Paused.IsZero() {
			out = append(out, reason)
		}
	}
	slices.Sort(out)
	return out
}

// second cuts a time to what objects keep.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.UTC()).Rfc3339Copy() }
