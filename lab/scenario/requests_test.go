package scenario

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// served is a pod of the service web.
func served(name string, ready bool, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func leaves(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

// Requests fail while no pod is Ready, and while clients still use one that is gone.
func TestRequests(t *testing.T) {
	web := []string{"web"}
	tests := []struct {
		name  string
		moves func(r *requests)
		want  int // failed requests
	}{
		{"nothing happens", func(*requests) { time.Sleep(5 * time.Second) }, 0},
		{"the next is Ready before the pod leaves, which serves for as long as clients use it", func(r *requests) {
			r.observe(served("b", true), false)
			time.Sleep(2 * time.Second)
			r.observe(served("a", true, leaves), false)
			time.Sleep(2 * time.Second)
			r.observe(served("a", false), true)
			time.Sleep(2 * time.Second)
		}, 0},
		{"the next is Ready two seconds after the pod leaves", func(r *requests) {
			r.observe(served("a", true, leaves), false)
			time.Sleep(2 * time.Second)
			r.observe(served("b", true), false)
			time.Sleep(5 * time.Second)
		}, 40},
		{"the pod is gone at once", func(r *requests) {
			r.observe(served("b", true), false)
			time.Sleep(2 * time.Second)
			r.observe(served("a", true), true)
			time.Sleep(5 * time.Second)
		}, 10},
		{"it is not Ready for a second", func(r *requests) {
			r.observe(served("a", false), false)
			time.Sleep(time.Second)
			r.observe(served("a", true), false)
			time.Sleep(5 * time.Second)
		}, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRequests()
				r.begin(web)
				go r.run(t.Context())
				r.observe(served("a", true), false) // no request before clients know it
				time.Sleep(2*time.Second + requestInterval/2)
				tt.moves(r)
				r.end()
				if sent, failed := r.count(web); failed != tt.want || sent == 0 {
					t.Errorf("%d of %d requests failed, want %d: %s", failed, sent, tt.want, r.failures())
				}
			})
		})
	}
}
