package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// maxResizeWait bounds how long the next pod of an owner waits when none of the last had room: its node is tried once a day.
	maxResizeWait = 24 * time.Hour
	// resizeMemory is how long a replacement counts. The next one is due within maxResizeWait of the pod's start.
	resizeMemory = 2 * maxResizeWait
	// maxResizeReplacements is how many replacements of an owner count: after as many, MinDeferredResize has reached maxResizeWait.
	maxResizeReplacements = 12
)

// ResizeHistory remembers for which pods nodes were to be replaced, since they had no room for the resize of the pod. A pod comes back
// with the size of its owner's template, and kube-scheduler chooses its node by that: it may wait for the same resize again, on any node.
// So that nodes are not replaced for it without end, the next pod of the owner waits twice as long. The zero value is empty.
type ResizeHistory struct {
	// replaced are the times, ascending, by owner.
	replaced map[types.UID][]time.Time
}

// Next returns the pod of a node with a deferred resize that is due first, since when the kubelet has deferred it, and when the node is to
// be replaced for it: after so long, or later if that did not help before. The pod is nil if there is none.
//
// Only pods count that another node would serve: not those of DaemonSets, which come to the next node with the size of their template, and
// not those without a controller, which no eviction brings back. A pod that is leaving or protected from disruption must not be evicted for
// its size.
func (h *ResizeHistory) Next(pods []*corev1.Pod, after time.Duration, now time.Time) (next *corev1.Pod, since, due time.Time) {
	for _, p := range pods {
		owner := metav1.GetControllerOfNoCopy(p)
		at, deferred := snapshot.ResizeDeferredSince(p)
		if !deferred || owner == nil || !snapshot.Active(p) || !snapshot.Reschedulable(p) || !snapshot.Disruptable(p, now) {
			continue
		}
		if end := at.Add(h.wait(owner.UID, p, after)); next == nil || end.Before(due) {
			next, since, due = p, at, end
		}
	}
	return next, since, due
}

// wait is how long the pod of an owner has to wait: twice as long after each replacement before it came.
func (h *ResizeHistory) wait(owner types.UID, p *corev1.Pod, after time.Duration) time.Duration {
	out := after
	for range h.before(owner, p) {
		out = min(2*out, max(after, maxResizeWait))
	}
	return out
}

// before counts the replacements for pods of the owner before the pod was created.
func (h *ResizeHistory) before(owner types.UID, p *corev1.Pod) int {
	n, _ := slices.BinarySearchFunc(h.replaced[owner], p.CreationTimestamp.Time, time.Time.Compare)
	return n
}

// Note records that the node of a pod is to be replaced for its resize. It may be called again for the same pod.
func (h *ResizeHistory) Note(p *corev1.Pod, now time.Time) {
	for uid, times := range h.replaced {
		if now.Sub(times[len(times)-1]) > resizeMemory {
			delete(h.replaced, uid)
		}
	}
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil || h.before(owner.UID, p) < len(h.replaced[owner.UID]) { // it is known, for this pod or another that came with it
		return
	}
	if h.replaced == nil {
		h.replaced = map[types.UID][]time.Time{}
	}
	times := append(h.replaced[owner.UID], now)
	h.replaced[owner.UID] = times[max(0, len(times)-maxResizeReplacements):]
}
