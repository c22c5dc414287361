package disruption

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// recordedCommand is a command that an earlier process has started to replace nodes a and b by x.
func recordedCommand(t *testing.T) (candidate, replacement func(*karpv1.NodeClaim)) {
	t.Helper()
	command := karpv1.DisruptionCommand{
		ID: "d-1", Reason: karpv1.DisruptionDrifted, Started: controllertest.Start,
		Candidates: []string{"a", "b"}, Replacements: []string{"x"},
	}
	candidate = func(c *karpv1.NodeClaim) {
		drifted(c)
		if err := c.SetDisruptionCommand(&command); err != nil {
			t.Fatal(err)
		}
	}
	return candidate, func(c *karpv1.NodeClaim) {
		c.Annotations = map[string]string{karpv1.AnnotationReplacementOf: command.ID, karpv1.AnnotationReplaces: "a,b"}
	}
}

func advance(t *testing.T, q *Queue) {
	t.Helper()
	if _, err := q.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "d-1"}}); err != nil {
		t.Fatal(err)
	}
}

// Node a is being deleted when the replacement turns out to be late: a's pods need it, and only b is restored.
func TestARollbackKeepsTheReplacementOfADeletedNode(t *testing.T) {
	candidate, replacement := recordedCommand(t)
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"),
		controllertest.Claim("a", controllertest.Initialized, candidate, controllertest.Deleting), controllertest.ReadyNode("a"),
		controllertest.Claim("b", controllertest.Initialized, candidate), controllertest.ReadyNode("b"),
		controllertest.Claim("x", replacement))
	f.Clock = f.Clock.Add(time.Hour)
	advance(t, newLoopWithTypes(f).Queue)
	wantRestored(t, f, "b")
	if x := f.Claim("x"); x == nil || x.DeletionTimestamp != nil {
		t.Error("the replacement is deleted")
	}
}

// A node that matches its NodePool again, or a pod that got the room it waited for, is not disrupted although its replacement is ready.
func TestAReplacementThatIsNotNeededAnyMore(t *testing.T) {
	candidate, replacement := recordedCommand(t)
	restored := func(c *karpv1.NodeClaim) { condition.Clear(c, karpv1.ConditionDrifted, controllertest.Start) }
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"),
		controllertest.Claim("a", controllertest.Initialized, candidate, restored), controllertest.ReadyNode("a"),
		controllertest.Claim("b", controllertest.Initialized, candidate, restored), controllertest.ReadyNode("b"),
		controllertest.Claim("x", controllertest.Initialized, replacement), controllertest.ReadyNode("x"))
	advance(t, newLoopWithTypes(f).Queue)
	wantRestored(t, f, "a")
	wantRestored(t, f, "b")
	if x := f.Claim("x"); x != nil && x.DeletionTimestamp == nil {
		t.Error("the replacement stays, and runs nothing")
	}
}

// A process that has seen all replacements of a command knows that a missing one was lost, also if an earlier process has created it.
func TestALostReplacementAfterARestart(t *testing.T) {
	for _, seen := range []bool{false, true} {
		candidate, replacement := recordedCommand(t)
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"),
			controllertest.Claim("a", controllertest.Initialized, candidate), controllertest.ReadyNode("a"),
			controllertest.Claim("b", controllertest.Initialized, candidate), controllertest.ReadyNode("b"),
			controllertest.Claim("x", replacement))
		q, want := newLoopWithTypes(f).Queue, 0.0
		if seen {
			advance(t, q)
			want = 1
		}
		f.Do(f.API.Delete(t.Context(), f.Claim("x")))
		advance(t, q)
		wantRestored(t, f, "a")
		if n := testutil.ToFloat64(f.Metrics.QueueFailures.WithLabelValues("replace", "drifted", "")); n != want {
			t.Errorf("seen %v: %v failures, want %v", seen, n, want)
		}
	}
}
