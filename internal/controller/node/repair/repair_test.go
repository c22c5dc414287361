package repair

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func policies() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 30 * time.Minute},
		{Type: "AcceleratedHardwareReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute},
	}
}

func reconciler(t *testing.T, f *controllertest.Fixture) *Reconciler {
	t.Helper()
	repairs, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Policies: policies(), Events: f.Events, Metrics: f.Metrics, Repairs: repairs, Log: f.Log, Now: f.Now}
}

// has gives a Node a condition that has lasted since some time before the start.
func has(typ corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == typ })
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: typ, Status: status, LastTransitionTime: metav1.NewTime(controllertest.Start.Add(-since)),
		})
	}
}

const ready, gpu = corev1.NodeReady, corev1.NodeConditionType("AcceleratedHardwareReady")

func TestWhenANodeIsRepaired(t *testing.T) {
	for _, tt := range []struct {
		name  string
		node  []func(*corev1.Node)
		claim []func(*karpv1.NodeClaim)
		ends  bool
		again time.Duration
	}{
		{name: "condition type not in policy", node: []func(*corev1.Node){has("DiskPressure", corev1.ConditionTrue, time.Hour)}},
		{name: "status not in policy", node: []func(*corev1.Node){has(gpu, corev1.ConditionUnknown, time.Hour)}},
		{name: "a healthy node", node: []func(*corev1.Node){has(ready, corev1.ConditionTrue, time.Hour)}},
		{name: "27 of 30 min", node: []func(*corev1.Node){has(ready, corev1.ConditionFalse, 27*time.Minute)}, again: 3 * time.Minute},
		{
			name:  "two conditions: the earlier deadline",
			node:  []func(*corev1.Node){has(ready, corev1.ConditionUnknown, 20*time.Minute), has(gpu, corev1.ConditionFalse, 4*time.Minute)},
			again: 6 * time.Minute,
		},
		{name: "exactly 30 min", node: []func(*corev1.Node){has(ready, corev1.ConditionFalse, 30*time.Minute)}, ends: true},
		{name: "silent for 31 min", node: []func(*corev1.Node){has(ready, corev1.ConditionUnknown, 31*time.Minute)}, ends: true},
		{name: "accelerators broken for 10 min", node: []func(*corev1.Node){has(gpu, corev1.ConditionFalse, 10*time.Minute)}, ends: true},
		{
			name: "node DND",
			node: []func(*corev1.Node){has(ready, corev1.ConditionFalse, time.Hour), func(n *corev1.Node) {
				n.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			}}, ends: true,
		},
		{
			name: "of another provider", node: []func(*corev1.Node){has(ready, corev1.ConditionFalse, time.Hour)},
			claim: []func(*karpv1.NodeClaim){func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }},
		},
		{name: "not managed", node: []func(*corev1.Node){has(ready, corev1.ConditionFalse, time.Hour), func(n *corev1.Node) { n.Labels = nil }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The pool's budget allows no disruption, which does not apply to a repair.
			pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} })
			f := controllertest.New(
				t,
				pool,
				controllertest.ReadyNode("a", tt.node...),
				controllertest.Claim("a", append([]func(*karpv1.NodeClaim){controllertest.Initialized}, tt.claim...)...),
				controllertest.Pod("web", "node-a"),
			)
			r := reconciler(t, f)
			got := f.Reconcile(r, "node-a")
			claim := f.Claim("a")
			if terminated := claim.DeletionTimestamp != nil; terminated != tt.ends || got.RequeueAfter != tt.again {
				t.Fatalf("repaired %v, is requeued after %v; want %v, %v", terminated, got.RequeueAfter, tt.ends, tt.again)
			}
			if !tt.ends {
				if at := claim.Annotations[karpv1.AnnotationTerminationTimestamp]; at != "" {
					t.Errorf("deadline %s", at)
				}
				return
			}
			if at := claim.Annotations[karpv1.AnnotationTerminationTimestamp]; at != "2026-03-14T12:00:00Z" {
				t.Errorf("deadline %q", at)
			}
			if f.Counted("unhealthy") != 1 || testutil.CollectAndCount(r.Repairs.Unhealthy) != 1 {
				t.Error("not counted")
			}
			if pods := testutil.ToFloat64(f.Metrics.PodsDisruption.WithLabelValues("unhealthy", "general", "", "", "graceful")); pods != 1 {
				t.Errorf("%v pods are counted", pods)
			}
		})
	}
}

