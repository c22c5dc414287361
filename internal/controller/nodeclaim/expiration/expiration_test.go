package expiration

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func TestExpire(t *testing.T) {
	tests := []struct {
		name    string
		after   karpv1.NillableDuration
		age     time.Duration
		change  func(*karpv1.NodeClaim)
		wait    time.Duration
		expires bool
	}{
		{"Never", karpv1.Never(), 10_000 * time.Hour, func(*karpv1.NodeClaim) {}, 0, false},
		{"200 s, 100 s old", karpv1.After(200 * time.Second), 100 * time.Second, func(*karpv1.NodeClaim) {}, 100 * time.Second, false},
		{"at its age", karpv1.After(200 * time.Second), 200 * time.Second, func(*karpv1.NodeClaim) {}, 0, true},
		{
			"do-not-disrupt does not keep it",
			karpv1.After(time.Second),
			time.Hour,
			func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationDoNotDisrupt] = "true" },
			0,
			true,
		},
		{
			"another provider's",
			karpv1.After(time.Second),
			time.Hour,
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" },
			0,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Claim("a", tt.change, func(c *karpv1.NodeClaim) { c.Spec.ExpireAfter = tt.after }))
			f.Clock = f.Clock.Add(tt.age)
			result := f.Reconcile(&Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Metrics: f.Metrics, Log: f.Log, Now: f.Now}, "a")
			if expired := f.Claim("a").DeletionTimestamp != nil; expired != tt.expires || result.RequeueAfter != tt.wait {
				t.Errorf("expired %v, is requeued after %v; want %v, %v", expired, result.RequeueAfter, tt.expires, tt.wait)
			}
		})
	}
}

// The claim has a foreign finalizer, and the cache does not show the first deletion yet.
func TestExpiredTwiceIsCountedOnce(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.Spec.ExpireAfter = karpv1.After(time.Second)
		c.Finalizers = append(c.Finalizers, "example.com/theirs")
	}))
	f.Clock = f.Clock.Add(time.Hour)
	stale := f.Claim("a")
	r := &Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Metrics: f.Metrics, Log: f.Log, Now: f.Now}
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			claim, ok := o.(*karpv1.NodeClaim)
			if !ok {
				return api.Get(ctx, key, o, opts...)
			}
			stale.DeepCopyInto(claim)
			return nil
		},
	})
	if _, err := f.Try(r, "a"); err == nil {
		t.Error("deleted what is being deleted")
	}
	if got := f.Counted("expired"); got != 1 {
		t.Errorf("counted %d times", got)
	}
}

// The node has two application pods and one of a DaemonSet.
func TestPodsOfExpiredNodesAreCounted(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) { c.Spec.ExpireAfter = karpv1.After(time.Second) }),
		controllertest.ReadyNode(
			"a",
		),
		controllertest.Pod("web-1", "node-a"),
		controllertest.Pod("web-2", "node-a"),
		controllertest.Pod("agent", "node-a", controllertest.OwnedByDaemonSet),
		controllertest.Pod("web-3", "node-b"),
	)
	f.Clock = f.Clock.Add(time.Hour)
	f.Reconcile(&Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Metrics: f.Metrics, Log: f.Log, Now: f.Now}, "a")
	if got := testutil.ToFloat64(f.Metrics.PodsDisruption.WithLabelValues("expired", "general", "", "", "graceful")); got != 2 {
		t.Errorf("counted %v pods", got)
	}
}

// fakeKeeper keeps every claim while it has a reason.
type fakeKeeper struct{ why string }

func (k *fakeKeeper) KeepsExpired(context.Context, *karpv1.NodeClaim) (string, error) {
	return k.why, nil
}

// While new nodes of the pool fail, an expired claim stays, with an event.
func TestAnExpiredClaimStaysWhileNewNodesFail(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.ExpireAfter = karpv1.After(time.Second) }))
	f.Clock = f.Clock.Add(time.Hour)
	k := &fakeKeeper{"2 of the last 2 new nodes failed"}
	r := &Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Keeper: k, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}
	if got := f.Reconcile(r, "a"); got.RequeueAfter != time.Minute || f.Claim("a").DeletionTimestamp != nil {
		t.Errorf("is requeued after %v, deleted at %v", got.RequeueAfter, f.Claim("a").DeletionTimestamp)
	}
	want := "Warning DisruptionBlocked Expired, and stays: 2 of the last 2 new nodes failed"
	if events := f.RecordedEvents(); len(events) != 1 || events[0] != want {
		t.Errorf("events %q", events)
	}
	k.why = ""
	if f.Reconcile(r, "a"); f.Claim("a").DeletionTimestamp == nil {
		t.Error("it stays when nodes no longer fail")
	}
}

// A thousand expired claims are tried every 15 seconds while deletions are paused: neither the API server nor the log notices.
func TestExpiredWhileDeletionsArePaused(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
		c.Spec.ExpireAfter = karpv1.After(time.Second)
	}))
	f.Clock = f.Clock.Add(time.Hour)
	var log strings.Builder
	guard, reads := destroytest.Paused(f.API, f.Now, "general"), 0
	guard.Live = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads++
			return api.Get(ctx, key, o, opts...)
		},
	})
	r := destroy.Requeue(&Reconciler{
		Client: f.API, Guard: guard, Metrics: f.Metrics, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: f.Now,
	})
	for range 40 {
		if again := f.Reconcile(r, "a").RequeueAfter; again < 10*time.Second {
			t.Fatalf("tried again after %v", again)
		}
	}
	if f.Claim("a").DeletionTimestamp != nil || reads > 0 || log.Len() > 0 {
		t.Errorf("deleted at %v, %d reads, log %q", f.Claim("a").DeletionTimestamp, reads, log.String())
	}
}
