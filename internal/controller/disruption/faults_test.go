package disruption

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// failingState is a cluster state that cannot be read.
type failingState struct {
	*cluster.State
	asked func()
}

func (b failingState) Snapshot(context.Context) (*snapshot.Snapshot, error) {
	b.asked()
	return nil, errors.New("the API server does not answer")
}

// What is due stays due while the API server does not answer. requests are not repeated without a pause.
func TestAPassThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	f := controllertest.New(t)
	state := stateOf(f.API, f.API, f.Now)
	synctest.Test(t, func(t *testing.T) {
		const lasts, most = 10 * time.Second, 11
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		passes := 0
		l := newLoop(f, f.API, state, time.Now)
		l.State = failingState{state, func() {
			if passes++; passes > most {
				cancel()
			}
		}}
		l.Queue.memory.keep(pass.Memory{Proposals: []pass.Proposal{{Due: time.Now()}}})
		if err := l.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if passes < 2 || passes > most {
			t.Errorf("%d passes in %v, want at most %d", passes, lasts, most)
		}
	})
}

// A node that cannot be opened keeps no other closed.
func TestUntaintOrphansPastAnError(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a", tainted),
		controllertest.Claim("b", controllertest.Initialized),
		controllertest.ReadyNode("b", tainted),
	)
	l, state := loop(f)
	refused := errors.New("webhook says no")
	l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "node-a" {
				return refused
			}
			return api.Patch(ctx, o, patch, opts...)
		},
	})
	s, err := state.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.untaintOrphans(t.Context(), s); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if isTainted(f, "node-b") {
		t.Error("node-b is still closed")
	}
}

// free is a node that is out of date, with a pod, beside one that has nothing to do and has been so for long enough.
func free() []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Second)
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	})}
	return append(
		objects,
		controllertest.Claim("a", drifted),
		controllertest.ReadyNode("a", asInstance("m.small")),
		controllertest.Pod("web", "node-a", requestsCPU("1500m")),
		controllertest.Claim("free", consolidatableClaim),
		controllertest.ReadyNode("free", asInstance("m.small")),
	)
}

// A node is terminated because there is room for its pods on another. That one is not terminated for having nothing to do, before
// they have come.
func TestCapacityThatACommandUsesStays(t *testing.T) {
	f := controllertest.New(t, free()...)
	l := newLoopWithTypes(f)
	passes(t, l)
	if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" || len(replacements(f)) > 0 {
		t.Errorf("%d replacements, ending (-want +got):\n%s", len(replacements(f)), diff)
	}
}

