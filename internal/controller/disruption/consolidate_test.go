package disruption

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

func consolidates(p *karpv1.NodePool) {
	p.Spec.Disruption.ConsolidateAfter = karpv1.After(0)
	p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
}

// old nodes have been there for long enough.
func old(c *karpv1.NodeClaim) {
	consolidatableClaim(c)
	c.CreationTimestamp = metav1.NewTime(controllertest.Start.Add(-24 * time.Hour))
}

// oversized is a large node with a small pod.
func oversized(pool ...func(*karpv1.NodePool)) []client.Object {
	return []client.Object{
		controllertest.Class(), controllertest.Pool("general", append([]func(*karpv1.NodePool){consolidates}, pool...)...),
		controllertest.Claim(
			"a",
			old,
		), controllertest.ReadyNode("a", asInstance("m.large")), controllertest.Pod("web", "node-a", requestsCPU("1500m"), labelled),
	}
}

func labelled(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }

// waitForValidation makes one pass, lets what it proposed come of age, and makes another.
func waitForValidation(t *testing.T, f *controllertest.Fixture, l *Loop, meanwhile func()) {
	t.Helper()
	l.ValidationDelay = ValidationDelay
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Clock = f.Clock.Add(ValidationDelay)
	if meanwhile != nil {
		meanwhile()
	}
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConsolidation(t *testing.T) {
	f := controllertest.New(t, oversized()...)
	l := newLoopWithTypes(f)
	l.ValidationDelay = ValidationDelay
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(replacements(f)) > 0 || isTainted(f, "node-a") {
		t.Fatal("acts on a decision that has not settled")
	}
	if got := l.pause(false, nil); got != passInterval {
		t.Errorf("pause %v", got)
	}
	f.Clock = f.Clock.Add(ValidationDelay - time.Second)
	if got := l.pause(false, nil); got != time.Second {
		t.Errorf("pause %v when a proposal is due in a second", got)
	}
	f.Clock = f.Clock.Add(time.Second)
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	created := replacements(f)
	if len(created) != 1 || created[0].Annotations[karpv1.AnnotationLaunchReason] != "Underutilized" || !isTainted(f, "node-a") {
		t.Fatalf("created %v, tainted %v", created, isTainted(f, "node-a"))
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	if want := "ConsolidationCandidate Consolidation candidate: replace: [node-a] -> [1 replacement] (savings: $0.37)"; !strings.Contains(
		said,
		want,
	) {
		t.Errorf("events\n%s\nwant %q", said, want)
	}
	f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
	runDue(t, l)
	if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	counted := l.Metrics.ClaimsDisrupted.WithLabelValues("underutilized", "general", "", "when_empty_or_underutilized", "graceful")
	if n := testutil.ToFloat64(counted); n != 1 {
		t.Errorf("%v claims counted", n)
	}
}

// wantRejected checks that the replacement of node-a was dropped, for a reason that begins so.
func wantRejected(t *testing.T, f *controllertest.Fixture, l *Loop, reason string) {
	t.Helper()
	if len(replacements(f)) > 0 || isTainted(f, "node-a") {
		t.Errorf("created %d, tainted %v", len(replacements(f)), isTainted(f, "node-a"))
	}
	if n := testutil.ToFloat64(l.Metrics.FailedValidations.WithLabelValues("single")); n != 1 {
		t.Errorf("%v failed validations", n)
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(
		said,
		"ConsolidationRejected Consolidation rejected: replace: [node-a] -> [1 replacement], reason: "+reason,
	) {
		t.Errorf("events\n%s", said)
	}
}

func TestConsolidationBecomesInvalid(t *testing.T) {
	tests := []struct {
		name      string
		meanwhile func(f *controllertest.Fixture)
		says      string
	}{
		{"a pod comes", func(f *controllertest.Fixture) {
			c := f.Claim("a")
			condition.Clear(c, karpv1.ConditionConsolidatable, f.Now())
			f.Do(f.API.Status().Update(f.Context(), c))
			f.Do(f.API.Create(f.Context(), controllertest.Pod("more", "node-a", requestsCPU("5"))))
		}, ""},
		{"a pod becomes protected", func(f *controllertest.Fixture) {
			p := &corev1.Pod{}
			f.Do(f.API.Get(f.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, p))
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			f.Do(f.API.Update(f.Context(), p))
		}, "churn"},
		{"a budget for its pods appears", func(f *controllertest.Fixture) {
			zero := intstr.FromInt32(0)
			f.Do(f.API.Create(f.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
				Spec: policyv1.PodDisruptionBudgetSpec{
					MaxUnavailable: &zero,
					Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				},
			}))
		}, "churn"},
		{"the budget of the pool is gone", func(f *controllertest.Fixture) {
			p := &karpv1.NodePool{}
			f.Do(f.API.Get(f.Context(), client.ObjectKey{Name: "general"}, p))
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
			f.Do(f.API.Update(f.Context(), p))
		}, "budget"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, oversized()...)
			l := newLoopWithTypes(f)
			waitForValidation(t, f, l, func() { tt.meanwhile(f) })
			wantRejected(t, f, l, tt.says)
		})
	}
}

