package reboot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// fakeCloud counts calls and answers with err; a call that succeeds gives the node a new boot ID if boots is set.
type fakeCloud struct {
	calls int
	err   error
	boots func()
	away  bool // the cluster is shifted away from the zone
}

func (c *fakeCloud) Away(string) bool { return c.away }

func (c *fakeCloud) Reboot(context.Context, destroy.Permit) error {
	c.calls++
	if c.err == nil && c.boots != nil {
		c.boots()
	}
	return c.err
}

// world is a node that is to be rebooted.
type world struct {
	*controllertest.Fixture
	t     *testing.T
	cloud *fakeCloud
	r     *Reconciler
}

// requested marks a claim with a reboot that was decided at the start, with a drain of ten minutes.
func requested(c *karpv1.NodeClaim) {
	controllertest.Initialized(c)
	c.Annotations = map[string]string{karpv1.AnnotationRebootTerminationGracePeriod: "10m"}
	err := c.SetReboots(&karpv1.RebootRecord{
		Started: []metav1.Time{metav1.NewTime(controllertest.Start)}, DrainBy: metav1.NewTime(controllertest.Start.Add(10 * time.Minute)),
	})
	if err != nil {
		panic(err)
	}
	condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("Unhealthy", "Unhealthy"), controllertest.Start)
	condition.SetTrueWithReason(c, karpv1.ConditionRebooting, condition.Because(karpv1.RebootRequested, "GPU"), controllertest.Start)
}

func bootID(id string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
}

func newWorld(t *testing.T, claim func(*karpv1.NodeClaim), pods ...client.Object) *world {
	t.Helper()
	w := &world{t: t, cloud: &fakeCloud{}}
	w.Fixture = controllertest.New(t, append([]client.Object{
		controllertest.Pool("general"), controllertest.Claim("a", claim), controllertest.ReadyNode("a", bootID("boot-1")),
	}, pods...)...)
	w.restart()
	return w
}

// restart replaces the controller by a new process.
func (w *world) restart() {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	w.Do(err)
	w.r = &Reconciler{
		Client: w.API, Guard: destroytest.Guard(w.API, w.Now), Live: w.API, Cloud: w.cloud, Events: w.Events, Metrics: metrics, Log: w.Log, Now: w.Now,
		Evictor: &termination.Evictor{Client: w.API, Guard: destroytest.Guard(w.API, w.Now), Events: w.Events, Metrics: w.Fixture.Metrics, Log: w.Log, Now: w.Now},
	}
}

// step reconciles once after so long.
func (w *world) step(after time.Duration) (reconcile.Result, error) {
	w.Clock = w.Clock.Add(after)
	return w.Try(w.r, "a")
}

func (w *world) mustStep(after time.Duration) reconcile.Result {
	w.t.Helper()
	result, err := w.step(after)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// boot gives the node a new boot ID, and states whether its kubelet is Ready.
func (w *world) boot(ready bool) {
	n := w.Node("node-a")
	n.Status.NodeInfo.BootID = "boot-2"
	if !ready {
		controllertest.NotReady(n)
	}
	w.Do(w.API.Status().Update(w.Context(), n))
}

// state is reason and status of the condition Rebooting.
func (w *world) state() string {
	c, _ := condition.Get(w.Claim("a"), karpv1.ConditionRebooting)
	return fmt.Sprintf("%s %s", c.Status, c.Reason)
}

func (w *world) fenced() bool {
	return slices.ContainsFunc(w.Node("node-a").Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyRebooting })
}

func (w *world) wantState(want string) {
	w.t.Helper()
	if got := w.state(); got != want {
		w.t.Fatalf("Rebooting is %s, want %s", got, want)
	}
}

// An empty node: fence, five seconds for the scheduler, the call, the new boot, Ready.
func TestReboot(t *testing.T) {
	w := newWorld(t, requested)
	if result := w.mustStep(0); !w.fenced() || w.cloud.calls != 0 || result.RequeueAfter != MinDrain {
		t.Fatalf("fenced %t, %d calls, again after %v", w.fenced(), w.cloud.calls, result.RequeueAfter)
	}
	w.mustStep(MinDrain)
	w.wantState("True RebootIssued")
	claim := w.Claim("a")
	if got := claim.Annotations[karpv1.AnnotationRebootPreBootID]; got != "boot-1" || w.cloud.calls != 1 {
		t.Errorf("boot ID %q recorded, %d calls", got, w.cloud.calls)
	}
	if c, _ := condition.Get(claim, karpv1.ConditionInitialized); c.Status != metav1.ConditionUnknown || c.Reason != "Rebooting" {
		t.Errorf("Initialized is %s %s", c.Status, c.Reason)
	}
	if w.Node("node-a").Labels[karpv1.LabelInitialized] != "" {
		t.Error("the node is still labeled as initialized")
	}
	w.boot(false)
	w.mustStep(time.Minute)
	w.wantState("True RebootIssued")
	if w.fenced() {
		t.Error("the fence stays after the new boot")
	}
	w.boot(true)
	n := w.Node("node-a")
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	w.Do(w.API.Status().Update(t.Context(), n))
	w.mustStep(time.Minute)
	w.wantState("False RebootSucceeded")
	claim = w.Claim("a")
	if _, left := claim.Annotations[karpv1.AnnotationRebootPreBootID]; left || condition.IsTrue(claim, karpv1.ConditionDisruptionReason) {
		t.Error("traces of the reboot are left")
	}
	if n := testutil.ToFloat64(w.r.Metrics.Reboots.WithLabelValues("succeeded")); n != 1 || w.cloud.calls != 1 {
		t.Errorf("%v counted, %d calls", n, w.cloud.calls)
	}
	if said := strings.Join(w.RecordedEvents(), "\n"); !strings.Contains(said, "Normal RebootObserved") {
		t.Errorf("events %s", said)
	}
}

