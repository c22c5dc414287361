package disruption

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// driftingPool are n nodes with pods, the first of them out of date.
func driftingPool(n, stale int, pool ...func(*karpv1.NodePool)) []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", pool...)}
	for i := range n {
		name, state := fmt.Sprintf("n%d", i), drifted
		if i >= stale {
			state = controllertest.Initialized
		}
		objects = append(
			objects,
			controllertest.Claim(name, state),
			controllertest.ReadyNode(name, asInstance("m.small")),
			controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")),
		)
	}
	return objects
}

func closedNodes(f *controllertest.Fixture) (n int) {
	var list corev1.NodeList
	f.Do(f.API.List(f.Context(), &list))
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].Spec.Taints, karpv1.IsTaintDisrupted) {
			n++
		}
	}
	return n
}

func TestBudgetBoundsDrift(t *testing.T) {
	f := controllertest.New(t, driftingPool(10, 5, budget("30%"))...)
	l := newLoopWithTypes(f)
	for range 5 {
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := closedNodes(f); n != 3 || len(replacements(f)) != 3 {
		t.Errorf("%d nodes tainted, %d replacements, want 3", n, len(replacements(f)))
	}
}

func TestEmptyAndDrifted(t *testing.T) {
	world := func(change func(*karpv1.NodeClaim), pool func(*karpv1.NodePool)) (*controllertest.Fixture, *Loop) {
		f := controllertest.New(
			t,
			controllertest.Class(),
			controllertest.Pool("general", budget("100%"), pool),
			controllertest.Claim("a", drifted, change),
			controllertest.ReadyNode("a", asInstance("m.small")),
		)
		return f, newLoopWithTypes(f)
	}
	consolidatable := func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionConsolidatable, controllertest.Start) }
	soon := func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.After(0) }
	tests := []struct {
		name   string
		change func(*karpv1.NodeClaim)
		pool   func(*karpv1.NodePool)
		reason string
	}{
		{"both, and left alone for long enough", consolidatable, soon, "Empty"},
		{"both, but not left alone yet", func(*karpv1.NodeClaim) {}, soon, "Drifted"},
		{"both, and consolidateAfter Never", func(*karpv1.NodeClaim) {}, func(*karpv1.NodePool) {}, "Drifted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, l := world(tt.change, tt.pool)
			passes(t, l)
			if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionDisruptionReason); c.Reason != tt.reason || len(deletingClaims(f)) != 1 {
				t.Errorf("reason %q, ending %v", c.Reason, deletingClaims(f))
			}
		})
	}
}

// One of several empty nodes gets a pod while they settle: the others go. The node that got it is counted as one that
// did not hold.
func TestOneOfSeveralEmptyNodes(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a", "b", "c")...)
	l, _ := loop(f)
	var log strings.Builder
	l.Log = slog.New(slog.NewTextHandler(&log, nil))
	waitForValidation(t, f, l, func() { f.Do(f.API.Create(t.Context(), controllertest.Pod("web", "node-b"))) })
	if diff := cmp.Diff([]string{"a", "c"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(l.Metrics.FailedValidations.WithLabelValues("empty")); n != 1 {
		t.Errorf("%v failed validations, want 1", n)
	}
	if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("delete", "empty", "empty")); n != 1 {
		t.Errorf("%v commands, want one for all", n)
	}
	if n := strings.Count(log.String(), "disrupting node(s)"); n != 1 {
		t.Errorf("%d log lines about commands, want one for all", n)
	}
}

func TestInstanceTypesChangeBeforeACommandIsDue(t *testing.T) {
	f := controllertest.New(t, oversized()...)
	l := newLoopWithTypes(f)
	waitForValidation(t, f, l, func() {
		p := &karpv1.NodePool{}
		f.Do(f.API.Get(t.Context(), client.ObjectKey{Name: "general"}, p))
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m.large"}},
		}
		f.Do(f.API.Update(t.Context(), p))
	})
	if n := len(replacements(f)); n > 0 {
		t.Errorf("%d replacements of a type that the pool does not launch any more", n)
	}
}