// While nothing changes nothing is searched for again, until a while has passed.
func TestFruitlessSearchIsNotRepeated(t *testing.T) {
	f := controllertest.New(
		t,
		oversized(func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty })...)
	l := newLoopWithTypes(f)
	for range 3 {
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l.Queue.memory.now().Search.At != controllertest.Start {
		t.Fatalf("calm since %v", l.Queue.memory.now().Search.At)
	}
	f.Clock = f.Clock.Add(time.Minute)
	if _, err := l.pass(t.Context()); err != nil || l.Queue.memory.now().Search.At != controllertest.Start {
		t.Errorf("searched again at %v, error %v", l.Queue.memory.now().Search.At, err)
	}
	f.Do(f.API.Create(t.Context(), controllertest.Pod("more", "node-a", requestsCPU("1"))))
	if _, err := l.pass(t.Context()); err != nil || l.Queue.memory.now().Search.At != f.Clock {
		t.Errorf("a pod has come: searched at %v, error %v", l.Queue.memory.now().Search.At, err)
	}
	f.Clock = l.Queue.memory.now().Search.RepeatAt()
	if _, err := l.pass(t.Context()); err != nil || l.Queue.memory.now().Search.At != f.Clock {
		t.Errorf("after a while: searched at %v, error %v", l.Queue.memory.now().Search.At, err)
	}
}

// A young node at several times the price that its pods need is replaced as soon as that pays, whatever the interval of searches is. Until
// then the node, an event and the pause of the loop name the instant.
func TestYoungNodeIsReplacedWhenThatPays(t *testing.T) {
	objects := oversized()
	for _, o := range objects {
		if c, isClaim := o.(*karpv1.NodeClaim); isClaim {
			c.CreationTimestamp = metav1.NewTime(controllertest.Start.Add(-10 * time.Second))
		}
	}
	f := controllertest.New(t, objects...)
	l := newLoopWithTypes(f)
	l.ValidationDelay = ValidationDelay
	pass := func() {
		t.Helper()
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	due := l.Queue.memory.now().Search.Due
	if len(l.Queue.memory.now().Proposals) > 0 || !due.After(f.Clock) {
		t.Fatalf("%d proposals, the next search is due at %v", len(l.Queue.memory.now().Proposals), due)
	}
	old := due.Sub(controllertest.Start.Add(-10 * time.Second)).String()
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "Unconsolidatable Node is young: its replacement saves $") ||
		!strings.Contains(said, "once the node is "+old+" old") {
		t.Errorf("events\n%s\nwant one that says the node must be %s old", said, old)
	}
	f.Clock = due.Add(-time.Second)
	pass()
	if len(l.Queue.memory.now().Proposals) > 0 || l.pause(false, nil) != time.Second {
		t.Errorf("a second before: %d proposals, pause %v", len(l.Queue.memory.now().Proposals), l.pause(false, nil))
	}
	f.Clock = due
	pass()
	if len(l.Queue.memory.now().Proposals) != 1 {
		t.Errorf("%d proposals when the replacement pays for itself, want 1", len(l.Queue.memory.now().Proposals))
	}
}

// A search that has taken all its steps stops with what it has found, and is counted. The next pass searches again.
func TestSearchOutOfSteps(t *testing.T) {
	f := controllertest.New(t, oversized()...)
	l := newLoopWithTypes(f)
	l.Consolidation.MaxSteps = 1
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(l.Metrics.Timeouts.WithLabelValues("multi")); n != 1 {
		t.Errorf("%v searches are counted as cut short, want 1", n)
	}
	if l.Queue.memory.now().Search.At != (time.Time{}) {
		t.Error("rests though not everything was looked at")
	}
}

// bursts is a provisioner that states of each call whether a burst of pods is planned.
type bursts struct{ planned []bool }

func (b *bursts) AwaitBurstEnd(context.Context, time.Duration) bool { return true }

func (b *bursts) InBurst() bool {
	if len(b.planned) == 0 {
		return false
	}
	now := b.planned[0]
	b.planned = b.planned[1:]
	return now
}

// A burst of pods stops the search that is in progress, and not the next one: bursts that follow each other do not stop consolidation.
func TestBurstEndsOneSearch(t *testing.T) {
	f := controllertest.New(t, oversized()...)
	l := newLoopWithTypes(f)
	burst := &bursts{planned: []bool{false, false, true, true, true, true}}
	l.Provisioning = burst
	for _, want := range []int{0, 1} {
		if _, err := l.pass(t.Context()); err != nil || len(l.Queue.memory.now().Proposals) != want {
			t.Fatalf("%d proposals, error %v, want %d", len(l.Queue.memory.now().Proposals), err, want)
		}
	}
	if len(burst.planned) != 3 {
		t.Errorf("the second search has asked for bursts: %d answers left, want 3", len(burst.planned))
	}
}

