package buffer

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// triggered counts how often provisioning was triggered.
type triggered int

func (w *triggered) Trigger(types.UID) { *w++ }

var template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
	Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
}}}}

func meta1(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

func podTemplate(name string) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 7}, Template: template}
}

func deployment(name string, replicas *int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta1(name), Spec: appsv1.DeploymentSpec{Replicas: replicas, Template: template}}
}

func number(n int32) *int32 { return &n }

func capacityBuffer(change ...func(*bufferv1.CapacityBufferSpec)) *bufferv1.CapacityBuffer {
	strategy := "somebody's own"
	b := &bufferv1.CapacityBuffer{ObjectMeta: meta1("b"), Spec: bufferv1.CapacityBufferSpec{ProvisioningStrategy: &strategy}}
	b.Generation = 3
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

func of(name string) func(*bufferv1.CapacityBufferSpec) {
	return func(s *bufferv1.CapacityBufferSpec) { s.PodTemplateRef = &bufferv1.LocalObjectRef{Name: name} }
}

func like(group, kind, name string) func(*bufferv1.CapacityBufferSpec) {
	return func(s *bufferv1.CapacityBufferSpec) {
		s.ScalableRef = &bufferv1.ScalableRef{APIGroup: group, Kind: kind, Name: name}
	}
}

func fixed(n int32) func(*bufferv1.CapacityBufferSpec) {
	return func(s *bufferv1.CapacityBufferSpec) { s.Replicas = &n }
}

func percent(n int32) func(*bufferv1.CapacityBufferSpec) {
	return func(s *bufferv1.CapacityBufferSpec) { s.Percentage = &n }
}

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "b"}}

func reasons(b *bufferv1.CapacityBuffer) (ready, provisioning string) {
	of := func(typ string) string {
		c := meta.FindStatusCondition(b.Status.Conditions, typ)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason
	}
	return of(bufferv1.ConditionReadyForProvisioning), of(bufferv1.ConditionProvisioning)
}

func TestResolve(t *testing.T) {
	const resolved, empty = "True Resolved", "False BufferEmpty"
	for _, tt := range []struct {
		name                string
		buffer              *bufferv1.CapacityBuffer
		objects             []client.Object
		replicas            int32 // negative: none
		ready, provisioning string
	}{
		{"of a template", capacityBuffer(of("t"), fixed(2)), []client.Object{podTemplate("t")}, 2, resolved, ""},
		{
			"like a Deployment", capacityBuffer(like("apps", "Deployment", "web"), percent(30)),
			[]client.Object{deployment("web", number(10))},
			3,
			resolved, "",
		},
		{"no group is apps, no replicas are one", capacityBuffer(like("", "Deployment", "web"), percent(200)), []client.Object{deployment("web",
			nil)}, 2, resolved, ""},
		{
			"like a StatefulSet", capacityBuffer(like("apps", "StatefulSet", "db"), fixed(1)),
			[]client.Object{&appsv1.StatefulSet{ObjectMeta: meta1("db"), Spec: appsv1.StatefulSetSpec{Template: template}}},
			1, resolved, "",
		},
		{
			"like a ReplicaSet", capacityBuffer(like("apps", "ReplicaSet", "old"), fixed(1)),
			[]client.Object{&appsv1.ReplicaSet{ObjectMeta: meta1("old"), Spec: appsv1.ReplicaSetSpec{Template: template}}},
			1, resolved, "",
		},
		{"no replicas", capacityBuffer(of("t"), fixed(0)), []client.Object{podTemplate("t")}, 0, resolved, empty},
		{
			"a share of no replicas", capacityBuffer(like("", "Deployment", "web"), percent(50)),
			[]client.Object{deployment("web", number(0))},
			0,
			resolved, empty,
		},
		{"no such template", capacityBuffer(of("t"), fixed(2)), nil, -1, "False PodTemplateNotFound", "False NotReadyForProvisioning"},
		{
			"no such workload", capacityBuffer(like("", "Deployment", "web"), fixed(2)), nil, -1, "False ScalableRefNotFound",
			"False NotReadyForProvisioning",
		},
		{
			"no kind that scales", capacityBuffer(like("", "DaemonSet", "web"), fixed(2)), nil, -1, "False ResolutionFailed",
			"False NotReadyForProvisioning",
		},
		{
			"another group", capacityBuffer(like("example.com", "Deployment", "web"), fixed(2)),
			[]client.Object{deployment("web", nil)},
			-1,
			"False ResolutionFailed", "False NotReadyForProvisioning",
		},
		{"without a reference", capacityBuffer(fixed(2)), nil, -1, "False ResolutionFailed", "False NotReadyForProvisioning"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.objects, tt.buffer)...)
			var w triggered
			r := &Reconciler{Client: f.API, Batch: &w, Log: f.Log, Now: f.Now}
			result, err := r.Reconcile(t.Context(), request)
			if err != nil || result.RequeueAfter != recheckInterval || w != 1 {
				t.Errorf("requeued after %v, triggered %d times, error %v; want %v, once", result.RequeueAfter, w, err, recheckInterval)
			}
			b := capacityBuffer()
			f.Get(b)
			if got := b.Status.Replicas; (got == nil) != (tt.replicas < 0) || got != nil && *got != tt.replicas {
				t.Errorf("replicas %v, want %d", got, tt.replicas)
			}
			if ready, provisioning := reasons(b); ready != tt.ready || provisioning != tt.provisioning {
				t.Errorf("ReadyForProvisioning %q, Provisioning %q; want %q, %q", ready, provisioning, tt.ready, tt.provisioning)
			}
			if got := b.Status.ProvisioningStrategy; got == nil || *got != "somebody's own" {
				t.Errorf("strategy %v", got)
			}
			ofTemplate := tt.buffer.Spec.PodTemplateRef != nil && tt.replicas >= 0
			if got := b.Status.PodTemplateRef; (got != nil) != ofTemplate ||
				ofTemplate && (got.Name != "t" || *b.Status.PodTemplateGeneration != 7) {
				t.Errorf("template %v of generation %v", got, b.Status.PodTemplateGeneration)
			}
			f.Clock = f.Clock.Add(time.Minute)
			before := b.ResourceVersion
			if _, err := r.Reconcile(t.Context(), request); err != nil || w != 2 {
				t.Errorf("again: triggered %d times, error %v", w, err)
			}
			if f.Get(b); b.ResourceVersion != before {
				t.Errorf("written again: %+v", b.Status)
			}
		})
	}
}