// A command that does not hold any more keeps no other from being found.
func TestAnotherCommandIsFound(t *testing.T) {
	objects := oversized()
	objects = append(
		objects,
		controllertest.Claim("b", old),
		controllertest.ReadyNode("b", asInstance("m.large")),
		controllertest.Pod("api", "node-b", requestsCPU("1500m")),
	)
	f := controllertest.New(t, objects...)
	l := newLoopWithTypes(f)
	waitForValidation(t, f, l, func() {
		p := &corev1.Pod{}
		f.Do(f.API.Get(f.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, p))
		p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		f.Do(f.API.Update(f.Context(), p))
	})
	waitForValidation(t, f, l, nil)
	if !isTainted(f, "node-b") || isTainted(f, "node-a") {
		t.Errorf("the node that is left over is not ended: a tainted %v, b tainted %v", isTainted(f, "node-a"), isTainted(f, "node-b"))
	}
}

func TestSearchLimitedByBudgetsIsRepeated(t *testing.T) {
	f := controllertest.New(t, oversized(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} })...)
	l := newLoopWithTypes(f)
	passes(t, l)
	if !l.Queue.memory.now().Search.At.IsZero() {
		t.Error("a node was left for the budget, and the search rests all the same")
	}
}

// While the replacement is being created nobody provisions for the pods of the old node.
func TestSlowCreationOfReplacements(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a")...)
	l := newLoopWithTypes(f)
	var wanted []int
	l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			wanted = append(wanted, len(snapshotOf(t, l).Pods))
			return api.Create(ctx, o, opts...)
		},
	})
	passes(t, l)
	if diff := cmp.Diff([]int{0}, wanted); diff != "" {
		t.Errorf("pods that want a place while the replacement is created (-want +got):\n%s", diff)
	}
}

func TestStaticPool(t *testing.T) {
	fixed := func(replicas int64, limit string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.Spec.Replicas = &replicas
			p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse(limit)}
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		}
	}
	for limit, want := range map[string]int{"5": 0, "6": 1, "7": 2} {
		t.Run("5 nodes, limit "+limit, func(t *testing.T) {
			f := controllertest.New(t, driftingPool(5, 5, fixed(5, limit))...)
			l := newLoopWithTypes(f)
			for range 4 {
				if _, err := l.pass(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			created := replacements(f)
			if len(created) != want || closedNodes(f) != want {
				t.Fatalf("%d replacements, %d nodes tainted, want %d", len(created), closedNodes(f), want)
			}
			if want == 0 {
				return
			}
			if got := created[0].Annotations[karpv1.AnnotationNominatedPods]; got != "" {
				t.Errorf("created for %q", got)
			}
			// They come up, the old nodes go, and the next are replaced: never more than the limit.
			for i := range created {
				f.Do(initialize(t.Context(), f.API, &created[i], f.Now()))
			}
			runDue(t, l)
			if len(deletingClaims(f)) != want {
				t.Fatalf("ending %v", deletingClaims(f))
			}
			for _, name := range deletingClaims(f) {
				gone := f.Claim(name)
				gone.Finalizers = nil
				f.Do(f.API.Update(t.Context(), gone))
			}
			passes(t, l)
			if n := len(claims(f)); n != 5+want {
				t.Errorf("%d claims, want %d", n, 5+want)
			}
		})
	}
}

func TestStaticPoolsAreIgnoredWithoutTheGate(t *testing.T) {
	replicas := int64(1)
	f := controllertest.New(t, driftingPool(1, 1, budget("100%"), func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas })...)
	l := newLoopWithTypes(f)
	l.StaticCapacity = false
	if passes(t, l); len(replacements(f)) > 0 {
		t.Error("replaced")
	}
}

func TestEventsOnProtectedPods(t *testing.T) {
	since := func(d time.Duration, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			at := after(-int(d.Seconds()))
			p.Status.StartTime, p.Annotations = &at, map[string]string{karpv1.AnnotationDoNotDisrupt: value}
		}
	}
	tests := map[string]struct {
		pod  func(*corev1.Pod)
		want string
	}{
		"the time has passed": {since(31*time.Minute, "30m"), "Normal DoNotDisruptGracePeriodElapsed"},
		"not yet": {
			since(29*time.Minute, "30m"),
			"Normal DoNotDisruptUntil Pod is protected from disruption until 2026-03-14T12:01:00Z",
		},
		"0s":          {since(0, "0s"), "Warning InvalidDoNotDisruptAnnotation"},
		"negative":    {since(0, "-5m"), "Warning InvalidDoNotDisruptAnnotation"},
		"no duration": {since(0, "abc"), "Warning InvalidDoNotDisruptAnnotation"},
		"for ever":    {since(0, "true"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := controllertest.New(t, append(emptyNodes("a"), controllertest.Pod("web", "node-a", tt.pod))...)
			l, _ := loop(f)
			passes(t, l)
			said := slices.DeleteFunc(f.RecordedEvents(), func(s string) bool { return !strings.Contains(s, "DoNotDisrupt") })
			if tt.want == "" && len(said) == 0 || len(said) == 1 && strings.HasPrefix(said[0], tt.want) && tt.want != "" {
				return
			}
			t.Errorf("said %q, want %q", said, tt.want)
		})
	}
}

