package disrupt_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// waiting is a pod of an owner, created at a time, with a resize that is deferred since another.
func waiting(owner types.UID, created, since time.Time) *corev1.Pod {
	p, controller := Pod("web"), true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: owner, Controller: &controller}}
	p.CreationTimestamp = metav1.NewTime(created)
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.NewTime(since),
	}}
	return p
}

// A pod that comes back, is resized again, and has no room on its new node either, has nodes replaced ever more rarely.
func TestNodesAreNotReplacedForOneResizeWithoutEnd(t *testing.T) {
	var h disrupt.ResizeHistory
	now, replaced := Now(), 0
	for end := now.Add(7 * 24 * time.Hour); now.Before(end); replaced++ {
		pod := waiting("web", now, now.Add(time.Minute))
		_, _, due := h.Next([]*corev1.Pod{pod}, 10*time.Minute, now)
		h.Note(pod, due)
		h.Note(pod, due.Add(time.Minute)) // it is checked again before the node has gone
		now = due.Add(3 * time.Minute)
	}
	// After 10, 20, 40, 80, 160, 320, 640 and 1,280 minutes, and then once a day.
	if replaced != 14 {
		t.Errorf("%d nodes in a week, want 14", replaced)
	}
}

func TestTheResizeThatIsDueFirst(t *testing.T) {
	start := Now()
	ago := func(d time.Duration) time.Time { return start.Add(-d) }
	var h disrupt.ResizeHistory
	h.Note(waiting("again", ago(3*time.Hour), ago(2*time.Hour)), ago(time.Hour))
	h.Note(waiting("old", ago(99*time.Hour), ago(98*time.Hour)), ago(50*time.Hour))
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		want time.Duration // from the start
	}{
		{"the first of its owner", []*corev1.Pod{waiting("new", ago(time.Hour), ago(time.Minute))}, 9 * time.Minute},
		{"one that came after a replacement", []*corev1.Pod{waiting("again", ago(9*time.Minute), ago(time.Minute))}, 19 * time.Minute},
		{"one that was there before it", []*corev1.Pod{waiting("again", ago(9*time.Hour), ago(time.Minute))}, 9 * time.Minute},
		{
			"of two, the one that has waited longer has to wait longer",
			[]*corev1.Pod{waiting("again", ago(9*time.Minute), ago(5*time.Minute)), waiting("new", ago(time.Hour), ago(time.Minute))},
			9 * time.Minute,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod, since, due := h.Next(tt.pods, 10*time.Minute, start)
			if pod == nil || due.Sub(start) != tt.want {
				t.Errorf("deferred since %v, due %v from now; want %v", since, due.Sub(start), tt.want)
			}
		})
	}
	h.Note(waiting("other", start, start), start) // what is older than two days is forgotten
	if _, _, due := h.Next([]*corev1.Pod{waiting("old", ago(time.Hour), start)}, 10*time.Minute, start); due.Sub(start) != 10*time.Minute {
		t.Errorf("due %v from now, two days after a replacement", due.Sub(start))
	}
}
