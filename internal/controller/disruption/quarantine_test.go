package disruption

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// panicking decides as the engine does, but panics over a Snapshot with a pod of which bad is true.
func panicking(bad func(*corev1.Pod) bool) func(pass.Input) (pass.Decisions, pass.Memory) {
	return func(in pass.Input) (pass.Decisions, pass.Memory) {
		lists := [][]*corev1.Pod{in.Snapshot.Pods}
		for i := range in.Snapshot.Nodes {
			lists = append(lists, in.Snapshot.Nodes[i].Pods)
		}
		if slices.ContainsFunc(lists, func(pods []*corev1.Pod) bool { return slices.ContainsFunc(pods, bad) }) {
			panic("broken")
		}
		return pass.Decide(in)
	}
}

func hasName(name string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Name == name }
}

// twoOversized are two large nodes, each with a small pod.
func twoOversized() []client.Object {
	return append(
		oversized(),
		controllertest.Claim("b", old),
		controllertest.ReadyNode("b", asInstance("m.large")),
		controllertest.Pod("bad", "node-b", requestsCPU("1500m"), labelled),
	)
}

// try makes passes as Start does, with time for what they propose to settle.
func try(t *testing.T, f *controllertest.Fixture, l *Loop) {
	t.Helper()
	l.ValidationDelay = ValidationDelay
	for range 2 {
		if _, err := l.runPass(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.Clock = f.Clock.Add(ValidationDelay)
	}
}

func TestPodThatMakesConsolidationPanicBlocksOnlyItsNode(t *testing.T) {
	f := controllertest.New(t, twoOversized()...)
	l := newLoopWithTypes(f)
	l.Decide, l.Panics = panicking(hasName("bad")), &panics.Reporter{Count: f.Metrics.EnginePanics, Log: f.Log}
	try(t, f, l)
	if got := replacements(f); len(got) != 1 || !isTainted(f, "node-a") || isTainted(f, "node-b") {
		t.Errorf(
			"%d replacements, node-a tainted %v, node-b tainted %v, want node-a replaced only",
			len(got),
			isTainted(f, "node-a"),
			isTainted(f, "node-b"),
		)
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	for _, want := range []string{
		"Warning PlanningFailed Planning with the pod fails (panic: broken)",
		"neither consolidated nor replaced until 2026-03-14T12:01:00Z",
		"DisruptionBlocked Planning with a pod on the node fails",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("events\n%s\nwant %q", said, want)
		}
	}
	if n := testutil.ToFloat64(f.Metrics.EnginePanics.WithLabelValues("disruption")); n != 1 {
		t.Errorf("%v panics counted, want 1", n)
	}
}

// A node with a pod that is left out is not taken for empty.
func TestNodeOfAQuarantinedPodIsNotEmpty(t *testing.T) {
	f := controllertest.New(t, append(emptyNodes("a", "b"), controllertest.Pod("bad", "node-b"))...)
	l, _ := loop(f)
	l.Decide = panicking(hasName("bad"))
	try(t, f, l)
	try(t, f, l)
	if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
}

// A pass that panics whatever is left out stops nothing; the next comes later each time, and all is well when it goes
// through.
func TestDisruptionThatAlwaysPanicsBacksOff(t *testing.T) {
	f := controllertest.New(t, oversized()...)
	l := newLoopWithTypes(f)
	broken := true
	l.Decide = func(in pass.Input) (pass.Decisions, pass.Memory) {
		if broken {
			panic("broken")
		}
		return pass.Decide(in)
	}
	var pauses []time.Duration
	for range 3 {
		acted, err := l.runPass(t.Context())
		if err == nil || !strings.Contains(err.Error(), "whichever pods are left out") {
			t.Fatalf("error %v", err)
		}
		pauses = append(pauses, l.pause(acted, err))
	}
	if diff := cmp.Diff([]time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	broken = false
	try(t, f, l)
	if got := replacements(f); len(got) != 1 {
		t.Errorf("%d replacements", len(got))
	}
}

// rejectingClient is an API server that finds all new claims invalid. It counts them.
func rejectingClient(f *controllertest.Fixture, refused *int) client.Client {
	return interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*karpv1.NodeClaim); !ok {
				return api.Create(ctx, o, opts...)
			}
			*refused++
			return apierrors.NewInvalid(schema.GroupKind{Group: karpv1.GroupVersion.Group, Kind: "NodeClaim"}, o.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("spec", "requirements").Index(2), "team a", "must be a label value"),
			})
		},
	})
}

func TestRejectedReplacementBacksOff(t *testing.T) {
	tests := []struct {
		name    string
		objects []client.Object
	}{
		{"consolidation", oversized()},
		{"drift", driftingPool(1, 1, budget("100%"))},
		{"drift of a pool of fixed size", []client.Object{
			controllertest.Class(), controllertest.Pool("general", budget("100%"), func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64(1)) }),
			controllertest.Claim("a", drifted), controllertest.ReadyNode("a", asInstance("m.small")),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.objects...)
			refused := 0
			l := newLoop(f, rejectingClient(f, &refused), newStateWithTypes(f.API, f.Now), f.Now)
			l.ValidationDelay = ValidationDelay
			pass := func() {
				if _, err := l.runPass(t.Context()); err != nil && !apierrors.IsInvalid(err) {
					t.Fatal(err)
				}
				f.Clock = f.Clock.Add(ValidationDelay)
			}
			for range 2 {
				pass()
			}
			if refused != 1 {
				t.Fatalf("%d replacements refused, want 1", refused)
			}
			if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(
				said,
				"rejects the replacement of the node as invalid: spec.requirements[2]",
			) {
				t.Errorf("events\n%s", said)
			}
			for range 2 {
				pass()
			}
			if refused != 1 {
				t.Errorf("%d replacements refused within a minute, want 1", refused)
			}
			for range 24 {
				pass()
			}
			if refused < 2 || refused > 4 {
				t.Errorf("%d replacements refused within seven minutes, want a few: it is tried again, less and less often", refused)
			}
		})
	}
}
