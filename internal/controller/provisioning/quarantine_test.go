package provisioning

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// matchesSet gives a pod to a ReplicaSet.
func matchesSet(set string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		controls := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: types.UID(set), Controller: &controls},
		}
	}
}

// panickingSolve is an engine that panics over pods with a request for poison.
func panickingSolve(s *snapshot.Snapshot, budget schedule.Budget) schedule.Plan {
	for _, pod := range s.Pods {
		if _, bad := pod.Spec.Containers[0].Resources.Requests["example.com/poison"]; bad {
			var none []int
			none[len(pod.Name)]++
		}
	}
	return schedule.Solve(s, budget)
}

func makePanic(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests["example.com/poison"] = resource.MustParse("1")
}

// nominated are the pods that claims were created for.
func nominated(t *testing.T, f *controllertest.Fixture) []string {
	t.Helper()
	var out []string
	for _, c := range claims(t, f.API) {
		for _, uid := range c.Nominated(karpv1.AnnotationNominatedPods) {
			out = append(out, strings.TrimPrefix(string(uid), "uid-"))
		}
	}
	slices.Sort(out)
	return out
}

// reporter counts panics, and keeps snapshots in dir.
func reporter(f *controllertest.Fixture, dir string, log io.Writer) *panics.Reporter {
	return &panics.Reporter{Count: f.Metrics.EnginePanics, Log: slog.New(slog.NewTextHandler(log, nil)), Snapshots: &panics.Snapshots{
		Dir: dir, Now: f.Now, Write: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "the cluster"); return err },
	}}
}

func TestPodThatMakesTheEnginePanicDoesNotBlockOthers(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"),
		pending("a", matchesSet("shop")), pending("b", matchesSet("shop")), pending("c"), pending("d", matchesSet("cart")),
		pending("bad-1", matchesSet("hostile"), makePanic), pending("bad-2", matchesSet("hostile"), makePanic))
	p, dir := provisioner(f), t.TempDir()
	var log strings.Builder
	p.Solve, p.Panics = panickingSolve, reporter(f, dir, &log)
	run(t, p)
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, nominated(t, f)); diff != "" {
		t.Errorf("claims are for (-want +got):\n%s", diff)
	}
	said := f.RecordedEvents()
	failed := slices.DeleteFunc(slices.Clone(said), func(e string) bool { return !strings.HasPrefix(e, "Warning PlanningFailed") })
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshots %v, %v, want one", files, err)
	}
	if len(failed) != 2 {
		t.Fatalf("events\n%s\nwant one PlanningFailed for each of the two pods", strings.Join(said, "\n"))
	}
	for _, want := range []string{"index out of range", "defect of Dovetail", files[0].Name(), "change what the pod requests", "until 2026-03-14T12:01:00Z"} {
		if !strings.Contains(failed[0], want) {
			t.Errorf("event %q does not say %q", failed[0], want)
		}
	}
	if strings.Contains(strings.Join(said, "\n"), "FailedScheduling") {
		t.Errorf("events\n%s\nthe pods have a second reason", strings.Join(said, "\n"))
	}
	if !strings.Contains(log.String(), "quarantine_test.go") || !strings.Contains(log.String(), "pass=provisioning") {
		t.Errorf("the log has no stack:\n%s", log.String())
	}
	counted := func() int { return int(testutil.ToFloat64(f.Metrics.EnginePanics.WithLabelValues("provisioning"))) }
	if counted() != 1 {
		t.Errorf("counted %d panics, want 1", counted())
	}
	if n := testutil.ToFloat64(f.Metrics.Unschedulable.WithLabelValues("provisioner")); n != 2 {
		t.Errorf("%v pods unschedulable, want the two", n)
	}
	checkQuarantined(t, f, metrics.QuarantinedForPanic, 2)
	checkQuarantined(t, f, metrics.QuarantinedForClaim, 0)
	// The next pass does not begin with a panic again, and goes on serving others.
	f.Do(f.API.Create(t.Context(), pending("e", matchesSet("late"))))
	run(t, p)
	if got := nominated(t, f); !slices.Contains(got, "e") || counted() != 1 {
		t.Errorf("claims for %v, %d panics", got, counted())
	}
	// Once the time is over the pods are tried again; that they panic still costs one search, and others nothing.
	f.Clock = f.Clock.Add(61 * time.Second)
	f.Do(f.API.Create(t.Context(), pending("f", matchesSet("later"))))
	run(t, p)
	if got := nominated(t, f); !slices.Contains(got, "f") || counted() != 2 {
		t.Errorf("claims for %v, %d panics", got, counted())
	}
	// A pod of the same owner that is repaired is planned at once.
	f.Do(f.API.Create(t.Context(), pending("mended", matchesSet("hostile"))))
	run(t, p)
	if got := nominated(t, f); !slices.Contains(got, "mended") || slices.Contains(got, "bad-1") {
		t.Errorf("claims for %v", got)
	}
}

func checkQuarantined(t *testing.T, f *controllertest.Fixture, reason string, want float64) {
	t.Helper()
	if n := testutil.ToFloat64(f.Metrics.Quarantined.WithLabelValues(reason)); n != want {
		t.Errorf("%v pods are left out for %s, want %v", n, reason, want)
	}
}