func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name          string
		unhealthy, of int
		poolless      bool
		blocked       bool
		place         string
		events        int
	}{
		{name: "1 of 3", unhealthy: 1, of: 3},
		{name: "2 of 10", unhealthy: 2, of: 10},
		{name: "3 of 10 unhealthy in pool", unhealthy: 3, of: 10, blocked: true, place: "nodepool", events: 3},
		{name: "3 of 10 in cluster for poolless NC", unhealthy: 3, of: 10, poolless: true, blocked: true, place: "cluster", events: 2},
		{name: "1 of 3 in cluster for poolless NC", unhealthy: 1, of: 3, poolless: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{controllertest.Pool("general")}
			for n := range tt.of {
				name := fmt.Sprint("n", n)
				claim, node := controllertest.Claim(
					name,
					controllertest.Initialized,
				), controllertest.ReadyNode(
					name,
					has(ready, corev1.ConditionTrue, time.Hour),
				)
				if n < tt.unhealthy { // the first for long enough, the others have only just fallen silent
					has(ready, corev1.ConditionUnknown, time.Duration(tt.unhealthy-n)*time.Hour/time.Duration(tt.unhealthy))(node)
				}
				if tt.poolless {
					delete(claim.Labels, karpv1.LabelNodePool)
					delete(node.Labels, karpv1.LabelNodePool)
				}
				objects = append(objects, claim, node)
			}
			// Nodes of another pool, all of them ill, decide nothing about this one.
			for n := range 10 {
				if !tt.poolless {
					objects = append(
						objects,
						controllertest.ReadyNode(
							fmt.Sprint("other", n),
							has(ready, corev1.ConditionUnknown, time.Hour),
							func(n *corev1.Node) { n.Labels[karpv1.LabelNodePool] = "other" },
						),
					)
				}
			}
			f := controllertest.New(t, objects...)
			got := f.Reconcile(reconciler(t, f), "node-n0")
			claim := f.Claim("n0")
			if (claim.DeletionTimestamp == nil) != tt.blocked {
				t.Fatalf("repaired: %v", claim.DeletionTimestamp != nil)
			}
			if !tt.blocked {
				return
			}
			if got.RequeueAfter != 5*time.Minute {
				t.Errorf("is requeued after %v", got.RequeueAfter)
			}
			events := f.RecordedEvents()
			if len(events) != tt.events || events[0] != "Warning NodeRepairBlocked more than 20% nodes are unhealthy in the "+tt.place {
				t.Errorf("events %q", events)
			}
			f.Reconcile(reconciler(t, f), "node-n0")
			if events := f.RecordedEvents(); len(events) != 0 {
				t.Errorf("events again: %q", events)
			}
		})
	}
}

// Nodes that have failed together, long ago, are reported one after another.
func TestSicknessThatShowsByAndBy(t *testing.T) {
	objects := []client.Object{controllertest.Pool("general")}
	for n := range 10 {
		name := fmt.Sprint("n", n)
		objects = append(
			objects,
			controllertest.Claim(name, controllertest.Initialized),
			controllertest.ReadyNode(name, has(ready, corev1.ConditionTrue, time.Hour)),
		)
	}
	f := controllertest.New(t, objects...)
	r := reconciler(t, f)
	r.StabilizationWindow = StabilizationWindow
	sick := func(status corev1.ConditionStatus, names ...string) {
		for _, name := range names {
			node := f.Node(name)
			has(ready, status, time.Hour)(node)
			f.Do(f.API.Status().Update(f.Context(), node))
		}
	}
	sick(corev1.ConditionFalse, "node-n0", "node-n1")
	if got := f.Reconcile(r, "node-n0"); got.RequeueAfter != StabilizationWindow {
		t.Errorf("is requeued after %v", got.RequeueAfter)
	}
	f.Clock = f.Clock.Add(StabilizationWindow)
	sick(corev1.ConditionFalse, "node-n2")
	if f.Reconcile(r, "node-n0"); f.Claim("n0").DeletionTimestamp != nil {
		t.Fatal("one of three of ten is repaired")
	}
	sick(corev1.ConditionTrue, "node-n2")
	for _, wait := range []time.Duration{StabilizationWindow, 0} { // what was decided before does not count any more
		if got := f.Reconcile(r, "node-n0"); got.RequeueAfter != wait {
			t.Errorf("is requeued after %v, want %v", got.RequeueAfter, wait)
		}
		f.Clock = f.Clock.Add(StabilizationWindow)
	}
	if f.Claim("n0").DeletionTimestamp == nil {
		t.Error("not repaired when the third is well again")
	}
}

