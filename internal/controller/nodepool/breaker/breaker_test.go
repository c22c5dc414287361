package breaker

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
)

const drifted = karpv1.DisruptionDrifted

func reconciler(t *testing.T, f *controllertest.Fixture, threshold int) *Reconciler {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &Reconciler{Client: f.API, Rules: Rules{Threshold: threshold}, Events: f.Events, Metrics: metrics, Log: f.Log, Now: f.Now}
}

// replacement is a launched claim of image ami-bad that replaces another, for drift.
func replacement(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	return controllertest.Claim(name, append([]func(*karpv1.NodeClaim){controllertest.Launched, func(c *karpv1.NodeClaim) {
		c.Annotations[karpv1.AnnotationLaunchReason] = string(drifted)
		c.Status.ImageID = "ami-bad"
	}}, change...)...)
}

func three() []client.Object {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Generation, p.UID = 1, "pool"
		for _, typ := range p.ConditionTypes().Dependents {
			condition.SetTrue(p, typ, controllertest.Start)
		}
	})
	class := controllertest.Class(func(c *awsv1.EC2NodeClass) {
		c.UID = "class"
		c.Status.AMIs = []awsv1.AMI{{ID: "ami-bad"}}
	})
	return []client.Object{
		pool,
		class,
		replacement("a"),
		replacement("b"),
		replacement("c"),
		controllertest.Claim("launched-for-pods", controllertest.Launched),
	}
}

func paused(f *controllertest.Fixture) (reason, message string) {
	pool := controllertest.Pool("general")
	f.Get(pool)
	c, ok := condition.Get(pool, karpv1.ConditionDisruptionPaused)
	if !ok {
		return "", ""
	}
	return c.Reason, c.Message
}

func TestDriftToABadImagePauses(t *testing.T) {
	f := controllertest.New(t, three()...)
	r, b := reconciler(t, f, 3), New(f.API, Rules{Threshold: 3}, f.Now)
	if got := f.Reconcile(r, "general"); got.RequeueAfter != 10*time.Minute {
		t.Errorf("is requeued after %v", got.RequeueAfter)
	}
	if why, open := refused(t, b, "general", drifted); open {
		t.Fatalf("open before anything failed: %s", why)
	}
	began := f.Now()
	if _, halted := b.Halted(f.Context(), "general", drifted, began); halted {
		t.Error("replacements in flight are halted before any failed")
	}
	f.Clock = f.Clock.Add(10 * time.Minute)
	f.Reconcile(r, "general")
	reason, message := paused(f)
	if reason != "Drifted" ||
		!strings.HasPrefix(
			message,
			"3 of the last 3 nodes launched to replace others for reason Drifted did not come up, all of image ami-bad: 3 not registered.",
		) {
		t.Errorf("condition: %s: %s", reason, message)
	}
	if events := f.RecordedEvents(); len(events) != 1 || events[0] != "Warning DisruptionPaused "+message {
		t.Errorf("events: %q", events)
	}
	pool := controllertest.Pool("general")
	if f.Get(pool); !condition.IsReady(pool) {
		t.Error("the pool is not ready for it: pending pods get no nodes")
	}
	if v := testutil.ToFloat64(r.Metrics.Paused.WithLabelValues("general", "Drifted")); v != 1 {
		t.Errorf("gauge is %v", v)
	}
	if v := testutil.ToFloat64(r.Metrics.Replacements.WithLabelValues("general", "Drifted", "failed")); v != 3 {
		t.Errorf("%v failures are counted", v)
	}
	// Another process, which has seen nothing of this.
	next := New(f.API, Rules{Threshold: 3}, f.Now)
	if why, open := refused(t, next, "general", drifted); !open || why != message {
		t.Errorf("after a restart: open %v, %s", open, why)
	}
	if _, open := refused(t, next, "general", karpv1.DisruptionUnderutilized); open {
		t.Error("another reason pauses, too")
	}
	if why, halted := next.Halted(f.Context(), "general", drifted, began); !halted || why != message {
		t.Errorf("replacements in flight: halted %v, %s", halted, why)
	}
	if _, halted := next.Halted(f.Context(), "general", drifted, f.Now().Add(15*time.Minute)); halted {
		t.Error("the one that is tried is halted")
	}
	if _, halted := next.Halted(f.Context(), "general", karpv1.DisruptionUnderutilized, began); halted {
		t.Error("replacements in flight for another reason are halted")
	}
	if _, open := refused(t, next, "other", drifted); open {
		t.Error("a pool that does not exist holds back something")
	}
	// The image is replaced.
	class := controllertest.Class()
	f.Get(class)
	class.Status.AMIs = []awsv1.AMI{{ID: "ami-good"}}
	f.Do(f.API.Status().Update(f.Context(), class))
	f.Clock = f.Clock.Add(time.Minute)
	f.Reconcile(r, "general")
	if reason, _ := paused(f); reason != "" {
		t.Errorf("still pauses: %s", reason)
	}
	if _, open := refused(t, next, "general", drifted); open {
		t.Error("still open")
	}
	if _, halted := next.Halted(f.Context(), "general", drifted, began); halted {
		t.Error("still halted")
	}
	if events := f.RecordedEvents(); len(events) != 1 || !strings.HasPrefix(events[0], "Normal DisruptionResumed") {
		t.Errorf("events: %q", events)
	}
	if n := testutil.CollectAndCount(r.Metrics.Paused); n != 0 {
		t.Errorf("%d series of the gauge are left", n)
	}
}

