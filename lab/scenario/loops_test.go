package scenario

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// The detector itself: what counts as a loop, and what does not.
func TestLoopDetector(t *testing.T) {
	claim := func(name, pods, reason string, conditions ...metav1.Condition) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{
			karpv1.AnnotationNominatedPods: pods, karpv1.AnnotationPodClasses: "web",
		}}}
		if reason != "" {
			c.Annotations[karpv1.AnnotationLaunchReason] = reason
		}
		c.Status.NodeName, c.Status.Conditions = "node-"+name, conditions
		return c
	}
	ready := metav1.Condition{Type: karpv1.ConditionInitialized, Status: metav1.ConditionTrue}
	because := func(reason string) metav1.Condition {
		return metav1.Condition{Type: karpv1.ConditionDisruptionReason, Status: metav1.ConditionTrue, Reason: reason}
	}
	removed := func(reason string) *karpv1.NodeClaim {
		c := claim("first", "a", "", ready, because(reason))
		c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return c
	}
	yes := true
	pod := func(name, node, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: &yes}}
		return p
	}
	at := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		before func(*loopDetector)
		fresh  *karpv1.NodeClaim
		loop   bool
	}{
		{"the first node is ready and empty", func(d *loopDetector) {
			d.observe(claim("first", "a", "", ready), false)
		}, claim("second", "a", ""), true},
		{"only a DaemonSet's pod runs there", func(d *loopDetector) {
			d.observe(claim("first", "a", "", ready), false)
			d.observe(pod("agent", "node-first", "DaemonSet"), false)
		}, claim("second", "a", ""), true},
		{"it was removed as empty", func(d *loopDetector) { d.observe(removed("Empty"), false) }, claim("second", "a", ""), true},
		{"it was interrupted", func(d *loopDetector) { d.observe(removed("SpotInterrupted"), false) }, claim("second", "a", ""), false},
		{"it never became ready", func(d *loopDetector) { d.observe(claim("first", "a", ""), false) }, claim("second", "a", ""), false},
		{"another pod took the place", func(d *loopDetector) {
			d.observe(claim("first", "a", "", ready), false)
			d.observe(pod("b", "node-first", "ReplicaSet"), false)
		}, claim("second", "a", ""), false},
		{"for another pod", func(d *loopDetector) { d.observe(claim("first", "a", "", ready), false) }, claim("second", "b", ""), false},
		{"for one that was made again, while the first is gone", func(d *loopDetector) {
			d.observe(claim("first", "a", "", ready), false)
			at = at.Add(time.Minute)
			d.observe(pod("a", "", "ReplicaSet"), true)
		}, claim("second", "b", ""), true},
		{"for one that was made again, while the first was deleted before its node was ready", func(d *loopDetector) {
			d.observe(pod("a", "", "ReplicaSet"), true)
			d.observe(claim("first", "a", "", ready), false)
			at = at.Add(time.Minute)
		}, claim("second", "b", ""), false},
		{"for one that was made again, while the first found room elsewhere", func(d *loopDetector) {
			d.observe(pod("a", "node-other", "ReplicaSet"), false)
			d.observe(claim("first", "a", "", ready), false)
			at = at.Add(time.Minute)
			d.observe(pod("a", "node-other", "ReplicaSet"), true)
		}, claim("second", "b", ""), false},
		{"a replacement", func(d *loopDetector) { d.observe(claim("first", "a", "", ready), false) }, claim("second", "a", "Drifted"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLoopDetector()
			d.now = func() time.Time { return at }
			d.observe(pod("a", "", "ReplicaSet"), false)
			tt.before(d)
			d.observe(tt.fresh, false)
			if err := d.step(false).Run(t.Context(), nil); (err != nil) != tt.loop {
				t.Errorf("found %v, want a loop: %v", err, tt.loop)
			}
			if err := d.step(true).Run(t.Context(), nil); (err == nil) != tt.loop {
				t.Errorf("a scenario that plants it: %v", err)
			}
		})
	}
}
