package static

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

func state(f *controllertest.Fixture) *cluster.State {
	return cluster.NewState(cluster.Config{Cache: f.API, Live: f.API, Labels: engine.World(nil).Labels, Now: f.Now})
}

func reconciler(f *controllertest.Fixture) *Reconciler {
	return &Reconciler{
		Client: f.API, Guard: destroytest.Guard(f.API, f.Now),
		State:   state(f),
		Labels:  engine.World(nil).Labels,
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     f.Now,
	}
}

// fixed is pool "general" with a number of nodes; a negative limit is none.
func fixed(replicas, limit int64, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	return controllertest.Pool("general", append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) {
		p.Spec.Replicas = &replicas
		if limit >= 0 {
			p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: *resource.NewQuantity(limit, resource.DecimalSI)}
		}
	}}, change...)...)
}

// live are the names of the claims that are not being deleted.
func live(t *testing.T, f *controllertest.Fixture) []string {
	t.Helper()
	var list karpv1.NodeClaimList
	f.Do(f.API.List(t.Context(), &list))
	var out []string
	for _, c := range list.Items {
		if c.DeletionTimestamp == nil {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

func scale(t *testing.T, f *controllertest.Fixture, replicas int64) {
	t.Helper()
	pool := controllertest.Pool("general")
	f.Get(pool)
	pool.Spec.Replicas = &replicas
	f.Do(f.API.Update(t.Context(), pool))
}

func TestScale(t *testing.T) {
	f := controllertest.New(t, fixed(2, 3))
	r := reconciler(f)
	steps := []struct {
		name     string
		replicas int64
		want     int
		wait     time.Duration
	}{
		{"to two", 2, 2, recheckInterval},
		{"again: nothing to do", 2, 2, recheckInterval},
		{"to five: the limit stops at three", 5, 3, limitedInterval},
		{"again: still three", 5, 3, limitedInterval},
		{"to one: two go", 1, 1, recheckInterval},
		{"again: one stays, though those that go are still there", 1, 1, recheckInterval},
		{"to two: those that go count against the limit", 2, 1, limitedInterval},
	}
	for _, s := range steps {
		scale(t, f, s.replicas)
		result := f.Reconcile(r, "general")
		if got := len(live(t, f)); got != s.want || result.RequeueAfter != s.wait {
			t.Errorf("%s: %d claims, requeued after %v; want %d, %v", s.name, got, result.RequeueAfter, s.want, s.wait)
		}
		keepFinalizers(t, f)
	}
}

// keepFinalizers does what the launch reconciler does: a claim that has been deleted stays until its instance is gone.
func keepFinalizers(t *testing.T, f *controllertest.Fixture) {
	t.Helper()
	var list karpv1.NodeClaimList
	f.Do(f.API.List(t.Context(), &list))
	for i := range list.Items {
		if c := &list.Items[i]; c.DeletionTimestamp == nil && len(c.Finalizers) == 0 {
			c.Finalizers = []string{karpv1.FinalizerTermination}
			f.Do(f.API.Update(t.Context(), c))
		}
	}
}

// A claim of a static pool has everything that the template admits, and no nominated pods.
func TestClaim(t *testing.T) {
	f := controllertest.New(t, fixed(1, -1, func(p *karpv1.NodePool) {
		template := &p.Spec.Template
		template.Labels = map[string]string{"team": "web"}
		template.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		template.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
		}
	}))
	f.Reconcile(reconciler(f), "general")
	claim := f.Claim(live(t, f)[0])
	requirements := []karpv1.Requirement{
		{Key: awsv1.LabelNodeClass, Operator: "In", Values: []string{"default"}},
		{Key: karpv1.LabelNodePool, Operator: "In", Values: []string{"general"}},
		{Key: "team", Operator: "In", Values: []string{"web"}},
		{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"a", "b"}},
	}
	if diff := cmp.Diff(requirements, claim.Spec.Requirements); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
	labels := map[string]string{karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: "default", "team": "web"}
	if diff := cmp.Diff(labels, claim.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(claim.Spec.Taints) != 1 || len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].Name != "general" ||
		claim.Annotations[karpv1.AnnotationNodePoolHash] == "" || len(claim.Spec.Resources.Requests) != 0 {
		t.Errorf("claim %+v", claim)
	}
	if _, nominated := claim.Annotations[karpv1.AnnotationNominatedPods]; nominated {
		t.Error("the claim names pods")
	}
}

func TestPoolsThatAreLeftAlone(t *testing.T) {
	for name, pool := range map[string]*karpv1.NodePool{
		"not of a fixed size": controllertest.Pool("general"),
		"not ready": fixed(2, -1, func(p *karpv1.NodePool) {
			condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("NodeClassNotFound", ""), controllertest.Start)
		}),
		"being deleted": fixed(2, -1, func(p *karpv1.NodePool) {
			p.DeletionTimestamp = controllertest.Pod("now", "").CreationTimestamp.DeepCopy()
			p.Finalizers = []string{"somebody/waits"}
		}),
		"another controller's": fixed(2, -1, func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Group = "example.com" }),
	} {
		f := controllertest.New(t, pool)
		f.Reconcile(reconciler(f), "general")
		if got := live(t, f); len(got) != 0 {
			t.Errorf("%s: claims %v", name, got)
		}
	}
}