// Pods leave before the reboot; those that have not by the deadline ride along, and are never forced out.
func TestPodsLeaveBeforeTheReboot(t *testing.T) {
	w := newWorld(t, requested, controllertest.Pod("web", "node-a"))
	w.mustStep(0)
	w.mustStep(9 * time.Minute)
	if w.cloud.calls != 0 {
		t.Fatal("rebooted while a pod was still leaving")
	}
	w.mustStep(time.Minute)
	w.wantState("True RebootIssued")
	if !w.Get(controllertest.Pod("web", "node-a")) {
		t.Error("the pod was forced out")
	}
}

// A process that starts after EC2 was called finds the new boot ID and calls nobody.
func TestRebootIsNotIssuedTwice(t *testing.T) {
	w := newWorld(t, requested)
	w.mustStep(0)
	w.cloud.err = fmt.Errorf("%w: connection lost", cloudprovider.ErrOutcomeUnknown) // the call took effect all the same
	w.mustStep(MinDrain)
	w.restart()
	w.cloud.err = nil
	w.mustStep(time.Minute) // the instance has not booted yet
	w.boot(true)
	w.mustStep(30 * time.Second)
	w.wantState("True RebootIssued")
	w.mustStep(time.Second)
	w.wantState("False RebootSucceeded")
	if w.cloud.calls != 1 {
		t.Errorf("%d calls, want 1", w.cloud.calls)
	}
}

// A call without an answer, of which nothing is seen for two minutes, is repeated; one that EC2 has rejected at once.
func TestCallIsRepeated(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		after time.Duration
		calls int
	}{
		{"no answer, a minute later", cloudprovider.ErrOutcomeUnknown, time.Minute, 1},
		{"no answer, two minutes later", cloudprovider.ErrOutcomeUnknown, 2 * time.Minute, 2},
		{"throttled, a second later", errors.New("throttled"), time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, requested)
			w.mustStep(0)
			w.cloud.err = tc.err
			_, _ = w.step(MinDrain)
			w.restart()
			w.cloud.err = nil
			w.mustStep(tc.after)
			if w.cloud.calls != tc.calls {
				t.Errorf("%d calls, want %d", w.cloud.calls, tc.calls)
			}
		})
	}
}

// A cache that does not show the last call yet leads to no second one.
func TestStaleCacheDoesNotCallAgain(t *testing.T) {
	w := newWorld(t, requested)
	w.mustStep(0)
	stale := w.Claim("a")
	w.cloud.err = cloudprovider.ErrOutcomeUnknown
	w.mustStep(MinDrain)
	a := &attempt{claim: stale, node: w.Node("node-a")}
	var err error
	if a.record, err = stale.Reboots(); err != nil {
		t.Fatal(err)
	}
	if err := w.r.recordCall(t.Context(), a, w.Clock); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
}

// The cluster is shifted away from the zone before EC2 is called: the reboot finishes, and the node stays, with its pods.
func TestNothingIsRebootedInAShiftedZone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		begun bool // the node has been fenced
	}{{"before the fence", false}, {"while pods leave", true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, requested, controllertest.Pod("web", "node-a"))
			if tc.begun {
				w.mustStep(0)
			}
			w.cloud.away = true
			w.restart()
			w.mustStep(time.Minute)
			w.wantState("False RebootFailed")
			claim := w.Claim("a")
			if w.cloud.calls > 0 || w.fenced() || claim.DeletionTimestamp != nil || !condition.IsTrue(claim, karpv1.ConditionInitialized) {
				t.Errorf("%d calls, fenced %t, deleting since %v", w.cloud.calls, w.fenced(), claim.DeletionTimestamp)
			}
			if said := strings.Join(w.RecordedEvents(), "\n"); !strings.Contains(said, "the cluster is shifted away from its zone") {
				t.Errorf("events %s", said)
			}
		})
	}
}

