package termination

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// sum returns what a metric has observed, in seconds.
func sum(t *testing.T, o prometheus.Observer) float64 {
	t.Helper()
	var m dto.Metric
	if err := o.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	if s := m.GetSummary(); s != nil {
		return s.GetSampleSum()
	}
	return m.GetHistogram().GetSampleSum()
}

func TestLifetimeAndTerminationOfANodeAreMeasured(t *testing.T) {
	f := controllertest.New(t, controllertest.ReadyNode("a", controllertest.DeletingNode, closed, func(n *corev1.Node) {
		n.CreationTimestamp = metav1.NewTime(controllertest.Start.Add(-time.Hour))
	}))
	f.Clock = f.Node("node-a").DeletionTimestamp.Add(90 * time.Second)
	f.Reconcile(nodeReconciler(f, &ec2{}), "node-a")
	if f.Node("node-a") != nil {
		t.Fatal("the node is still there")
	}
	lifetime := f.Clock.Sub(controllertest.Start.Add(-time.Hour)).Seconds()
	if got := sum(t, f.Metrics.NodeLifetime.WithLabelValues("general")); got != lifetime {
		t.Errorf("lifetime %v s, want %v", got, lifetime)
	}
	if got := sum(t, f.Metrics.NodeTermination.WithLabelValues("general")); got != 90 {
		t.Errorf("termination took %v s, want 90", got)
	}
}