// While many pods wait for nodes nothing is consolidated, for a while. Pods that never get nodes do not keep the others' nodes forever.
func TestManyWaitingPodsPutSearchesOff(t *testing.T) {
	objects := oversized()
	for i := range disrupt.ManyPending {
		pod := controllertest.Pod(fmt.Sprintf("waiting-%d", i), "", requestsCPU("1000"))
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}
		objects = append(objects, pod)
	}
	f := controllertest.New(t, objects...)
	l := newLoopWithTypes(f)
	proposes := func(when string, want bool) {
		t.Helper()
		if _, err := l.pass(t.Context()); err != nil || len(l.Queue.memory.now().Proposals) > 0 != want {
			t.Errorf("%s: %d proposals, error %v, want any: %v", when, len(l.Queue.memory.now().Proposals), err, want)
		}
		l.Queue.memory.change(func(m *pass.Memory) { m.Proposals, m.Search = nil, pass.Search{} })
	}
	proposes("at first", false)
	f.Clock = f.Clock.Add(disrupt.LongestPostponement - time.Second)
	proposes("a while later", false)
	f.Clock = f.Clock.Add(time.Second)
	proposes("they have waited for long", true)
	f.Clock = f.Clock.Add(time.Minute)
	proposes("they still wait", true)

	one := objects[len(objects)-1]
	f.Do(f.API.Delete(t.Context(), one))
	proposes("one is gone", true)
	one.SetResourceVersion("")
	f.Do(f.API.Create(t.Context(), one))
	proposes("many wait again", false)
}

// Killed at any write, a node that is too large is replaced by one, or stays.
func TestConsolidationKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return oversized() },
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			return actors(newLoop(controllertest.New(t), c, newStateWithTypes(c, w.Now), w.Now))
		},
		Others: bootReplacements("a"),
		Check:  wantOneNode,
	})
}

// Nodes are deleted without replacement; a process that dies over it leaves them as they
// were, or finished.
func TestDeletionKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			objects := oversized(func(p *karpv1.NodePool) {
				p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse("1")}
			})
			return append(
				objects,
				controllertest.Claim("b", old),
				controllertest.ReadyNode("b", asInstance("m.large")),
				controllertest.Pod("api", "node-b", requestsCPU("5")),
			)
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			return actors(newLoop(controllertest.New(t), c, newStateWithTypes(c, w.Now), w.Now))
		},
		Check: wantOneNode,
	})
}

// A move that a pool of policy Balanced finds to disturb too much is counted and logged, and no event.
func TestScoresOfPolicyBalanced(t *testing.T) {
	for _, tt := range []struct {
		name, outcome string
		pods          int
	}{{"little is disturbed", "approved", 1}, {"much is disturbed", "rejected", 40}} {
		t.Run(tt.name, func(t *testing.T) {
			stays := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }
			objects := []client.Object{
				controllertest.Class(), controllertest.Pool("general", consolidates,
					func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationBalanced }),
				controllertest.Claim("a", old), controllertest.ReadyNode("a", asInstance("m.large")),
				controllertest.Claim(
					"b",
					old,
				), controllertest.ReadyNode("b", asInstance("m.large")), controllertest.Pod("db", "node-b", requestsCPU("8"), stays),
			}
			for i := range tt.pods {
				objects = append(objects, controllertest.Pod(fmt.Sprint("web-", i), "node-a", requestsCPU("40m")))
			}
			f := controllertest.New(t, objects...)
			l := newLoopWithTypes(f)
			var log strings.Builder
			l.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if _, err := l.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			approved := tt.outcome == "approved"
			if n := testutil.ToFloat64(l.Metrics.Moves.WithLabelValues(tt.outcome, "general", "Balanced")); n != 1 ||
				testutil.CollectAndCount(l.Metrics.Moves) != 1 {
				t.Errorf("%v moves %s, %d series", n, tt.outcome, testutil.CollectAndCount(l.Metrics.Moves))
			}
			if n := testutil.CollectAndCount(l.Metrics.Score.MustCurryWith(prometheus.Labels{"decision": tt.outcome})); n != 1 {
				t.Errorf("%d series of scores", n)
			}
			if said := strings.Contains(strings.Join(f.RecordedEvents(), "\n"), "ConsolidationApproved"); said != approved {
				t.Errorf("an event tells of approval: %v", said)
			}
			for _, want := range []string{
				`msg="consolidation score" nodepool=general`, "nodepool_total_cost=0.8", "disruption_cost=" + fmt.Sprint(tt.pods+1),
				fmt.Sprint("approved=", approved), "decision=replace",
			} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("log\n%s\nwant %q", log.String(), want)
				}
			}
		})
	}
}