func TestDeadline(t *testing.T) {
	for _, tt := range []struct{ name, before, want string }{
		{"annotation 2 h ahead", "2026-03-14T14:00:00Z", "2026-03-14T12:00:00Z"},
		{"3 min in the past", "2026-03-14T11:57:00Z", "2026-03-14T11:57:00Z"},
		{"no time at all", "soon", "2026-03-14T12:00:00Z"},
		{"none", "", "2026-03-14T12:00:00Z"},
	} {
		for _, deleting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deleting %v", tt.name, deleting), func(t *testing.T) {
				claim := controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
					c.Annotations[karpv1.AnnotationTerminationTimestamp] = tt.before
					if tt.before == "" {
						c.Annotations = nil
					}
				})
				f := controllertest.New(
					t,
					controllertest.Pool("general"),
					claim,
					controllertest.ReadyNode("a", has(ready, corev1.ConditionFalse, time.Hour)),
				)
				if deleting {
					f.Do(f.API.Delete(f.Context(), f.Claim("a")))
				}
				f.Reconcile(reconciler(t, f), "node-a")
				got := f.Claim("a")
				if at := got.Annotations[karpv1.AnnotationTerminationTimestamp]; at != tt.want || got.DeletionTimestamp == nil {
					t.Errorf("deadline %q, want %q; deleted %v", at, tt.want, got.DeletionTimestamp != nil)
				}
				if want := 1; deleting != (f.Counted("unhealthy") != want) {
					t.Errorf("%d deletions are counted", f.Counted("unhealthy"))
				}
			})
		}
	}
}

func TestWhatIsWorthALook(t *testing.T) {
	before := controllertest.ReadyNode("a", has(ready, corev1.ConditionTrue, time.Hour))
	beat := before.DeepCopy()
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(controllertest.Start)
	beat.Annotations = map[string]string{"note": "x"}
	if conditionsChanged(before, beat) {
		t.Error("a heartbeat is")
	}
	for name, change := range map[string]func(*corev1.Node){
		"status": has(ready, corev1.ConditionFalse, time.Hour), "time": has(ready, corev1.ConditionTrue, time.Minute), "one more": has(gpu,
			corev1.ConditionFalse, 0),
	} {
		after := before.DeepCopy()
		change(after)
		if !conditionsChanged(before, after) {
			t.Errorf("%s is not", name)
		}
	}
}

func TestWhatPeopleSee(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Pool("general"),
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a", has(ready, corev1.ConditionUnknown, time.Hour)),
	)
	f.Reconcile(reconciler(t, f), "node-a")
	events := f.RecordedEvents()
	if len(events) != 2 ||
		!strings.HasPrefix(events[0], "Warning NodeRepaired Replacing Node node-a: Ready is Unknown since 2026-03-14T11:00:00Z") {
		t.Errorf("events %q", events)
	}
	for typ, want := range map[string]string{"Ready": "ready", "ContainerRuntimeReady": "container_runtime_ready"} {
		if got := metrics.Snake(typ); got != want {
			t.Errorf("%s is %s in metrics, want %s", typ, got, want)
		}
	}
}

func TestKilledAtEveryWrite(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			return []client.Object{
				controllertest.Pool("general"),
				controllertest.Claim("a", controllertest.Initialized),
				controllertest.ReadyNode("a", has(ready, corev1.ConditionUnknown, time.Hour)),
			}
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			metrics, err := metrics.New(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			repairs, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			return []kill.Actor{{Kind: &corev1.NodeList{}, Reconciler: &Reconciler{
				Client: c, Guard: destroytest.Guard(c, w.Now), Policies: policies(), Events: event.NewRecorder(record.NewFakeRecorder(100), w.Now), Metrics: metrics, Repairs: repairs,
				Log: slog.New(slog.DiscardHandler), Now: w.Now,
			}}}
		},
		Check: func(t *testing.T, w *kill.World) {
			claim := &karpv1.NodeClaim{}
			if err := w.API.Get(t.Context(), client.ObjectKey{Name: "a"}, claim); err != nil || claim.DeletionTimestamp == nil {
				t.Errorf("not repaired: %v", err)
			}
			if claim.Annotations[karpv1.AnnotationTerminationTimestamp] == "" {
				t.Error("without a deadline")
			}
			claim.Annotations = nil // the deadline is when it was written, which differs
			if err := w.API.Update(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// The node may recover before a person resumes deletions: a deadline of the past would then cost its pods at the next drain.
func TestWhileDeletionsArePausedAnUnhealthyNodeIsLeftAsItIs(t *testing.T) {
	f := controllertest.New(t, controllertest.ReadyNode("a", has(ready, corev1.ConditionFalse, time.Hour)), controllertest.Claim("a", controllertest.Initialized))
	r := reconciler(t, f)
	r.Guard = destroytest.Paused(f.API, f.Now, "general")
	before := f.Claim("a").ResourceVersion
	if _, err := f.Try(r, "node-a"); !destroy.IsPaused(err) {
		t.Errorf("error %v", err)
	}
	if claim := f.Claim("a"); claim.ResourceVersion != before {
		t.Errorf("the claim was changed: %v, %+v", claim.Annotations, claim.Status.Conditions)
	}
}
