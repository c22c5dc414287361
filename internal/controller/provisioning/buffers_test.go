package provisioning

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// bufferProvisioner is a provisioner with the gate CapacityBuffer on.
func bufferProvisioner(f *controllertest.Fixture) (*Provisioner, *cluster.State) {
	state := cluster.NewState(cluster.Config{
		Cache: f.API, Live: f.API, Types: fakeInstanceTypes{}, CapacityBuffers: true, OnPoolSkipped: func(*karpv1.NodePool, error) {},
		Labels: engine.World(nil).Labels, NominationWindow: 20 * time.Second, Now: f.Now,
	})
	p := provisioner(f)
	p.State = state
	return p, state
}

// newBuffer returns a buffer of n chunks that is resolved, and the template of its pods: half a core each.
func newBuffer(n int32) (*bufferv1.CapacityBuffer, *corev1.PodTemplate) {
	b := &bufferv1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "uid-b"}}
	b.Spec.PodTemplateRef = &bufferv1.LocalObjectRef{Name: "t"}
	b.Status.Replicas = &n
	meta.SetStatusCondition(
		&b.Status.Conditions,
		metav1.Condition{Type: bufferv1.ConditionReadyForProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonResolved},
	)
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "t"}}
	t.Template.Spec.Containers = []corev1.Container{
		{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}},
	}
	return b, t
}

// bufferCondition returns what the buffer's condition Provisioning states.
func bufferCondition(f *controllertest.Fixture) string {
	b, _ := newBuffer(0)
	f.Get(b)
	c := meta.FindStatusCondition(b.Status.Conditions, bufferv1.ConditionProvisioning)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// The life of a buffer's room: created once, then there, and given up with the buffer.
func TestBufferCapacity(t *testing.T) {
	b, template := newBuffer(2)
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), b, template)
	p, state := bufferProvisioner(f)
	run(t, p)
	created := claims(t, f.API)
	if len(created) != 1 {
		t.Fatalf("%d claims, want one", len(created))
	}
	c := &created[0]
	if got := c.Annotations[karpv1.AnnotationNominatedBuffers]; got != "uid-b-1,uid-b-2" ||
		c.Annotations[karpv1.AnnotationNominatedPods] != "" {
		t.Errorf("annotations %v", c.Annotations)
	}
	if got := bufferCondition(f); got != "False RequiresNewCapacity" {
		t.Errorf("Provisioning %s", got)
	}
	run(t, p)
	if got := len(claims(t, f.API)); got != 1 {
		t.Fatalf("%d claims after the second pass, want one: the room was created twice", got)
	}
	// The node exists, and no pod uses it.
	controllertest.Initialized(c)
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")}
	c.Status.Allocatable = c.Status.Capacity
	f.Do(f.API.Status().Update(t.Context(), c))
	f.Do(f.API.Create(t.Context(), controllertest.ReadyNode(c.Name, func(n *corev1.Node) {
		n.Status.Capacity, n.Status.Allocatable = c.Status.Capacity, c.Status.Allocatable
	})))
	f.Clock = f.Clock.Add(time.Hour)
	run(t, p)
	if got := bufferCondition(f); got != "True FitsExistingCapacity" || len(claims(t, f.API)) != 1 {
		t.Errorf("Provisioning %s, %d claims", got, len(claims(t, f.API)))
	}
	s, err := state.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Nodes[0]; n.Virtual != 2 || !n.NominatedUntil.IsZero() {
		t.Errorf("node holds %d virtual pods, nominated until %v; want 2, never", n.Virtual, n.NominatedUntil)
	}
	f.Do(f.API.Delete(t.Context(), b))
	run(t, p)
	if s, err = state.Snapshot(t.Context()); err != nil || s.Nodes[0].Virtual != 0 || len(s.Virtual) != 0 {
		t.Errorf("the buffer is gone: node holds %d virtual pods, error %v", s.Nodes[0].Virtual, err)
	}
	if said := f.RecordedEvents(); len(said) != 0 {
		t.Errorf("events %v, want none: virtual pods do not exist", said)
	}
}

// Real pods get what they would get without buffers, and first.
func TestPodsBeforeBuffers(t *testing.T) {
	b, template := newBuffer(20)
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}), b, template, pending("a"))
	p, _ := bufferProvisioner(f)
	run(t, p)
	got := claims(t, f.API)
	if len(got) != 1 || got[0].Annotations[karpv1.AnnotationNominatedPods] != "uid-a" ||
		got[0].Annotations[karpv1.AnnotationNominatedBuffers] != "" {
		t.Errorf("claims %+v, want one, for the pod", got)
	}
	if got := bufferCondition(f); got != "False RequiresNewCapacity" {
		t.Errorf("Provisioning %s", got)
	}
	for _, e := range f.RecordedEvents() {
		if !strings.Contains(e, "Nominated") {
			t.Errorf("event %s", e)
		}
	}
}

// A buffer with a template that has gone, or is not resolved, or with a gate that is off, gets no room, and nothing is written.
func TestBufferWithoutCapacity(t *testing.T) {
	for name, gate := range map[string]bool{"gate off": false, "not ready": true} {
		b, template := newBuffer(2)
		if gate {
			meta.FindStatusCondition(b.Status.Conditions, bufferv1.ConditionReadyForProvisioning).Status = metav1.ConditionFalse
		}
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), b, template)
		p := provisioner(f)
		if gate {
			p, _ = bufferProvisioner(f)
		}
		run(t, p)
		if got := len(claims(t, f.API)); got != 0 || bufferCondition(f) != "" {
			t.Errorf("%s: %d claims, Provisioning %q", name, got, bufferCondition(f))
		}
	}
}

// A controller that has just begun does not know yet which nodes hold room: it gives none of them up.
func TestBufferCapacityAfterRestart(t *testing.T) {
	b, template := newBuffer(1)
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Pool("general"),
		b,
		template,
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a"),
	)
	_, state := bufferProvisioner(f)
	s, err := state.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes[0].Virtual == 0 {
		t.Error("the node counts as empty before the first plan")
	}
	state.SetBufferPods(map[string]int{})
	if s, err = state.Snapshot(t.Context()); err != nil || s.Nodes[0].Virtual != 0 {
		t.Errorf("after a plan that puts nothing there: %d, error %v", s.Nodes[0].Virtual, err)
	}
}