// Nodes that have nothing to do are no room for others' pods in the pass that stops them.
func TestCapacityThatWasJustDeleted(t *testing.T) {
	f := controllertest.New(t, free()...)
	a := f.Claim("a")
	condition.Clear(a, karpv1.ConditionDrifted, controllertest.Start)
	f.Do(f.API.Status().Update(t.Context(), a))
	l := newLoopWithTypes(f)
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	a = f.Claim("a")
	drifted(a)
	f.Do(f.API.Status().Update(t.Context(), a))
	if acted, err := l.pass(t.Context()); err != nil || !acted {
		t.Fatalf("acted %v, error %v", acted, err)
	}
	if diff := cmp.Diff([]string{"free"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	passes(t, l)
	if len(replacements(f)) != 1 || !isTainted(f, "node-a") {
		t.Errorf("later: %d replacements, tainted %v", len(replacements(f)), isTainted(f, "node-a"))
	}
}

// static makes a pool one of a fixed size.
func static(p *karpv1.NodePool) {
	replicas := int64(1)
	p.Spec.Replicas = &replicas
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
}

// Nothing can be launched in the pool: no node of it is closed for a replacement that would not come.
func TestStaticPoolThatLaunchesNothing(t *testing.T) {
	tests := map[string]func(*karpv1.NodePool){
		"it is not ready": func(p *karpv1.NodePool) {
			condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("NodeClassNotReady", ""), controllertest.Start)
		},
		"it is being deleted": func(p *karpv1.NodePool) {
			at := after(0)
			p.DeletionTimestamp, p.Finalizers = &at, []string{"foregroundDeletion"}
		},
	}
	for name, pool := range tests {
		t.Run(name, func(t *testing.T) {
			f := controllertest.New(t, driftingPool(1, 1, static, pool)...)
			l := newLoopWithTypes(f)
			passes(t, l)
			if n := len(replacements(f)); n != 0 || isTainted(f, "node-n0") {
				t.Errorf("%d replacements, tainted %v", n, isTainted(f, "node-n0"))
			}
		})
	}
}

// Replacing a node that cannot be replaced is not tried again and again, nor in place of others.
func TestCommandsThatCannotBeStarted(t *testing.T) {
	refused := errors.New("webhook says no")
	tests := []struct {
		name  string
		pool  func(*karpv1.NodePool)
		nodes []string // m fails, and goes first
	}{
		{"the only node of a fixed pool", static, []string{"m"}},
		{"one of two nodes of a pool", budget("100%"), []string{"m", "o"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := append(driftedNodes("n"), controllertest.Pool("bad", tt.pool))
			for i, name := range tt.nodes {
				objects = append(objects, controllertest.Claim(name, drifted, func(c *karpv1.NodeClaim) {
					c.Labels[karpv1.LabelNodePool] = "bad"
					condition.Clear(c, karpv1.ConditionDrifted, controllertest.Start)
					condition.SetTrueWithReason(
						c,
						karpv1.ConditionDrifted,
						condition.Because("AMIDrift", "AMIDrift"),
						controllertest.Start.Add(time.Duration(i-2)*time.Hour),
					)
				}), controllertest.ReadyNode(name, asInstance("m.small"), func(n *corev1.Node) { n.Labels[karpv1.LabelNodePool] = "bad" }),
					controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")))
			}
			f := controllertest.New(t, objects...)
			l := newLoopWithTypes(f)
			tries := 0
			l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if o.GetName() == "node-m" {
						tries++
						return refused
					}
					return api.Patch(ctx, o, patch, opts...)
				},
			})
			for range 12 { // two minutes
				if _, err := l.pass(t.Context()); err != nil && !errors.Is(err, refused) {
					t.Fatal(err)
				}
				f.Clock = f.Clock.Add(passInterval)
			}
			for _, name := range append(tt.nodes[1:], "n") {
				if !isTainted(f, "node-"+name) {
					t.Errorf("node %s waits", name)
				}
			}
			if tries > 3 {
				t.Errorf("tried %d times in two minutes", tries)
			}
		})
	}
}

// A replacement that pods have come to before its command is taken back is a node like any other from then on.
func TestReplacementThatIsKept(t *testing.T) {
	f := controllertest.New(t, twoDriftedNodes()...)
	l := newLoopWithTypes(f)
	passes(t, l)
	created := replacements(f)
	f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
	kept := created[0].Name
	guest := controllertest.Pod("new", "node-"+kept, requestsCPU("1"))
	f.Do(f.API.Create(t.Context(), guest))
	f.Do(f.API.Delete(t.Context(), &created[1]))
	runDue(t, l)
	wantRestored(t, f, "a")
	f.Do(f.API.Delete(t.Context(), guest))
	if _, err := l.Queue.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: created[0].Annotations[karpv1.AnnotationReplacementOf]}}); err != nil {
		t.Fatal(err)
	}
	if f.Claim(kept).DeletionTimestamp != nil {
		t.Error("ended beside all budgets when its last pod went")
	}
}

// What protects a pod protects it from the taking back of its node, too, and from the finishing of one that counts as
// empty.
func TestProtectedPodThatCostsNothing(t *testing.T) {
	protected := func(p *corev1.Pod) {
		p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true", corev1.PodDeletionCost: "-2147483647"}
	}
	t.Run("on a replacement", func(t *testing.T) {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		passes(t, l)
		created := replacements(f)[0]
		condition.SetTrue(&created, karpv1.ConditionRegistered, f.Now())
		created.Status.NodeName = "node-" + created.Name
		f.Do(f.API.Status().Update(t.Context(), &created))
		f.Do(f.API.Create(t.Context(), controllertest.Pod("new", "node-"+created.Name, requestsCPU("1"), protected)))
		f.Clock = f.Clock.Add(time.Hour)
		runDue(t, l)
		wantRestored(t, f, "a")
		if len(deletingClaims(f)) > 0 || f.Claim(created.Name) == nil {
			t.Error("its node is deleted")
		}
	})
	t.Run("bound to an empty node at the last moment", func(t *testing.T) {
		f := controllertest.New(t, emptyNodes("a")...)
		l, _ := loop(f)
		l.Live = interceptor.NewClient(f.API, interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				list.(*corev1.PodList).Items = []corev1.Pod{*controllertest.Pod("web", "node-a", protected)}
				return nil
			},
		})
		passes(t, l)
		if got := deletingClaims(f); len(got) > 0 || isTainted(f, "node-a") {
			t.Errorf("ending %v, tainted %v", got, isTainted(f, "node-a"))
		}
	})
}

