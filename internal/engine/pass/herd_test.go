package pass_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	herdNodes = 1000
	month     = 30 * 24 * time.Hour
)

// herd is a fleet that was launched within an hour, age ago, with expireAfter of 30 days.
func herd(t *testing.T, age time.Duration, annotation string, budgets ...karpv1.Budget) *virtualFleet {
	nodes := make([]snapshot.Node, herdNodes)
	for i := range nodes {
		n := aged(fmt.Sprintf("node-%03d", i), age)
		n.ClaimUID = types.UID(fmt.Sprintf("5d8e1f6a-%04d", i))
		n.CreatedAt, n.ExpireAfter = n.CreatedAt.Add(time.Duration(i)*time.Hour/herdNodes), month
		nodes[i] = n
	}
	s := expiring("", annotation, nodes...)
	pool := s.Pools[0].NodePool
	pool.Spec.Disruption.Budgets = budgets
	pool.Spec.Template.Spec.ExpireAfter = karpv1.After(month)
	return newVirtualFleet(t, s)
}

// left are the nodes that the fleet had at first.
func (f *virtualFleet) left() (n int) {
	for i := range f.s.Nodes {
		if f.s.Nodes[i].CreatedAt.Before(Now()) && !f.s.Nodes[i].Deleting && !f.s.Nodes[i].Disrupting {
			n++
		}
	}
	return n
}

// run goes on in steps until no old node is left, or for so long.
func (f *virtualFleet) run(step, longest time.Duration) {
	for until := f.s.Now.Add(longest); f.left() > 0 && f.s.Now.Before(until); {
		f.step(f.s.Now.Add(step))
	}
}

// In the last fifth of its life the fleet is replaced within its budgets: in the night, a few at a time, and long before expireAfter.
func TestAFleetOfOneAgeExpiresWithinItsBudgets(t *testing.T) {
	day := "0 6 * * *"
	f := herd(t, 24*24*time.Hour-time.Hour, `{"mode":"Graceful"}`, karpv1.Budget{Nodes: "3%"},
		karpv1.Budget{Nodes: "0", Schedule: &day, Duration: &metav1.Duration{Duration: 18 * time.Hour}})
	f.run(20*time.Minute, 7*24*time.Hour)
	if f.left() > 0 || len(f.deleted) > 0 || len(f.started) != herdNodes {
		t.Fatalf("%d nodes are left, %d were deleted after their deadline, %d were replaced", f.left(), len(f.deleted), len(f.started))
	}
	perHour := map[time.Time]int{}
	var first, last time.Time
	for _, s := range f.started {
		if s.reason != karpv1.DisruptionExpired || s.at.UTC().Hour() >= 6 {
			t.Fatalf("node %s went for %s at %s", s.node, s.reason, s.at)
		}
		perHour[s.at.Truncate(time.Hour)]++
		if first.IsZero() || s.at.Before(first) {
			first = s.at
		}
		if s.at.After(last) {
			last = s.at
		}
	}
	if most := slices.Max(slices.Collect(maps.Values(perHour))); most > 30*6 || last.Sub(first) < 24*time.Hour {
		t.Errorf("within an hour %d went, all of them from %s to %s", most, first, last)
	}
	t.Logf("%d nodes went in %d hours of %s, at most %d in an hour", len(f.started), len(perHour), last.Sub(first),
		slices.Max(slices.Collect(maps.Values(perHour))))
}

// A budget that is too small for the window leaves the rest to the deadline: a tenth of the pool goes in a minute then, not more.
func TestTheCeilingHoldsForAFleetThatIsBehind(t *testing.T) {
	f := herd(t, month-2*time.Hour, `{"mode":"Graceful","lead":"2h","jitter":"0%"}`, karpv1.Budget{Nodes: "2"})
	for i := range f.s.Nodes {
		f.s.Nodes[i].CreatedAt = f.s.Now.Add(2*time.Hour - month)
	}
	deadline := f.s.Now.Add(2 * time.Hour)
	f.run(10*time.Minute, 2*time.Hour-10*time.Minute)
	soft := len(f.started)
	if soft < 10 || soft > 30 || len(f.deleted) > 0 {
		t.Fatalf("before the deadline %d were replaced and %d deleted", soft, len(f.deleted))
	}
	f.run(time.Minute, time.Hour)
	if f.left() > 0 {
		t.Fatalf("%d nodes are left", f.left())
	}
	perMinute := map[time.Time]int{}
	for i, d := range f.deleted {
		perMinute[d.at.Truncate(time.Minute)]++
		if late := d.at.Sub(deadline); late < 0 || late > 12*time.Minute {
			t.Fatalf("node %s was deleted %s after the first deadline", d.node, late)
		}
		if i > 0 && d.node < f.deleted[i-1].node {
			t.Fatalf("node %s was deleted after %s, which is younger", d.node, f.deleted[i-1].node)
		}
	}
	if most := slices.Max(slices.Collect(maps.Values(perMinute))); most > herdNodes/10 || most < herdNodes/20 {
		t.Errorf("%d were deleted in a minute", most)
	}
	t.Logf("%d replaced before the deadline, %d deleted after it, at most %d in a minute", soft, len(f.deleted),
		slices.Max(slices.Collect(maps.Values(perMinute))))
}

// When the annotation comes to a fleet that is due already, it goes by the budget, the oldest first, over the time that is left.
func TestTheAnnotationComesToAFleetThatIsDue(t *testing.T) {
	f := herd(t, month-48*time.Hour, "", karpv1.Budget{Nodes: "2%"})
	f.step(f.s.Now.Add(time.Minute))
	if len(f.started) > 0 {
		t.Fatal("nodes go without the annotation")
	}
	f.s.Pools[0].NodePool.Annotations = map[string]string{karpv1.AnnotationExpiration: `{"mode":"Graceful"}`}
	f.step(f.s.Now.Add(time.Minute))
	if n := len(f.started); n != herdNodes/50 {
		t.Fatalf("%d nodes go at once, the budget is %d", n, herdNodes/50)
	}
	f.run(20*time.Minute, 48*time.Hour)
	if f.left() > 0 || len(f.deleted) > 0 {
		t.Fatalf("%d nodes are left, %d were deleted after their deadline", f.left(), len(f.deleted))
	}
	order := slices.SortedFunc(maps.Values(f.started), func(a, b start) int { return a.at.Compare(b.at) })
	for i, s := range order {
		if want := fmt.Sprintf("node-%03d", i); s.at.After(f.started[want].at) && s.node < want {
			t.Fatalf("node %s went after %s", s.node, want)
		}
	}
	t.Logf("%d nodes in %s", len(order), order[len(order)-1].at.Sub(order[0].at))
}