// A shift that begins when EC2 was called already changes nothing: the new boot stops the reboot.
func TestShiftAfterTheCallDoesNotEndAReboot(t *testing.T) {
	w := newWorld(t, requested)
	w.mustStep(0)
	w.cloud.err = cloudprovider.ErrOutcomeUnknown
	w.mustStep(MinDrain)
	w.cloud.away = true
	w.mustStep(time.Minute)
	w.wantState("True RebootRequested")
	w.boot(true)
	w.mustStep(30 * time.Second)
	w.mustStep(time.Second)
	w.wantState("False RebootSucceeded")
}

// A node that cannot be rebooted, or does not come back, is replaced; a restart grants no more time.
func TestNodeThatDoesNotComeBackIsReplaced(t *testing.T) {
	for _, tc := range []struct {
		name   string
		claim  func(*karpv1.NodeClaim)
		err    error
		after  time.Duration // from the call to the end
		result string
		why    string
	}{
		{name: "refused by EC2", err: fmt.Errorf("%w: UnauthorizedOperation", cloudprovider.ErrRebootRefused), result: "provider_error", why: "UnauthorizedOperation"},
		{name: "instance gone", err: cloudprovider.ErrNotFound, result: "provider_error", why: "instance not found"},
		{name: "failing for five minutes", err: errors.New("throttled"), after: 5*time.Minute + time.Second, result: "provider_error", why: "throttled"},
		{name: "no new boot", after: 20*time.Minute + time.Second, result: "recovery_timeout", why: "it has not booted anew in time"},
		{
			name: "no new boot of a metal instance", result: "recovery_timeout", after: 45*time.Minute + time.Second, why: "not booted anew",
			claim: func(c *karpv1.NodeClaim) { c.Labels[corev1.LabelInstanceTypeStable] = "c7i.metal-24xl" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(c *karpv1.NodeClaim) {
				requested(c)
				if tc.claim != nil {
					tc.claim(c)
				}
			})
			w.mustStep(0)
			w.cloud.err = tc.err
			_, _ = w.step(MinDrain)
			if tc.after > 0 {
				if _, _ = w.step(tc.after - 2*time.Second); w.Claim("a").DeletionTimestamp != nil {
					t.Fatal("replaced too early")
				}
				w.restart()
				_, _ = w.step(2 * time.Second)
			}
			claim := w.Claim("a")
			if claim.DeletionTimestamp == nil || w.fenced() {
				t.Fatalf("deleting: %t, fenced: %t", claim.DeletionTimestamp != nil, w.fenced())
			}
			if at, err := claim.TerminationDeadline(); err != nil || at == nil || !at.Equal(w.Clock.Add(10*time.Minute)) {
				t.Errorf("deadline %v (%v), want the bound of the drain", at, err)
			}
			if n := testutil.ToFloat64(w.r.Metrics.Reboots.WithLabelValues(tc.result)); n != 1 {
				t.Errorf("%v counted as %s", n, tc.result)
			}
			if said := strings.Join(w.RecordedEvents(), "\n"); !strings.Contains(said, "Warning RebootFailed") || !strings.Contains(said, tc.why) {
				t.Errorf("events %s", said)
			}
		})
	}
}

// Nobody knows what an invalid request requests: the node stays.
func TestInvalidRequestLeavesTheNode(t *testing.T) {
	for name, change := range map[string]func(*karpv1.NodeClaim){
		"bound":  func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationRebootTerminationGracePeriod] = "-5m" },
		"record": func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationReboot] = "x" },
		"none":   func(c *karpv1.NodeClaim) { delete(c.Annotations, karpv1.AnnotationReboot) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *karpv1.NodeClaim) { requested(c); change(c) })
			w.mustStep(0)
			w.wantState("False RebootFailed")
			if w.cloud.calls != 0 || w.Claim("a").DeletionTimestamp != nil {
				t.Error("acted on an invalid request")
			}
		})
	}
}

// A request without a drain reboots at once.
func TestNoDrain(t *testing.T) {
	w := newWorld(t, func(c *karpv1.NodeClaim) {
		requested(c)
		c.Annotations[karpv1.AnnotationRebootTerminationGracePeriod] = "0s"
	}, controllertest.Pod("web", "node-a"))
	w.mustStep(0)
	w.wantState("True RebootIssued")
}

// Termination decides about a claim that is being deleted.
func TestDeletedClaimIsLeftAlone(t *testing.T) {
	w := newWorld(t, func(c *karpv1.NodeClaim) {
		requested(c)
		controllertest.Deleting(c)
		c.Finalizers = []string{karpv1.FinalizerTermination}
	})
	w.mustStep(time.Hour)
	if w.cloud.calls != 0 || w.fenced() {
		t.Error("rebooted a node that is being terminated")
	}
}
