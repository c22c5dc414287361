package expiration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// nodes are those of a cluster.
type nodes []snapshot.Node

func (n nodes) Nodes(context.Context) (*snapshot.Snapshot, error) {
	return &snapshot.Snapshot{Nodes: n}, nil
}

// twenty are nodes of the pool that expire in an hour.
func twenty() (out nodes) {
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		out = append(out, snapshot.Node{
			Name: name, Claim: name, ClaimUID: "uid", Pool: "general", Registered: true, Initialized: true, Ready: true,
			CreatedAt: controllertest.Start.Add(-9 * time.Hour), ExpireAfter: 10 * time.Hour,
		})
	}
	return out
}

func world(t *testing.T, annotation string, pool ...func(*karpv1.NodePool)) (*controllertest.Fixture, *Reconciler) {
	t.Helper()
	pool = append(pool, func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.ExpireAfter = karpv1.After(10 * time.Hour)
		if annotation != "" {
			p.Annotations = map[string]string{karpv1.AnnotationExpiration: annotation}
		}
	})
	f := controllertest.New(t, controllertest.Pool("general", pool...), controllertest.Claim("took-5m", func(c *karpv1.NodeClaim) {
		condition.SetTrue(c, karpv1.ConditionInitialized, c.CreationTimestamp.Add(5*time.Minute))
	}))
	behind, err := NewBehind(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return f, &Reconciler{Client: f.API, State: twenty(), Events: f.Events, Behind: behind, Now: f.Now}
}

func poolOf(f *controllertest.Fixture) *karpv1.NodePool {
	p := &karpv1.NodePool{}
	f.Do(f.API.Get(f.Context(), client.ObjectKey{Name: "general"}, p))
	return p
}

func conditions(f *controllertest.Fixture) (behind, unbounded metav1.Condition) {
	behind, _ = condition.Get(poolOf(f), karpv1.ConditionExpirationBehind)
	unbounded, _ = condition.Get(poolOf(f), karpv1.ConditionExpirationUnbounded)
	return behind, unbounded
}

// A node takes 5 minutes to come and 5 to go: by 2 at a time, 12 of 20 go in the hour that is left. The event comes once.
func TestABudgetThatIsTooSmallShows(t *testing.T) {
	f, r := world(t, `{"mode":"Graceful"}`)
	for range 3 {
		if got := f.Reconcile(r, "general"); got.RequeueAfter != time.Minute {
			t.Fatalf("looks again after %s", got.RequeueAfter)
		}
	}
	behind, unbounded := conditions(f)
	want := "8 nodes will not have been replaced by their deadline within the budgets for Drifted, the first at " +
		controllertest.Start.Add(time.Hour).UTC().Format(time.RFC3339) + ", and are deleted then; budgets of 4 nodes at once would do"
	if behind.Status != metav1.ConditionTrue || behind.Message != want {
		t.Errorf("%s %q, want %q", behind.Status, behind.Message, want)
	}
	if unbounded.Status != metav1.ConditionTrue || !strings.Contains(unbounded.Message, "terminationGracePeriod is not set") {
		t.Errorf("unbounded: %+v", unbounded)
	}
	if n := testutil.ToFloat64(r.Behind.WithLabelValues("general")); n != 8 {
		t.Errorf("the gauge is %v", n)
	}
	said := slices.DeleteFunc(f.RecordedEvents(), func(s string) bool { return !strings.Contains(s, "ExpirationBehind") })
	if len(said) != 1 {
		t.Errorf("events %q", said)
	}
	// A larger budget, and a bound for the drain: both conditions go.
	p := poolOf(f)
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "4"}}
	p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	f.Do(f.API.Update(t.Context(), p))
	f.Reconcile(r, "general")
	if behind, unbounded = conditions(f); behind.Status != "" || unbounded.Status != "" {
		t.Errorf("behind %+v, unbounded %+v", behind, unbounded)
	}
}

func TestAnAnnotationThatCannotBeReadShows(t *testing.T) {
	f, r := world(t, `{"mode":"Graceful","lead":"2 days"}`)
	f.Reconcile(r, "general")
	behind, _ := conditions(f)
	if behind.Status != metav1.ConditionUnknown || behind.Reason != "InvalidAnnotation" || !strings.Contains(behind.Message, `lead "2 days"`) {
		t.Errorf("%+v", behind)
	}
	if said := f.RecordedEvents(); !slices.ContainsFunc(said, func(s string) bool {
		return strings.Contains(s, "Warning InvalidAnnotation") && strings.Contains(s, `lead "2 days"`)
	}) {
		t.Errorf("events %q", said)
	}
	p := poolOf(f)
	delete(p.Annotations, karpv1.AnnotationExpiration)
	f.Do(f.API.Update(t.Context(), p))
	f.Reconcile(r, "general")
	if behind, _ = conditions(f); behind.Status != "" || testutil.CollectAndCount(r.Behind) > 0 {
		t.Errorf("after the annotation has gone: %+v", behind)
	}
}

func TestWithoutTheAnnotationNothingIsWritten(t *testing.T) {
	for _, annotation := range []string{"", `{"mode":"Forceful"}`} {
		f, r := world(t, annotation)
		before := poolOf(f).ResourceVersion
		f.Reconcile(r, "general")
		if after := poolOf(f).ResourceVersion; after != before || len(f.RecordedEvents()) > 0 || testutil.CollectAndCount(r.Behind) > 0 {
			t.Errorf("%q: version %s, then %s", annotation, before, after)
		}
	}
}
