// Package refusal limits how many nodes are launched for pods that refuse, or are refused by, each node that was launched for them.
//
// A plan knows what it is given of nodes. Where a node turns out otherwise (something else taints it, removes a label, takes more of
// it, or does not let pods be bound), kube-scheduler does not place the pod, the plan finds that the new node does not suit, and has
// another one. Nothing in a plan stops that. So each NodePool has a History of the nodes that were launched for pods, came up, and never
// held one: after the first, another one is launched for equal pods at a time, after pauses that double, and after MaxNodes none until
// the pods, the pool or its node class change, or a person removes the history.
//
// Where a pod comes to one of the nodes now and then, those in vain still count for acceptedWindow: MaxNodes within it at most. A node that
// holds one of the pods is never in vain. So pods of which each node takes one, and no more, are never slowed.
//
// The history is an annotation of the NodePool, since nodes that nothing runs on are soon gone, and with them what they were launched for.
package refusal

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// MaxNodes limits how many nodes are launched in vain for equal pods: the first may be chance, the second may have met the same fault
	// before it was repaired, and a third reports no more than they do.
	MaxNodes = 3
	// FirstPause is between the first node in vain and the second. It doubles with each.
	FirstPause = 30 * time.Second
	// window sets how long a node in vain counts for its pool: within it, at most MaxNodes are tried for all pods that nodes of the pool
	// have been launched in vain for, since one fault of the nodes concerns pods of many owners.
	window = time.Hour
	// acceptedWindow sets how long a node in vain counts for equal pods although one of them has come to a node since: as long as an empty
	// node is kept for its pods. Without it, one pod in four nodes would let nodes be launched in vain forever.
	acceptedWindow = 10 * time.Minute
	// retention sets how long the history of pods is kept that are no longer pending. A Job that runs once a day has equal pods each time.
	retention = 25 * time.Hour
	// seenInterval sets how often it is noted that they still are: each time is a write.
	seenInterval = time.Hour
	// maxClasses bounds a history: an annotation holds 256 KiB, and a record takes up to half of one.
	maxClasses = 200
)

// Cause describes what the outcome for the nodes of a pool depends on, as far as the pool itself shows. If it changes, the history is
// reset.
type Cause struct {
	// Pool and Class are generations.
	Pool     int64     `json:"pool"`
	Class    int64     `json:"class"`
	ClassUID types.UID `json:"classUID,omitempty"`
	// Images are the images that the node class launches, in order.
	Images string `json:"images,omitempty"`
}