func TestOneProbeAtATime(t *testing.T) {
	f := controllertest.New(t, three()...)
	r, b := reconciler(t, f, 3), New(f.API, Rules{Threshold: 3}, f.Now)
	f.Clock = f.Clock.Add(10 * time.Minute)
	f.Reconcile(r, "general")
	open := func(want bool, when string) {
		t.Helper()
		if why, open := refused(t, b, "general", drifted); open != want {
			t.Errorf("%s: open %v (%s)", when, open, why)
		}
	}
	open(true, "at once")
	f.Clock = f.Clock.Add(15 * time.Minute)
	open(false, "when a probe is due")
	open(false, "when asked again, nobody having begun")
	b.Started("general", drifted)
	open(true, "when the probe has begun, its claim not visible yet")
	f.Do(f.API.Create(f.Context(), replacement("probe", func(c *karpv1.NodeClaim) { c.CreationTimestamp.Time = f.Clock })))
	f.Clock = f.Clock.Add(5 * time.Minute)
	f.Reconcile(r, "general")
	open(true, "while it is under way")
	b = New(f.API, Rules{Threshold: 3}, f.Now)
	open(true, "while it is under way, after a restart")
	probe := f.Claim("probe")
	controllertest.Initialized(probe)
	condition.SetTrue(probe, karpv1.ConditionInitialized, f.Clock)
	f.Do(f.API.Status().Update(f.Context(), probe))
	f.Reconcile(r, "general")
	open(false, "when it has come up")
	if reason, _ := paused(f); reason != "" {
		t.Errorf("condition %s", reason)
	}
}

// The breaker is turned off by a threshold of zero, and forgets what it has events before.
func TestTurnedOff(t *testing.T) {
	f := controllertest.New(t, three()...)
	f.Clock = f.Clock.Add(10 * time.Minute)
	f.Reconcile(reconciler(t, f, 3), "general")
	f.Reconcile(reconciler(t, f, 0), "general")
	if reason, _ := paused(f); reason != "" {
		t.Errorf("condition %s", reason)
	}
	if why, open := refused(t, New(f.API, Rules{Threshold: 3}, f.Now), "general", drifted); open {
		t.Errorf("open: %s", why)
	}
}

// A claim that is deleted before its outcome is recorded counts, too.
func TestClaimsThatAreGone(t *testing.T) {
	objects := three()
	f := controllertest.New(t, objects[:2]...)
	r := reconciler(t, f, 3)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for n := range 3 {
		claim := replacement(fmt.Sprint("gone", n))
		end := controllertest.Start.Add(time.Minute)
		controllertest.Deleting(claim)
		claim.DeletionTimestamp.Time = end
		condition.SetUnknown(claim, karpv1.ConditionRegistered, condition.Because("InstanceEnded", ""), end)
		r.changed(claim, true, q)
	}
	if q.Len() != 1 {
		t.Fatalf("%d pools are enqueued", q.Len())
	}
	f.Clock = f.Clock.Add(2 * time.Minute)
	f.Reconcile(r, "general")
	if reason, _ := paused(f); reason != "Drifted" {
		t.Errorf("condition %q", reason)
	}
	if len(r.deletedClaims("general")) != 0 {
		t.Error("the claims are kept forever")
	}
}

func TestKilledAtEveryWrite(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			objects := three()
			for _, o := range objects[2:] {
				o.(*karpv1.NodeClaim).CreationTimestamp.Time = kill.Start.Add(-9*time.Minute - 50*time.Second)
			}
			return objects
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			metrics, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{
				Client: c, Rules: Rules{Threshold: 3}, Events: event.NewRecorder(record.NewFakeRecorder(100), w.Now), Metrics: metrics,
				Log: slog.New(slog.DiscardHandler), Now: w.Now,
			}
			return []kill.Actor{{Reconciler: r, Kind: &karpv1.NodePoolList{}}}
		},
		Check: func(t *testing.T, w *kill.World) {
			if _, open := refused(t, New(w.API, Rules{Threshold: 3}, w.Now), "general", drifted); !open {
				t.Error("not paused")
			}
		},
	})
}

// refused reports whether no node may be replaced for the reason now, and why.
func refused(t *testing.T, b *Breaker, pool string, reason karpv1.DisruptionReason) (why string, is bool) {
	limit, limited := b.Limit(t.Context(), pool, reason)
	if !limited || limit.Starts > 0 {
		return "", false
	}
	return limit.Why, true
}
