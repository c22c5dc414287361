package buffer

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// change is an event about an object: created, changed, or deleted.
type change struct{ before, after client.Object }

// looked reports whether a change enqueues the buffer.
func (c change) looked(t *testing.T, r *Reconciler) bool {
	t.Helper()
	about := c.after
	if about == nil {
		about = c.before
	}
	for _, w := range r.watches() {
		if reflect.TypeOf(w.object) != reflect.TypeOf(about) {
			continue
		}
		var passes bool
		switch {
		case c.before == nil:
			passes = w.when.Create(event.CreateEvent{Object: c.after})
		case c.after == nil:
			passes = w.when.Delete(event.DeleteEvent{Object: c.before})
		default:
			passes = w.when.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after})
		}
		if !passes {
			continue
		}
		for _, got := range w.buffers(t.Context(), about) {
			if got == request {
				return true
			}
		}
	}
	return false
}

func TestBufferIsLookedAtWhenWhatItWaitsForChanges(t *testing.T) {
	web := func(generation, replicas int64) *appsv1.Deployment {
		d := deployment("web", number(int32(replicas)))
		d.Generation = generation
		return d
	}
	busy := web(1, 3)
	busy.Status.ReadyReplicas = 2
	elsewhere := web(1, 3)
	elsewhere.Namespace = "other"
	db := &appsv1.StatefulSet{ObjectMeta: meta1("db")}
	old := &appsv1.ReplicaSet{ObjectMeta: meta1("old")}
	heartbeat := controllertest.ReadyNode(
		"a",
		func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(controllertest.Start) },
	)
	larger := controllertest.ReadyNode("a", func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	})
	for _, tt := range []struct {
		name   string
		shape  func(*bufferv1.CapacityBufferSpec)
		change change
		want   bool
	}{
		{"the Deployment appears", like("apps", "Deployment", "web"), change{nil, web(1, 3)}, true},
		{"the Deployment is scaled", like("", "Deployment", "web"), change{web(1, 3), web(2, 5)}, true},
		{"the Deployment is deleted", like("apps", "Deployment", "web"), change{web(1, 3), nil}, true},
		{"the Deployment becomes ready", like("apps", "Deployment", "web"), change{web(1, 3), busy}, false},
		{"another Deployment appears", like("apps", "Deployment", "api"), change{nil, web(1, 3)}, false},
		{"one in another namespace", like("apps", "Deployment", "web"), change{nil, elsewhere}, false},
		{"a Deployment, and the buffer is like a StatefulSet", like("apps", "StatefulSet", "web"), change{nil, web(1, 3)}, false},
		{"the StatefulSet appears", like("apps", "StatefulSet", "db"), change{nil, db}, true},
		{"the ReplicaSet appears", like("apps", "ReplicaSet", "old"), change{nil, old}, true},
		{"the PodTemplate appears", of("t"), change{nil, podTemplate("t")}, true},
		{"another PodTemplate appears", of("t"), change{nil, podTemplate("u")}, false},
		{"a claim launches", of("t"), change{controllertest.Claim("a"), controllertest.Claim("a", controllertest.Launched)}, true},
		{"a claim's node initializes", of("t"), change{controllertest.Claim("a", controllertest.Registered), controllertest.Claim("a",
			controllertest.Initialized)}, true},
		{"a claim begins to leave", of("t"), change{controllertest.Claim("a", controllertest.Initialized), controllertest.Claim("a",
			controllertest.Initialized, controllertest.Deleting)}, true},
		{"nothing of note about a claim", of("t"), change{controllertest.Claim("a", controllertest.Launched), controllertest.Claim("a",
			controllertest.Launched)}, false},
		{"a Node becomes ready", of("t"), change{controllertest.ReadyNode("a", controllertest.NotReady), controllertest.ReadyNode("a")}, true},
		{"a Node grows", of("t"), change{controllertest.ReadyNode("a"), larger}, true},
		{"a Node is gone", of("t"), change{controllertest.ReadyNode("a"), nil}, true},
		{"a Node's heartbeat", of("t"), change{controllertest.ReadyNode("a"), heartbeat}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, capacityBuffer(tt.shape, fixed(2)))
			if got := tt.change.looked(t, &Reconciler{Client: f.API, Log: f.Log}); got != tt.want {
				t.Errorf("enqueued: %v, want %v", got, tt.want)
			}
		})
	}
}

// Provisioning reads a buffer from the cache: when the cache shows that the buffer is resolved, provisioning runs
// again.
func TestOwnStatusOfABufferWakesProvisioning(t *testing.T) {
	fresh, resolved, told := capacityBuffer(), capacityBuffer(), capacityBuffer()
	for _, b := range []*bufferv1.CapacityBuffer{resolved, told} {
		b.Status.Replicas = number(2)
		meta.SetStatusCondition(
			&b.Status.Conditions,
			metav1.Condition{Type: bufferv1.ConditionReadyForProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonResolved},
		)
	}
	meta.SetStatusCondition(
		&told.Status.Conditions,
		metav1.Condition{Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonFitsExistingCapacity},
	)
	when := resolutionChanged()
	if !when.Update(event.UpdateEvent{ObjectOld: fresh, ObjectNew: resolved}) {
		t.Error("a buffer that is resolved waits for the timer")
	}
	if when.Update(event.UpdateEvent{ObjectOld: resolved, ObjectNew: told}) {
		t.Error("what provisioning writes to a buffer triggers provisioning")
	}
}
