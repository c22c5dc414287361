package drift

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// resizePending is a pod with a resize that the kubelet has not carried out since so long before the start, and why.
func resizePending(reason string, ago time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	return controllertest.Pod("web", "node-a", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web", Controller: &controller},
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason,
			LastTransitionTime: metav1.NewTime(controllertest.Start.Add(-ago)),
		})
	}}, change...)...)
}

// A node without room for the resize of a pod is replaced if its pool wants that.
func TestNodesWithDeferredResizesDrift(t *testing.T) {
	wants := func(after string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{karpv1.AnnotationReplaceDeferredResize: after}
		}
	}
	pool := func(change ...func(*karpv1.NodePool)) *karpv1.NodePool {
		return controllertest.Pool("general", change...)
	}
	const deferred, hour = corev1.PodReasonDeferred, time.Hour
	replicas := int64(1)
	static := func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }
	ofDaemonSet := func(p *corev1.Pod) {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: &controller}}
	}
	bare := func(p *corev1.Pod) { p.OwnerReferences = nil }
	leaving := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{"example.com/waits"}
	}
	keep := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: value}
			p.Status.StartTime = &metav1.Time{Time: controllertest.Start.Add(-2 * hour)}
		}
	}
	timeless := func(p *corev1.Pod) {
		p.Status.Conditions[len(p.Status.Conditions)-1].LastTransitionTime = metav1.Time{}
	}
	for _, tt := range []struct {
		name  string
		pool  *karpv1.NodePool
		pod   *corev1.Pod
		cloud fakeCloud
		want  string
		again time.Duration
	}{
		{name: "long enough", pool: pool(wants("10m")), pod: resizePending(deferred, 10*time.Minute), want: "ResizeDeferred"},
		{name: "not long enough", pool: pool(wants("10m")), pod: resizePending(deferred, 8*time.Minute), again: 2 * time.Minute},
		{name: "the pool does not want it", pool: pool(), pod: resizePending(deferred, hour)},
		{name: "the annotation is not a duration", pool: pool(wants("soon")), pod: resizePending(deferred, hour)},
		{name: "the annotation is too short", pool: pool(wants("1m")), pod: resizePending(deferred, hour)},
		{name: "no node of the type could have room", pool: pool(wants("10m")), pod: resizePending(corev1.PodReasonInfeasible, hour)},
		{name: "a static pool", pool: pool(wants("10m"), static), pod: resizePending(deferred, hour)},
		{name: "a pod of a DaemonSet", pool: pool(wants("10m")), pod: resizePending(deferred, hour, ofDaemonSet)},
		{name: "a pod that no eviction brings back", pool: pool(wants("10m")), pod: resizePending(deferred, hour, bare)},
		{name: "a pod that leaves", pool: pool(wants("10m")), pod: resizePending(deferred, hour, leaving)},
		{name: "a protected pod", pool: pool(wants("10m")), pod: resizePending(deferred, hour, keep("true"))},
		{name: "a protected pod, for a time", pool: pool(wants("10m")), pod: resizePending(deferred, hour, keep("3h"))},
		{name: "after that time", pool: pool(wants("10m")), pod: resizePending(deferred, hour, keep("1h")), want: "ResizeDeferred"},
		{name: "nobody knows since when", pool: pool(wants("10m")), pod: resizePending(deferred, hour, timeless)},
		{name: "not yet, by a clock that is ahead", pool: pool(wants("10m")), pod: resizePending(deferred, -hour)},
		{name: "the annotation is empty", pool: pool(wants("")), pod: resizePending(deferred, hour)},
		{name: "the annotation is negative", pool: pool(wants("-10m")), pod: resizePending(deferred, hour)},
		{name: "the annotation is very long", pool: pool(wants("2562047h")), pod: resizePending(deferred, hour)},
		{
			name: "another reason comes first", pool: pool(wants("10m")), pod: resizePending(deferred, hour),
			cloud: fakeCloud{reason: "AMIDrift"}, want: "AMIDrift",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim := controllertest.Claim("a", large)
			f := controllertest.New(t, []client.Object{controllertest.Class(), claim, tt.pool, tt.pod}...)
			result := f.Reconcile(reconciler(f, &tt.cloud), "a")
			switch {
			case tt.want == "ResizeDeferred":
				tt.again = resizeRecheckInterval
			case tt.again == 0:
				tt.again = recheckInterval
			}
			if got := reasonOf(f); got != tt.want || result.RequeueAfter != tt.again {
				t.Errorf("%q, again after %v; want %q, %v", got, result.RequeueAfter, tt.want, tt.again)
			}
		})
	}
}

// The condition names the pod, and goes once the pod has its size.
func TestDriftNamesThePodWithADeferredResize(t *testing.T) {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Annotations = map[string]string{karpv1.AnnotationReplaceDeferredResize: "10m"}
	})
	pod := resizePending("Deferred", time.Hour)
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", large), pool, pod)
	r := reconciler(f, &fakeCloud{})
	f.Reconcile(r, "a")
	c, _ := condition.Get(f.Claim("a"), karpv1.ConditionDrifted)
	want := "The node has no room for the resize of pod " + pod.Namespace + "/web, which waits since " +
		controllertest.Start.Add(-time.Hour).UTC().Format(time.RFC3339)
	if c.Message != want {
		t.Errorf("%q, want %q", c.Message, want)
	}
	f.Get(pod)
	pod.Status.Conditions = nil
	f.Do(f.API.Status().Update(t.Context(), pod))
	if f.Reconcile(r, "a"); reasonOf(f) != "" {
		t.Errorf("%q after the resize", reasonOf(f))
	}
}

// The pod that comes back, and waits for the same resize again, waits twice as long before another node is replaced: also if the controller
// restarts while the first is being replaced.
func TestTheNextDeferredResizeWaitsLonger(t *testing.T) {
	for name, restarts := range map[string]bool{"the controller goes on": false, "it restarts in the middle": true} {
		t.Run(name, func(t *testing.T) { nextDeferredResize(t, restarts) })
	}
}

func nextDeferredResize(t *testing.T, restarts bool) {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Annotations = map[string]string{karpv1.AnnotationReplaceDeferredResize: "10m"}
	})
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", large), pool, resizePending("Deferred", 10*time.Minute))
	r := reconciler(f, &fakeCloud{})
	f.Reconcile(r, "a")
	if restarts {
		r = reconciler(f, &fakeCloud{})
		f.Reconcile(r, "a")
	}
	if reasonOf(f) != "ResizeDeferred" {
		t.Fatalf("%q", reasonOf(f))
	}
	f.Do(f.API.Delete(t.Context(), resizePending("Deferred", 0)))
	f.Clock = f.Clock.Add(time.Minute)
	now := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(f.Clock) }
	f.Do(f.API.Create(t.Context(), resizePending("Deferred", -time.Minute, now)))
	for _, after := range []struct {
		time.Duration
		want string
	}{{0, ""}, {10 * time.Minute, ""}, {10*time.Minute - 1, ""}, {1, "ResizeDeferred"}} {
		f.Clock = f.Clock.Add(after.Duration)
		if f.Reconcile(r, "a"); reasonOf(f) != after.want {
			t.Errorf("%q at %v, want %q", reasonOf(f), f.Clock, after.want)
		}
	}
}