// The real engine with an API server and a state: whatever a pod requests, the others get their node.
func TestHostilePodsBesideOrdinaryOnes(t *testing.T) {
	requests := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
		}
	}
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Pool("general"),
		pending("a", matchesSet("shop")),
		pending("b", matchesSet("cart")),
		pending("most", matchesSet("h1"), requests(corev1.ResourceCPU, "9223372036854775807")),
		pending("exa", matchesSet("h2"), requests(corev1.ResourceCPU, "1Ei")),
		pending("sum-1", matchesSet("h3"), requests("example.com/gpu", "9223372036854775807")),
		pending("sum-2", matchesSet("h3"), requests("example.com/gpu", "9223372036854775807")),
		pending("peta", matchesSet("h4"), requests(corev1.ResourceMemory, "8E")),
	)
	p := provisioner(f)
	p.Panics = reporter(f, t.TempDir(), io.Discard)
	run(t, p)
	if diff := cmp.Diff([]string{"a", "b"}, nominated(t, f)); diff != "" {
		t.Errorf("claims are for (-want +got):\n%s", diff)
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	if n := strings.Count(said, "PlanningFailed") + strings.Count(said, "FailedScheduling"); n != 5 {
		t.Errorf("%d events, want one for each hostile pod:\n%s", n, said)
	}
}

// Where planning panics whatever is left out, nobody is blamed, and the process goes on: it tries each time, and
// searches less and less.
func TestEngineThatAlwaysPanicsDoesNotStopTheLoop(t *testing.T) {
	b, template := newBuffer(2)
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"), pending("b"), b, template)
	p, _ := bufferProvisioner(f)
	plans, broken := 0, true
	p.Solve = func(s *snapshot.Snapshot, b schedule.Budget) schedule.Plan {
		plans++
		if broken {
			panic("broken")
		}
		return schedule.Solve(s, b)
	}
	p.Panics = reporter(f, t.TempDir(), io.Discard)
	if err := p.runPass(t.Context()); err == nil || !strings.Contains(err.Error(), "whichever pods are left out") {
		t.Errorf("error %v", err)
	}
	before := plans
	if err := p.runPass(t.Context()); err == nil || plans != before+1 {
		t.Errorf("error %v, %d plans, want one try without a search", err, plans-before)
	}
	if got := claims(t, f.API); len(got) > 0 {
		t.Errorf("%d claims for capacity buffers, which have what pods leave", len(got))
	}
	broken = false
	run(t, p)
	if diff := cmp.Diff([]string{"a", "b"}, nominated(t, f)); diff != "" {
		t.Errorf("claims are for (-want +got):\n%s", diff)
	}
}

// panickingState is a state with which something is wrong once.
type panickingState struct {
	clusterState
	broken bool
}

func (b *panickingState) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	if b.broken {
		b.broken = false
		panic("broken")
	}
	return b.clusterState.Snapshot(ctx)
}

// A panic beside the planning neither stops the process nor keeps others from creating claims.
func TestPanicWhileReadingTheClusterIsAnError(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
	p := provisioner(f)
	p.State = &panickingState{clusterState: p.State, broken: true}
	var caught *panics.Panic
	if err := p.runPass(t.Context()); !errors.As(err, &caught) {
		t.Fatalf("error %v", err)
	}
	run(t, p)
	if diff := cmp.Diff([]string{"a"}, nominated(t, f)); diff != "" {
		t.Errorf("claims are for (-want +got):\n%s", diff)
	}
}

func TestBufferThatMakesTheEnginePanicDoesNotBlockOthers(t *testing.T) {
	good, template := newBuffer(2)
	bad := good.DeepCopy()
	bad.Name, bad.UID = "bad", "uid-bad"
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), good, bad, template)
	p, _ := bufferProvisioner(f)
	p.Panics = reporter(f, t.TempDir(), io.Discard)
	p.PlanBuffers = func(s *snapshot.Snapshot, plan schedule.Plan, budget schedule.Budget) buffer.Placement {
		if slices.ContainsFunc(s.Virtual, func(pod *corev1.Pod) bool { return buffer.BufferOf(pod).Name == "bad" }) {
			panic("broken")
		}
		return buffer.Plan(s, plan, budget)
	}
	run(t, p)
	var virtual []string
	for _, c := range claims(t, f.API) {
		for _, uid := range c.Nominated(karpv1.AnnotationNominatedBuffers) {
			virtual = append(virtual, string(uid))
		}
	}
	slices.Sort(virtual)
	if diff := cmp.Diff([]string{"uid-b-1", "uid-b-2"}, virtual); diff != "" {
		t.Errorf("room for (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(f.Metrics.EnginePanics.WithLabelValues("capacity-buffers")); n != 1 {
		t.Errorf("%v panics counted", n)
	}
	if !f.Get(bad) || !strings.Contains(fmt.Sprint(bad.Status.Conditions), "defect of Dovetail") {
		t.Errorf("%s of the buffer: %+v", bufferv1.ConditionProvisioning, bad.Status.Conditions)
	}
}