// What pools state while a command settles counts, and so does that pods have come to its nodes or gone from them.
func TestChangesBeforeACommandIsDue(t *testing.T) {
	pool := func(change func(*karpv1.NodePool)) func(f *controllertest.Fixture) {
		return func(f *controllertest.Fixture) {
			p := controllertest.Pool("general")
			f.Get(p)
			change(p)
			f.Do(f.API.Update(f.Context(), p))
		}
	}
	tests := []struct {
		name      string
		meanwhile func(f *controllertest.Fixture)
	}{
		{
			"the pool ends only what is empty",
			pool(func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty }),
		},
		{"the pool ends nothing", pool(func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.Never() })},
		{"a pod comes for which there would be room", func(f *controllertest.Fixture) {
			addPodEvent(f, "a")
			f.Do(f.API.Create(f.Context(), controllertest.Pod("more", "node-a", requestsCPU("100m"))))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, oversized()...)
			l := newLoopWithTypes(f)
			waitForValidation(t, f, l, func() { tt.meanwhile(f) })
			wantRejected(t, f, l, "churn")
		})
	}
	t.Run("a pod comes to one of two nodes: the other goes", func(t *testing.T) {
		stays := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }
		objects := append(
			oversized(),
			controllertest.Claim("b", old),
			controllertest.ReadyNode("b", asInstance("m.large")),
			controllertest.Pod("api", "node-b", requestsCPU("1500m")),
			controllertest.Claim(
				"room",
				old,
			),
			controllertest.ReadyNode("room", asInstance("m.large")),
			controllertest.Pod("db", "node-room", requestsCPU("1"), stays),
		)
		f := controllertest.New(t, objects...)
		l := newLoopWithTypes(f)
		waitForValidation(t, f, l, func() {
			addPodEvent(f, "a")
			f.Do(f.API.Create(f.Context(), controllertest.Pod("more", "node-a", requestsCPU("100m"))))
		})
		if diff := cmp.Diff([]string{"b"}, deletingClaims(f)); diff != "" || isTainted(f, "node-a") {
			t.Errorf("a tainted %v, ending (-want +got):\n%s", isTainted(f, "node-a"), diff)
		}
		if n := testutil.ToFloat64(l.Metrics.FailedValidations.WithLabelValues("multi")); n != 1 {
			t.Errorf("%v failed validations", n)
		}
	})
}

// addPodEvent has a claim's node not be left alone for long enough.
func addPodEvent(f *controllertest.Fixture, name string) {
	c := f.Claim(name)
	condition.Clear(c, karpv1.ConditionConsolidatable, f.Now())
	f.Do(f.API.Status().Update(f.Context(), c))
}

// The gauges of a pool are deleted with the pool.
func TestGaugesOfAPoolThatIsGone(t *testing.T) {
	f := controllertest.New(t, append(emptyNodes("a"), controllertest.Pool("other"))...)
	l, _ := loop(f)
	for _, want := range []int{2 * 3, 3} { // pools by reasons
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, gauge := range map[string]*prometheus.GaugeVec{"allowed": l.Metrics.AllowedDisruptions, "consuming": l.Metrics.ConsumingBudgets} {
			if n := testutil.CollectAndCount(gauge); n != want {
				t.Errorf("%s: %d series, want %d", name, n, want)
			}
		}
		f.Do(client.IgnoreNotFound(f.API.Delete(t.Context(), controllertest.Pool("other"))))
	}
}

// Dashboards select by the reason in lower case, as Karpenter 1.15 writes it.
func TestGaugesOfBudgets(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a")...)
	l, _ := loop(f)
	passes(t, l)
	for _, reason := range []string{"empty", "drifted", "underutilized"} {
		if n := testutil.ToFloat64(l.Metrics.AllowedDisruptions.WithLabelValues("general", reason)); n == 0 {
			t.Errorf("no disruption is allowed for %s", reason)
		}
	}
	if n := testutil.CollectAndCount(l.Metrics.AllowedDisruptions); n != 3 {
		t.Errorf("%d series, want one for each reason in lower case", n)
	}
	f.Do(f.API.Delete(t.Context(), controllertest.Pool("general")))
	passes(t, l)
	if n := testutil.CollectAndCount(l.Metrics.AllowedDisruptions) + testutil.CollectAndCount(l.Metrics.Cost); n > 0 {
		t.Errorf("%d series of a pool that is gone", n)
	}
}

