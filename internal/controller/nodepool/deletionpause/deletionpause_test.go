package deletionpause

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// fakeBudget answers as a test needs it.
type fakeBudget struct {
	paused  error
	ledger  error
	since   time.Time
	resumed string
	forgot  string
}

func (b *fakeBudget) Paused(context.Context, string) error { return b.paused }

func (b *fakeBudget) Resume(_ context.Context, pool *karpv1.NodePool) (bool, error) {
	if b.resumed = pool.Annotations[karpv1.AnnotationResumeDeletions]; b.resumed != "" {
		b.paused = nil
	}
	return b.resumed != "", nil
}

func (b *fakeBudget) Ready(context.Context) (time.Time, error) { return b.since, b.ledger }

func (b *fakeBudget) Forget(_ context.Context, pool string) error {
	b.forgot = pool
	return nil
}

// shown is what a NodePool shows.
type shown struct {
	*controllertest.Fixture
	reconciler *Reconciler
}

func newShown(t *testing.T, b *fakeBudget) shown {
	t.Helper()
	f := controllertest.New(t, controllertest.Pool("general"))
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return shown{f, &Reconciler{Client: f.API, Budget: b, Events: f.Events, Metrics: m, Log: f.Log, Now: f.Now}}
}

func (s shown) pool() *karpv1.NodePool {
	p := controllertest.Pool("general")
	s.Get(p)
	return p
}

// is returns the reason and message of the condition; empty while it is not True, which the metric must agree with.
func (s shown) is(t *testing.T) (string, string) {
	t.Helper()
	c, _ := condition.Get(s.pool(), karpv1.ConditionBlastRadiusExceeded)
	is := c.Status == metav1.ConditionTrue
	if gauge := testutil.ToFloat64(s.reconciler.Metrics.Paused.WithLabelValues("general")); gauge != map[bool]float64{true: 1}[is] {
		t.Errorf("the metric is %v, the condition %v", gauge, c.Status)
	}
	if !is {
		return "", ""
	}
	return c.Reason, c.Message
}

func (s shown) annotate(key, value string) {
	p := s.pool()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	s.Do(s.API.Update(s.Context(), p))
}

func TestAPauseIsShownUntilAPersonResumes(t *testing.T) {
	b := &fakeBudget{paused: &destroy.Paused{Scope: "general", Pause: destroy.Pause{Since: controllertest.Start, Message: "5 nodes"}}}
	s := newShown(t, b)
	for range 100 { // as with every change of the NodePool
		s.Reconcile(s.reconciler, "general")
	}
	if reason, message := s.is(t); reason != reasonExceeded || !strings.Contains(message, "dovetail resume general") {
		t.Errorf("%s: %s", reason, message)
	}
	if events := s.RecordedEvents(); len(events) != 1 || !strings.Contains(events[0], "Warning BlastRadiusExceeded") {
		t.Errorf("events %q", events)
	}
	s.annotate(karpv1.AnnotationResumeDeletions, "now")
	s.Reconcile(s.reconciler, "general")
	if reason, message := s.is(t); reason != "" || b.resumed != "now" {
		t.Errorf("after resuming: %s: %s", reason, message)
	}
	if events := s.RecordedEvents(); len(events) != 1 || !strings.Contains(events[0], "Normal DeletionsResumed") {
		t.Errorf("events %q", events)
	}
}

// The Role of an older chart does not allow to write the ConfigMap: nothing is deleted, which the condition reports within a minute.
func TestALedgerThatIsNotAvailableIsShown(t *testing.T) {
	b := &fakeBudget{ledger: errors.New("write ConfigMap: forbidden"), since: controllertest.Start}
	s := newShown(t, b)
	var result reconcile.Result
	for s.Clock.Sub(controllertest.Start) < time.Minute {
		if result = s.Reconcile(s.reconciler, "general"); result.RequeueAfter <= 0 {
			t.Fatal("the condition stays as it is")
		}
		if reason, _ := s.is(t); reason != "" && s.Clock.Equal(controllertest.Start) {
			t.Error("one request that failed is shown")
		}
		s.Clock = s.Clock.Add(result.RequeueAfter)
	}
	if reason, message := s.is(t); reason != reasonLedger || !strings.Contains(message, "write ConfigMap: forbidden") {
		t.Errorf("%s: %s", reason, message)
	}
	if events := s.RecordedEvents(); len(events) != 1 || !strings.Contains(events[0], "forbidden") {
		t.Errorf("events %q", events)
	}
	b.ledger, b.since = nil, time.Time{}
	s.Reconcile(s.reconciler, "general")
	if reason, message := s.is(t); reason != "" {
		t.Errorf("after the repair: %s: %s", reason, message)
	}
}

// What the budget has read of NodePools is up to a second old, and nothing else has the condition set later.
func TestAnAnnotationThatCannotBeReadIsShownAtOnce(t *testing.T) {
	b := &fakeBudget{}
	s := newShown(t, b)
	s.annotate(karpv1.AnnotationBlastRadius, "many")
	s.Reconcile(s.reconciler, "general")
	if reason, message := s.is(t); reason != reasonInvalid || !strings.Contains(message, `"many" is not a share`) {
		t.Errorf("%s: %s", reason, message)
	}
	b.paused = &destroy.Paused{Scope: "general", Pause: destroy.Pause{Message: "the annotation of a second ago"}}
	s.annotate(karpv1.AnnotationBlastRadius, "20%")
	s.Reconcile(s.reconciler, "general")
	if reason, message := s.is(t); reason != "" {
		t.Errorf("after the correction: %s: %s", reason, message)
	}
}

func TestThePauseOfANodePoolThatIsGoneIsForgotten(t *testing.T) {
	b := &fakeBudget{paused: errors.New("not read")}
	s := newShown(t, b)
	s.reconciler.Metrics.Paused.WithLabelValues("gone").Set(1)
	s.Reconcile(s.reconciler, "gone")
	if n := testutil.CollectAndCount(s.reconciler.Metrics.Paused); b.forgot != "gone" || n != 0 {
		t.Errorf("forgotten %q, %d metrics are left", b.forgot, n)
	}
}
