package transition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func claims(t *testing.T, f *controllertest.Fixture) *Reconciler {
	t.Helper()
	kind := Kind{
		Group: karpv1.Group, Name: "NodeClaim", New: func() client.Object { return &karpv1.NodeClaim{} }, Labels: []string{karpv1.LabelNodePool},
		Ours:       func(o client.Object) bool { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Kind != "Other" },
		Conditions: func(o client.Object) []metav1.Condition { return condition.All(o.(*karpv1.NodeClaim)) },
		Buckets:    prometheus.DefBuckets,
	}
	metrics, err := NewMetrics(prometheus.NewRegistry(), kind, f.Now)
	if err != nil {
		t.Fatal(err)
	}
	return &Reconciler{Client: f.API, Kind: kind, Events: f.Events, Metrics: metrics}
}

func update(f *controllertest.Fixture, change func(*karpv1.NodeClaim)) {
	c := f.Claim("a")
	change(c)
	f.Do(f.API.Status().Update(f.Context(), c))
}

// gauges are the values of the metrics of all objects, each as name{labels without the names of the labels} value.
func gauges(t *testing.T, m *Metrics, name string) []string {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(NewCollector(m.now, []*Metrics{m})); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, metric := range f.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %v", strings.Join(labels, " "), metric.GetGauge().GetValue()))
		}
	}
	return out
}

func TestTransitions(t *testing.T) {
	const count = "operator_nodeclaim_status_condition_count"
	f := controllertest.New(t, controllertest.Claim("a"))
	r := claims(t, f)
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); len(said) > 0 {
		t.Errorf("at first sight it says %q", said)
	}
	of := func(status, reason string) string {
		return "karpenter_sh_nodepool=general name=a namespace= reason=" + reason + " status=" + status + " type=Launched 1"
	}
	if got := gauges(t, r.Metrics, count); !slices.Contains(got, of("Unknown", condition.ReasonAwaitingReconciliation)) {
		t.Errorf("the condition that is there is not counted: %q", got)
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
	const launched = "Normal Launched Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched"
	if said := f.RecordedEvents(); !slices.Contains(said, launched) || len(said) != 1 {
		t.Errorf("said %q", said)
	}
	if got := gauges(t, r.Metrics, count); !slices.Contains(got, of("True", "Launched")) || slices.Contains(got, of("Unknown", "LaunchFailed")) {
		t.Errorf("the gauge shows the status of before: %q", got)
	}
	if got := testutil.ToFloat64(r.Metrics.own.transitions.WithLabelValues("Launched", "True", "Launched", "general")); got != 1 {
		t.Errorf("%v transitions", got)
	}
	if n := samples(t, r.Metrics.own.seconds.WithLabelValues("Launched", "Unknown", "True", "general")); n != 1 {
		t.Errorf("the time from Unknown to True is measured %d times", n)
	}
	shared := strings.Replace(strings.TrimPrefix(of("True", "Launched"), "karpenter_sh_nodepool=general "), "name=", "group=karpenter.sh kind=NodeClaim name=", 1)
	if got := gauges(t, r.Metrics, "operator_status_condition_count"); !slices.Contains(got, shared) {
		t.Errorf("the gauge of all kinds has %q, want %q", got, shared)
	}
	if got := testutil.ToFloat64(r.Metrics.shared.transitions.WithLabelValues("Launched", "True", "Launched")); got != 1 {
		t.Errorf("%v transitions counted for all kinds", got)
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
}

// samples returns how often a histogram was observed.
func samples(t *testing.T, o prometheus.Observer) uint64 {
	t.Helper()
	var m dto.Metric
	if err := o.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

func TestGaugesGrowUntilTheObjectIsGone(t *testing.T) {
	const current, terminating = "operator_nodeclaim_status_condition_current_status_seconds", "operator_nodeclaim_termination_current_time_seconds"
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Launched))
	r := claims(t, f)
	f.Reconcile(r, "a")
	launched := func() bool {
		return slices.Contains(gauges(t, r.Metrics, current),
			"karpenter_sh_nodepool=general name=a namespace= reason=Launched status=True type=Launched 60")
	}
	if launched() || len(gauges(t, r.Metrics, terminating)) > 0 {
		t.Error("time has passed already")
	}
	f.Clock = f.Clock.Add(time.Minute)
	if !launched() {
		t.Errorf("after a minute: %q", gauges(t, r.Metrics, current))
	}
	c := f.Claim("a")
	c.Finalizers = []string{karpv1.FinalizerTermination}
	f.Do(f.API.Update(f.Context(), c))
	f.Do(f.API.Delete(f.Context(), c))
	f.Reconcile(r, "a")
	deleted := f.Claim("a").DeletionTimestamp.Time
	f.Clock = deleted.Add(90 * time.Second)
	if got := gauges(t, r.Metrics, terminating); len(got) != 1 || got[0] != "karpenter_sh_nodepool=general name=a namespace= 90" {
		t.Errorf("a minute and a half after the deletion: %q", got)
	}
	c = f.Claim("a")
	c.Finalizers = nil
	f.Do(f.API.Update(f.Context(), c))
	f.Reconcile(r, "a")
	if got := slices.Concat(gauges(t, r.Metrics, current), gauges(t, r.Metrics, terminating)); len(got) > 0 {
		t.Errorf("of a claim that is gone: %q", got)
	}
	if n := samples(t, r.Metrics.own.termination.WithLabelValues("general")); n != 1 {
		t.Errorf("its termination is measured %d times", n)
	}
}

// An object may have a condition twice, with any bytes for a reason. Each type is counted once.
func TestEachTypeOfConditionIsCountedOnce(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a"))
	r := claims(t, f)
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		ready := metav1.Condition{Type: "Ready\xff", Status: status, Reason: "a\xff\n\"b"}
		r.Kind.Conditions = func(client.Object) []metav1.Condition {
			return []metav1.Condition{ready, ready, {Type: "Ready\xff", Status: "Unknown"}, {Type: "Other", Status: metav1.ConditionFalse}}
		}
		f.Reconcile(r, "a")
		got := strings.Join(gauges(t, r.Metrics, "operator_nodeclaim_status_condition_count"), "; ")
		if strings.Count(got, "name=a") != 2 || !strings.Contains(got, "reason=a\uFFFD\n\"b") || !strings.Contains(got, "status="+string(status)) {
			t.Errorf("counted: %q", got)
		}
	}
}

func TestForeignObjectsAreIgnored(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }))
	r := claims(t, f)
	f.Reconcile(r, "a")
	update(f, func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, controllertest.Start) })
	f.Reconcile(r, "a")
	if said := f.RecordedEvents(); len(said) > 0 || testutil.CollectAndCount(NewCollector(f.Now, []*Metrics{r.Metrics})) > 0 {
		t.Errorf("said %q", said)
	}
}
