package transition

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func claims(t *testing.T, f *controllertest.Fixture) *Reconciler {
	metrics, err := NewMetrics(prometheus.NewRegistry(), "NodeClaim")
	if err != nil {
		t.Fatal(err)
	}
	return &Reconciler{
		Client: f.API, Kind: "NodeClaim", New: func() Object { return &karpv1.NodeClaim{} }, Events: f.Events, Metrics: metrics,
		Ours: func(o Object) bool { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Kind != "Other" },
	}
}

func update(f *controllertest.Fixture, change func(*karpv1.NodeClaim)) {
	c := f.Claim("a")
	change(c)
	f.Do(f.API.Status().Update(f.Context(), c))
}

func TestTransitions(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a"))
	r := claims(t, f)
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); len(said) > 0 {
		t.Errorf("at first sight it says %q", said)
	}
	count := func(status, reason string) float64 {
		return testutil.ToFloat64(r.Metrics.count.WithLabelValues("a", karpv1.ConditionLaunched, status, reason))
	}
	if count("Unknown", condition.ReasonAwaitingReconciliation) != 1 {
		t.Error("the condition that is there is not counted")
	}
	at := controllertest.Start.Add(30 * time.Second)
	update(f, func(c *karpv1.NodeClaim) {
		condition.SetUnknown(c, karpv1.ConditionLaunched, condition.Because("LaunchFailed", "boom"), at)
	})
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); len(said) > 0 {
		t.Errorf("another reason for the same status is told: %q", said)
	}
	update(f, func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, at) })
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); !slices.Contains(
		said,
		"Normal Launched Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
	) ||
		len(said) != 1 {
		t.Errorf("said %q", said)
	}
	if count("True", "Launched") != 1 || count("Unknown", "LaunchFailed") != 0 {
		t.Error("the gauge shows the status of before")
	}
	if got := testutil.ToFloat64(r.Metrics.transitions.WithLabelValues("Launched", "True", "Launched")); got != 1 {
		t.Errorf("%v transitions", got)
	}
	// One that is not part of every claim appears.
	update(f, func(c *karpv1.NodeClaim) {
		condition.SetFalse(c, karpv1.ConditionConsistentStateFound, condition.Because("ConsistencyCheckFailed", "half of the memory"), at)
	})
	f.Reconcile(r, "a")
	const want = "Normal ConsistentStateFound Status condition transitioned, Type: ConsistentStateFound, Status: Unknown -> False, Reason: ConsistencyCheckFailed, Message: half of the memory"
	if said := f.RecordedEvents(); !slices.Contains(said, want) || len(said) != 1 {
		t.Errorf("said %q", said)
	}
	c := f.Claim("a")
	c.Finalizers = nil
	f.Do(f.API.Update(f.Context(), c))
	f.Do(f.API.Delete(f.Context(), c))
	f.Reconcile(r, "a")
	if got := testutil.CollectAndCount(r.Metrics.count); got != 0 {
		t.Errorf("%d conditions of a claim that is gone are counted", got)
	}
}

func TestForeignObjectsAreIgnored(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }))
	r := claims(t, f)
	f.Reconcile(r, "a")
	update(f, func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, controllertest.Start) })
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); len(said) > 0 || testutil.CollectAndCount(r.Metrics.count) > 0 {
		t.Errorf("said %q", said)
	}
}