// The cost of a pool is that of its nodes, in every pass.
func TestGaugeOfCost(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a", "b")...)
	l := newLoopWithTypes(f)
	passes(t, l)
	if got := testutil.ToFloat64(l.Metrics.Cost.WithLabelValues("general")); got != 0.2 {
		t.Errorf("cost %v $/h, want 0.2: two m.small", got)
	}
}

// The API server stops answering before a command has left any trace but in our own memory, and comes back.
func TestFailedRollbackIsRetried(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a")...)
	l := newLoopWithTypes(f)
	down := true
	away := func() error {
		if down {
			return errors.New("the API server does not answer")
		}
		return nil
	}
	server := interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := away(); err != nil {
				return err
			}
			return api.Patch(ctx, o, patch, opts...)
		},
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := away(); err != nil {
				return err
			}
			return api.Get(ctx, key, o, opts...)
		},
	})
	l.Client, l.Queue.Live = server, server
	if _, err := l.pass(t.Context()); err == nil {
		t.Fatal("no error")
	}
	down = false
	f.Clock = f.Clock.Add(10 * time.Minute)
	passes(t, l)
	if n := len(replacements(f)); n != 1 {
		t.Errorf("%d replacements: the node counts as being disrupted for ever", n)
	}
}

// Another process has closed the node, which the cache does not show. Its command goes on, and nothing is created
// twice.
func TestNodeOfAnothersCommand(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a")...)
	theirs := newLoopWithTypes(f)
	stale := f.Claim("a")
	passes(t, theirs)
	if len(replacements(f)) != 1 {
		t.Fatal("the other has created nothing")
	}
	cache := interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if claim, ok := o.(*karpv1.NodeClaim); ok && key.Name == "a" {
				stale.DeepCopyInto(claim)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if claims, ok := list.(*karpv1.NodeClaimList); ok {
				claims.Items = []karpv1.NodeClaim{*stale.DeepCopy()}
				return nil
			}
			return api.List(ctx, list, opts...)
		},
	})
	l := newLoop(f, cache, newStateWithTypes(cache, f.Now), f.Now)
	l.Live, l.Queue.Live = f.API, f.API
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(replacements(f)); n != 1 || !isTainted(f, "node-a") {
		t.Errorf("%d replacements, tainted %v", n, isTainted(f, "node-a"))
	}
	created := replacements(f)[0]
	f.Do(initialize(t.Context(), f.API, &created, f.Now()))
	runDue(t, theirs)
	if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
		t.Errorf("the other's command, ending (-want +got):\n%s", diff)
	}
}

// A node that cannot be closed keeps the others of its command from being stopped once, not forever.
func TestNodeThatCannotBeTaintedIsExcluded(t *testing.T) {
	stays := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }
	objects := append(
		oversized(),
		controllertest.Claim("b", old),
		controllertest.ReadyNode("b", asInstance("m.large")),
		controllertest.Pod("api", "node-b", requestsCPU("1500m")),
		controllertest.Claim(
			"room",
			old,
		),
		controllertest.ReadyNode("room", asInstance("m.large")),
		controllertest.Pod("db", "node-room", requestsCPU("1"), stays),
	)
	f := controllertest.New(t, objects...)
	l := newLoopWithTypes(f)
	refused := errors.New("webhook says no")
	l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "node-a" {
				return refused
			}
			return api.Patch(ctx, o, patch, opts...)
		},
	})
	for range 6 {
		if _, err := l.pass(t.Context()); err != nil && !errors.Is(err, refused) {
			t.Fatal(err)
		}
		f.Clock = f.Clock.Add(passInterval)
	}
	if diff := cmp.Diff([]string{"b"}, deletingClaims(f)); diff != "" || isTainted(f, "node-a") {
		t.Errorf("a tainted %v, ending (-want +got):\n%s", isTainted(f, "node-a"), diff)
	}
}
