package provisioning

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// pods are changes that a test makes: Watch returns when it has made them.
type pods func(changed, deleted func(*corev1.Pod))

func (p pods) Watch(_ context.Context, changed, deleted func(*corev1.Pod)) error {
	p(changed, deleted)
	return nil
}

// shown shows a pod to a trigger.
func shown(t *testing.T, trigger *PodTrigger, pod *corev1.Pod) {
	t.Helper()
	trigger.Pods = pods(func(changed, _ func(*corev1.Pod)) { changed(pod) })
	if err := trigger.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A pod opens a window when it begins to wait, and any that waits opens one every ten seconds, until it has a node or is gone.
func TestPodsTriggerWhileTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(0, 0)
		opened := func() bool {
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			any := len(b.seen) > 0
			clear(b.seen)
			return any
		}
		step := func(when string, want bool) {
			t.Helper()
			if got := opened(); got != want {
				t.Errorf("%s, a window is opened: %v", when, got)
			}
		}
		f := controllertest.New(t)
		trigger := &PodTrigger{Batch: b, Log: f.Log, Pods: pods(func(changed, deleted func(*corev1.Pod)) {
			changed(controllertest.Pod("runs", "node-a"))
			step("when a pod runs", false)
			changed(pending("first"))
			step("when a pod begins to wait", true)
			changed(pending("second"))
			step("when another does", true)
			time.Sleep(retriggerInterval / 2)
			step("five seconds later", false)
			time.Sleep(retriggerInterval)
			step("while they wait", true)
			changed(controllertest.Pod("first", "node-a"))
			time.Sleep(retriggerInterval)
			step("while one waits", true)
			deleted(pending("second"))
			deleted(pending("never seen"))
			time.Sleep(retriggerInterval)
			step("when none waits any more", false)
			changed(nil) // a defect at one pod
			changed(pending("third"))
			step("when a third begins to", true)
			deleted(pending("third"))
			held := controllertest.Pod("held", "")
			changed(held)
			step("when kube-scheduler says nothing of a pod", false)
			group := "train"
			held.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
			changed(held)
			time.Sleep(retriggerInterval)
			step("while kube-scheduler says nothing of a pod in a group", true)
		})}
		if err := trigger.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Many new pods are a burst, whether or not anybody measures how long pods wait. Pods that are shown again are not new.
func TestManyNewPodsAreABurst(t *testing.T) {
	f := controllertest.New(t)
	for name, decisions := range map[string]*podlatency.Decisions{
		"measured": podlatency.NewDecisions(f.Metrics, f.Now), "not measured": nil,
	} {
		b := NewBatch(time.Second, time.Second)
		trigger := &PodTrigger{Batch: b, Decisions: decisions, Log: f.Log, Pods: pods(func(changed, deleted func(*corev1.Pod)) {
			for range burstSize {
				changed(pending("again"))
				changed(pending("gone"))
				deleted(pending("gone"))
			}
			if b.InBurst() {
				t.Errorf("%s: two pods are a burst", name)
			}
			for i := range burstSize {
				changed(pending(fmt.Sprint(i)))
			}
			if !b.InBurst() {
				t.Errorf("%s: %d new pods are no burst", name, burstSize)
			}
		})}
		if err := trigger.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