// What provisioning has written stays while the buffer has replicas.
func TestProvisioningIsKept(t *testing.T) {
	b := capacityBuffer(of("t"), fixed(2))
	meta.SetStatusCondition(
		&b.Status.Conditions,
		metav1.Condition{Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonFitsExistingCapacity},
	)
	f := controllertest.New(t, b, podTemplate("t"))
	var w triggered
	r := &Reconciler{Client: f.API, Batch: &w, Log: f.Log, Now: f.Now}
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	f.Get(b)
	if _, provisioning := reasons(b); provisioning != "True FitsExistingCapacity" {
		t.Errorf("Provisioning %s", provisioning)
	}
}

// After a conflict over the status the buffer is reconciled again in a second; a deleted buffer triggers provisioning,
// since its capacity is free; an object that cannot be read is an error.
func TestRaces(t *testing.T) {
	f := controllertest.New(t, capacityBuffer(of("t"), fixed(2)), podTemplate("t"))
	var w triggered
	var patch, get error
	api := interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return patch
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, shape := o.(*corev1.PodTemplate); shape && get != nil {
				return get
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r := &Reconciler{Client: api, Batch: &w, Log: f.Log, Now: f.Now}
	patch = apierrors.NewConflict(schema.GroupResource{}, "b", errors.New("changed"))
	if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != conflictRetry || w != 0 {
		t.Errorf("after a conflict: %v, triggered %d times, error %v", result, w, err)
	}
	get = errors.New("connection refused")
	if _, err := r.Reconcile(t.Context(), request); !errors.Is(err, get) {
		t.Errorf("error %v, want %v", err, get)
	}
	f.Do(f.API.Delete(t.Context(), capacityBuffer()))
	if _, err := r.Reconcile(t.Context(), request); err != nil || w != 1 {
		t.Errorf("gone: triggered %d times, error %v", w, err)
	}
}

// A tenant with a quota of one CPU keeps no capacity for ten thousand pods, however many buffers it makes.
func TestBuffersGetNoMoreThanTheQuotaOfTheirNamespace(t *testing.T) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: meta1("q"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("5")}},
		Status: corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"requests.cpu": resource.MustParse("2")}},
	}
	first, second := capacityBuffer(of("t"), fixed(2)), capacityBuffer(of("t"), fixed(10_000))
	first.Name = "a"
	f := controllertest.New(t, podTemplate("t"), quota, first, second)
	r := &Reconciler{Client: f.API, Batch: new(triggered), Log: f.Log, Now: f.Now}
	for _, want := range []struct {
		name, condition string
		replicas        int32
	}{{"a", "False WithinQuotas", 2}, {"b", "True ResourceQuotasAllocated", 1}} {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: want.name}}); err != nil {
			t.Fatal(err)
		}
		b := &bufferv1.CapacityBuffer{}
		if err := f.API.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: want.name}, b); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(b.Status.Conditions, bufferv1.ConditionLimitedByQuotas)
		if c == nil || string(c.Status)+" "+c.Reason != want.condition || b.Status.Replicas == nil || *b.Status.Replicas != want.replicas {
			t.Errorf("buffer %s: %+v, want %d replicas and %s", want.name, b.Status, want.replicas, want.condition)
		}
	}
}

// The replicas of a buffer count what its pods will take: the API server adds to them what their template lacks. A template with pods that
// it would reject is a fault of the buffer until that changes.
func TestReplicasCountWhatTheAPIServerAdds(t *testing.T) {
	runtime := "kata"
	bare := podTemplate("t")
	bare.Template.Spec = corev1.PodSpec{RuntimeClassName: &runtime, Containers: []corev1.Container{{Name: "c"}}}
	defaults := &corev1.LimitRange{ObjectMeta: meta1("defaults"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
	}}}}
	ofCPU := func(s *bufferv1.CapacityBufferSpec) {
		s.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
	}
	f := controllertest.New(t, capacityBuffer(of("t"), ofCPU), bare, defaults)
	var w triggered
	r := &Reconciler{Client: f.API, Batch: &w, Log: f.Log, Now: f.Now}
	resolve := func() *bufferv1.CapacityBuffer {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		b := capacityBuffer()
		f.Get(b)
		return b
	}
	if ready, _ := reasons(resolve()); ready != "False ResolutionFailed" {
		t.Errorf("without the runtime class of its pods: ReadyForProvisioning %s", ready)
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: runtime}, Handler: runtime, Overhead: &nodev1.Overhead{
		PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
	}}
	f.Do(f.API.Create(t.Context(), class))
	b := resolve()
	if ready, _ := reasons(b); ready != "True Resolved" || b.Status.Replicas == nil || *b.Status.Replicas != 4 {
		t.Errorf("ReadyForProvisioning %s, replicas %v; want 4 of 2.5 CPU in 10", ready, b.Status.Replicas)
	}
}