// History describes what became of the nodes of a pool for the pods that they were launched for.
type History struct {
	Cause Cause `json:"cause"`
	// Since is the time when the cause was first seen: older nodes state nothing about it.
	Since metav1.Time `json:"since,omitzero"`
	// Classes are the pods that nodes were launched in vain for, by ClassOf.
	Classes map[string]*Record `json:"classes,omitempty"`
	// Nodes are the last ones launched in vain, oldest first, at most MaxNodes.
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is a node that was launched in vain.
type Node struct {
	Claim string      `json:"claim"`
	At    metav1.Time `json:"at"`
}

// Record is the history of equal pods in a pool.
type Record struct {
	// Accepted is the time when a pod last came to a node that was launched for equal ones.
	Accepted metav1.Time `json:"accepted,omitzero"`
	// Claims are the last ones launched in vain, up to MaxNodes, and Found is when each was found; without it, when the last was. Taken are
	// those with a node on which pods came first that no node was needed for, up to MaxNodes: one more counts as launched in vain.
	Claims []string      `json:"claims,omitempty"`
	Found  []metav1.Time `json:"found,omitempty"`
	Taken  []string      `json:"taken,omitempty"`
	// At is the time when the last of the claims was found, Next when another one may be launched at the earliest.
	At   metav1.Time `json:"at,omitzero"`
	Next metav1.Time `json:"next,omitzero"`
	// Seen is the time when the pods were last noted to be pending.
	Seen metav1.Time `json:"seen"`
	// Pod is one of the pods, Node the last node, and Why what is known of the two.
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	Why  string `json:"why,omitempty"`
	// Cause is the kind of that.
	Cause Kind `json:"cause,omitempty"`
}

// ResetIfChanged resets the history if what the outcomes depend on has changed, and reports whether it has. removed is true if a person
// has removed it.
func (h *History) ResetIfChanged(cause Cause, removed bool, now time.Time) bool {
	if h.Cause == cause && !removed {
		return false
	}
	first := h.Cause == (Cause{}) && !removed
	*h = History{Cause: cause}
	if !first {
		h.Since = truncated(now)
	}
	return !first
}

// Empty reports whether there is nothing to keep.
func (h *History) Empty() bool { return len(h.Classes) == 0 && h.Since.IsZero() }

// Add adds what was found, once. It returns the findings that are new. After the first node in vain, none is launched for firstPause, which
// is FirstPause in production.
func (h *History) Add(found []Finding, now time.Time, firstPause time.Duration) (added []Finding) {
	for _, f := range found {
		if h.add(f, now, firstPause) {
			added = append(added, f)
		}
	}
	h.trim(now)
	return added
}

func (h *History) add(f Finding, now time.Time, firstPause time.Duration) bool {
	r := h.Classes[f.Class]
	if f.Outcome != Accepted && f.Created.Before(h.Since.Time) {
		return false
	}
	switch {
	case f.Outcome == Accepted:
		changed := r.accept(f, now)
		return h.clear(f.Claim) || changed
	case f.Outcome != Refused && f.Outcome != Taken || r.knows(f):
		return false
	case r == nil:
		r = &Record{}
	}
	if f.Outcome == Taken && len(r.Taken) < MaxNodes {
		r.Taken = append(r.Taken, f.Claim)
		r.Seen = truncated(now)
		h.put(f.Class, r)
		return true
	}
	// One that was launched before the last pause began was launched together with those that began it.
	if f.Created.After(r.At.Time) {
		r.Next = truncated(now.Add(firstPause << min(len(r.counting(now)), MaxNodes-1)))
	}
	r.Found = append(r.found(), truncated(now))
	r.Claims = append(r.Claims, f.Claim)
	r.Claims, r.Found = r.Claims[max(0, len(r.Claims)-MaxNodes):], r.Found[max(0, len(r.Found)-MaxNodes):]
	r.At, r.Seen, r.Pod, r.Node, r.Why, r.Cause = truncated(now), truncated(now), f.PodName(), f.Node, f.Why, f.Cause
	h.put(f.Class, r)
	if !slices.ContainsFunc(h.Nodes, func(n Node) bool { return n.Claim == f.Claim }) {
		h.Nodes = append(h.Nodes, Node{f.Claim, truncated(now)})
		h.Nodes = h.Nodes[max(0, len(h.Nodes)-MaxNodes):]
	}
	return true
}

func (h *History) put(class string, r *Record) {
	if h.Classes == nil {
		h.Classes = map[string]*Record{}
	}
	h.Classes[class] = r
}

// clear removes a claim from the nodes in vain of the pool: a pod has come to it after all.
func (h *History) clear(claim string) bool {
	n := len(h.Nodes)
	h.Nodes = slices.DeleteFunc(h.Nodes, func(n Node) bool { return n.Claim == claim })
	return len(h.Nodes) < n
}

// knows reports whether the claim counts already. With MaxNodes in vain, one that was launched before the last of them was found reports no
// more than they do. The nodes of a gang that is short were launched together, and count as one. The receiver may be nil.
func (r *Record) knows(f Finding) bool {
	return r != nil && ((len(r.Claims) >= MaxNodes || f.Cause == GangShort) && !f.Created.After(r.At.Time) ||
		slices.Contains(r.Claims, f.Claim) || slices.Contains(r.Taken, f.Claim))
}

// found returns when each of the claims was found.
func (r *Record) found() []metav1.Time {
	if len(r.Found) == len(r.Claims) {
		return r.Found
	}
	return slices.Repeat([]metav1.Time{r.At}, len(r.Claims))
}

// counting returns when the claims in vain that count now were found: no pod has come to a node since, or not long ago.
func (r *Record) counting(now time.Time) []time.Time {
	var out []time.Time
	for _, at := range r.found() {
		if at.After(r.Accepted.Time) || now.Sub(at.Time) < acceptedWindow {
			out = append(out, at.Time)
		}
	}
	return out
}

// inARow returns how many nodes were launched in vain since a pod last came to one.
func (r *Record) inARow() int {
	n := 0
	for _, at := range r.found() {
		if at.After(r.Accepted.Time) {
			n++
		}
	}
	return n
}

// accept notes that a pod was bound to a node that was launched for equal pods. That node was not launched in vain. One that was launched
// long before states nothing about those since. The receiver may be nil.
func (r *Record) accept(f Finding, now time.Time) bool {
	if r == nil || len(r.Claims)+len(r.Taken) == 0 || !f.At.After(r.At.Time) || f.Created.Before(r.At.Add(-window)) {
		return false
	}
	if at := slices.Index(r.Claims, f.Claim); at >= 0 {
		r.Found = slices.Delete(slices.Clone(r.found()), at, at+1)
		r.Claims = slices.Delete(r.Claims, at, at+1)
	} else if r.inARow() == 0 && len(r.Taken) == 0 {
		return false // known already
	}
	r.Accepted, r.Seen, r.Taken = truncated(f.At), truncated(now), nil
	return true
}

// See notes that pods of a class are pending, every now and then, and reports whether the history has changed.
func (h *History) See(class string, now time.Time) bool {
	r := h.Classes[class]
	if r == nil || now.Sub(r.Seen.Time) < seenInterval {
		return false
	}
	r.Seen = truncated(now)
	return true
}

// Expire drops what has not been pending for long, and reports whether the history has changed.
func (h *History) Expire(now time.Time) bool {
	changed := false
	for class, r := range h.Classes {
		if now.Sub(r.Seen.Time) > retention {
			delete(h.Classes, class)
			changed = true
		}
	}
	if !h.Since.IsZero() && now.Sub(h.Since.Time) > retention {
		h.Since = metav1.Time{}
		changed = true
	}
	return changed
}

// trim drops the records that are seen longest ago while there are too many.
func (h *History) trim(now time.Time) {
	for len(h.Classes) > maxClasses {
		oldest, at := "", now.Add(time.Hour)
		for class, r := range h.Classes {
			if seen := r.Seen.Time; seen.Before(at) || seen.Equal(at) && class < oldest {
				oldest, at = class, seen
			}
		}
		delete(h.Classes, oldest)
	}
}

// truncated cuts a time to the precision of API objects.
func truncated(t time.Time) metav1.Time { return metav1.NewTime(t.UTC()).Rfc3339Copy() }