// A pool that is not Ready shrinks nevertheless: terminating nodes needs no node class. Which node goes, the pods state
// that are bound to it.
func TestShrinkWhileNotReady(t *testing.T) {
	pool := fixed(1, -1, func(p *karpv1.NodePool) {
		condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("NodeClassNotFound", ""), controllertest.Start)
	})
	f := controllertest.New(
		t,
		pool,
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a"),
		controllertest.Pod("web", "node-a"),
		controllertest.Claim(
			"b",
			controllertest.Initialized,
		),
		controllertest.ReadyNode("b"),
		controllertest.Pod("agent", "node-b", controllertest.OwnedByDaemonSet),
	)
	f.Reconcile(reconciler(f), "general")
	if diff := cmp.Diff([]string{"a"}, live(t, f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A rejected create does not count against the next one, and a create with a lost response is not repeated.
func TestCreateFails(t *testing.T) {
	for _, done := range []bool{false, true} {
		f := controllertest.New(t, fixed(1, 1))
		r := reconciler(f)
		lost := errors.New("connection reset")
		fail := true
		r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
			Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if !fail {
					return api.Create(ctx, o, opts...)
				}
				fail = false
				if done {
					f.Do(api.Create(ctx, o, opts...))
				}
				return lost
			},
		})
		if _, err := f.Try(r, "general"); !errors.Is(err, lost) {
			t.Errorf("error %v, want %v", err, lost)
		}
		f.Reconcile(r, "general")
		if got := live(t, f); len(got) != 1 {
			t.Errorf("the first create took effect %v: claims %v, want one", done, got)
		}
	}
}

// A rejected delete is retried: the node does not count as being deleted.
func TestDeleteFails(t *testing.T) {
	f := controllertest.New(t, fixed(0, -1), controllertest.Claim("a", controllertest.Launched))
	r := reconciler(f)
	refused := errors.New("webhook denied the request")
	fail := true
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if fail {
				fail = false
				return refused
			}
			return api.Delete(ctx, o, opts...)
		},
	})
	r.Guard = destroytest.Guard(r.Client, f.Now)
	if _, err := f.Try(r, "general"); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	f.Reconcile(r, "general")
	if got := live(t, f); len(got) != 0 {
		t.Errorf("claims %v are left", got)
	}
}

// Row 187: what is reserved for claims about to be created counts; returning more than was reserved gives nothing.
func TestReservations(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a"), controllertest.Claim("b"), controllertest.Claim("c"))
	s, pool := state(f), fixed(20, 10)
	reserve := func(want, granted int64) {
		t.Helper()
		if got, err := s.Reserve(t.Context(), pool, want); err != nil || got != granted {
			t.Errorf("reserve %d: %d, %v; want %d", want, got, err, granted)
		}
	}
	reserve(10, 7)
	reserve(1, 0)
	s.Release("general")
	s.Release("general")
	reserve(5, 2)
	for range 20 {
		s.Release("general")
	}
	reserve(20, 7)
}

// Claims of a pool are alike: one that is invalid stands for all, and is not tried again at once.
func TestInvalidPoolOfFixedSizeIsTriedOnceAMinute(t *testing.T) {
	f := controllertest.New(t, fixed(50, -1))
	tried := 0
	r := reconciler(f)
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			tried++
			return apierrors.NewInvalid(schema.GroupKind{Group: karpv1.GroupVersion.Group, Kind: "NodeClaim"}, "general-", field.ErrorList{
				field.Invalid(field.NewPath("spec", "requirements").Index(1), "team a", "must be a label value"),
			})
		},
	})
	result := f.Reconcile(r, "general")
	if tried != 1 || result.RequeueAfter != recheckInterval {
		t.Errorf("tried %d times, again after %v", tried, result.RequeueAfter)
	}
	if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, "Warning NodeClaimInvalid") ||
		!strings.Contains(events, "spec.requirements[1]") {
		t.Errorf("events\n%s", events)
	}
	r.Client = f.API
	f.Reconcile(r, "general")
	if got := len(live(t, f)); got != 50 {
		t.Errorf("%d claims once the pool is valid, want 50", got)
	}
}
