package event

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

func pod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: types.UID(uid)}}
}

func TestEventsAreDeduplicated(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	sink := record.NewFakeRecorder(10)
	r := NewRecorder(sink, func() time.Time { return now })
	tests := []struct {
		name string
		say  func()
		want bool
	}{
		{"new", func() { r.Warn(pod("a"), "Why", "%d left", 2) }, true},
		{"again", func() { r.Warn(pod("a"), "Why", "%d left", 2) }, false},
		{"a new fact", func() { r.Warn(pod("a"), "Why", "%d left", 1) }, true},
		{"for another reason", func() { r.Normal(pod("a"), "Other", "%d left", 2) }, true},
		{"of another object of its name", func() { r.Warn(pod("b"), "Why", "%d left", 2) }, true},
		{"just before the time is up", func() { now = now.Add(DefaultDedupeWindow - time.Second); r.Warn(pod("a"), "Why", "%d left", 2) }, false},
		{"after it", func() { now = now.Add(time.Second); r.Warn(pod("a"), "Why", "%d left", 2) }, true},
		{"with a time of its own", func() { r.WarnEvery(time.Hour, pod("c"), "Why", "x") }, true},
		{"within it", func() { now = now.Add(30 * time.Minute); r.WarnEvery(time.Hour, pod("c"), "Why", "x") }, false},
	}
	for _, tt := range tests {
		tt.say()
		said := false
		select {
		case <-sink.Events:
			said = true
		default:
		}
		if said != tt.want {
			t.Errorf("%s: said %v, want %v", tt.name, said, tt.want)
		}
	}
}

// What has run out is forgotten; what has not is not stated again, however much there is.
func TestMemoryIsBounded(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	r := NewRecorder(&record.FakeRecorder{}, func() time.Time { return now })
	const many = 3 * minSweepSize
	for range 4 {
		for i := range many {
			r.Warn(pod(fmt.Sprint(i)), "Why", "at %v", now)
		}
		now = now.Add(DefaultDedupeWindow)
	}
	if len(r.recorded) > 2*many {
		t.Errorf("%d events are remembered, of which %d can matter", len(r.recorded), many)
	}
	for i := range many {
		if uid := types.UID(fmt.Sprint(i)); r.recorded[key{uid, "Why", fmt.Sprintf("at %v", now.Add(-DefaultDedupeWindow))}].IsZero() {
			t.Fatalf("event %d of the last round is forgotten", i)
		}
	}
}

// A burst of pods gets ten nominations at once and five a second, over all pods. What was over the limit may be published later.
func TestNominationsAreLimited(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	sink := record.NewFakeRecorder(1000)
	r := NewRecorder(sink, func() time.Time { return now })
	nominate := func(pods int) (published int) {
		for i := range pods {
			r.Normal(pod(fmt.Sprint(i)), Nominated, "Pod should schedule on: %s", "node/a")
		}
		for len(sink.Events) > 0 {
			<-sink.Events
			published++
		}
		return published
	}
	if got := nominate(100); got != 10 {
		t.Errorf("%d of 100 nominations at once are published, want 10", got)
	}
	now = now.Add(time.Second)
	if got := nominate(100); got != 5 {
		t.Errorf("%d nominations after a second, want 5", got)
	}
	now = now.Add(time.Minute)
	if got := nominate(16); got != 1 {
		t.Errorf("%d nominations, want 1: 15 of 16 pods had theirs", got)
	}
	for i := range 100 {
		r.Warn(pod(fmt.Sprint(i)), "FailedScheduling", "no room")
	}
	if got := len(sink.Events); got != 100 {
		t.Errorf("%d of 100 failures are published: the limit is for nominations", got)
	}
}