func TestInvalidDisruptionCostsAreReported(t *testing.T) {
	stating := func(values map[string]string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = values }
	}
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"none":    {nil, ""},
		"valid":   {map[string]string{karpv1.AnnotationDisruptionCost: "-5"}, ""},
		"invalid": {map[string]string{karpv1.AnnotationDisruptionCost: "abc", corev1.PodDeletionCost: "5"}, karpv1.AnnotationDisruptionCost},
		"a float": {map[string]string{corev1.PodDeletionCost: "1.5"}, corev1.PodDeletionCost},
	} {
		t.Run(name, func(t *testing.T) {
			f := controllertest.New(t, append(emptyNodes("a"), controllertest.Pod("web", "node-a", stating(tt.annotations)))...)
			l, _ := loop(f)
			passes(t, l)
			said := slices.DeleteFunc(f.RecordedEvents(), func(s string) bool { return !strings.Contains(s, "InvalidDisruptionCost") })
			if (tt.want == "") != (len(said) == 0) || tt.want != "" && !strings.Contains(said[0], "Annotation "+tt.want+" is ignored") {
				t.Errorf("said %q, want one about %q", said, tt.want)
			}
		})
	}
}

// pausedBreaker is a breaker that holds back one pool.
type pausedBreaker string

func (p pausedBreaker) Limit(_ context.Context, pool string, reason karpv1.DisruptionReason) (pass.StartLimit, bool) {
	return pass.StartLimit{NodePool: pool, Reason: reason, Why: "too many failed"}, pool == string(p)
}

func (pausedBreaker) Started(string, karpv1.DisruptionReason) {}

func (p pausedBreaker) Halted(_ context.Context, pool string, _ karpv1.DisruptionReason, _ time.Time) (string, bool) {
	return "too many failed", pool == string(p)
}

func TestBreaker(t *testing.T) {
	for pool, want := range map[string]int{"general": 0, "other": 1} {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		l.Breaker = pausedBreaker(pool)
		passes(t, l)
		if n := len(replacements(f)); n != want {
			t.Errorf("pool %s pauses: %d replacements, want %d", pool, n, want)
		}
	}
	t.Run("what needs no replacement goes", func(t *testing.T) {
		f := controllertest.New(t, emptyNodes("a")...)
		l, _ := loop(f)
		l.Breaker = pausedBreaker("general")
		if passes(t, l); len(deletingClaims(f)) != 1 {
			t.Error("stays")
		}
	})
}

// A pod has come to the node since the plan was made, and the cache does not show it: nothing is created, and the node
// is opened again.
func TestPodBoundBeforeReplacement(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a")...)
	l := newLoopWithTypes(f)
	l.Live = interceptor.NewClient(f.API, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if pods, ok := list.(*corev1.PodList); ok {
				pods.Items = []corev1.Pod{*controllertest.Pod("late", "node-a", requestsCPU("1"))}
				return nil
			}
			return api.List(ctx, list, opts...)
		},
	})
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRestored(t, f, "a")
	if n := len(replacements(f)); n > 0 {
		t.Errorf("%d replacements", n)
	}
}

// A pod that the scheduler has not looked at yet will take the room that it was driven off its node for: nobody else
// counts on it.
func TestCapacityForArrivingPods(t *testing.T) {
	for arriving, want := range map[bool]int{false: 0, true: 1} {
		objects := append(
			driftedNodes("a"),
			controllertest.Claim("free", controllertest.Initialized),
			controllertest.ReadyNode("free", asInstance("m.small")),
		)
		if arriving {
			objects = append(
				objects,
				controllertest.Pod("moved", "", requestsCPU("1500m"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
			)
		}
		f := controllertest.New(t, objects...)
		l := newLoopWithTypes(f)
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(replacements(f)); n != want || !isTainted(f, "node-a") {
			t.Errorf("a pod arrives %v: %d replacements, want %d; tainted %v", arriving, n, want, isTainted(f, "node-a"))
		}
	}
}
