package pass_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const expireAfter = 100 * time.Hour

// graceful replaces nodes within the last 20 hours, without jitter.
const graceful = `{"mode":"Graceful","lead":"20h","jitter":"0%"}`

// aged is a node of an age that consolidation keeps.
func aged(name string, age time.Duration, pods ...*corev1.Pod) snapshot.Node {
	n := up(name, append(pods, pod("on-"+name, "600m"))...)
	n.Consolidatable = false
	n.CreatedAt, n.ExpireAfter = Now().Add(-age), expireAfter
	return n
}

// expiring is a world with an annotation on its pool; none if it is empty.
func expiring(budget, annotation string, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := world(budget, nodes...)
	if annotation != "" {
		s.Pools[0].NodePool.Annotations = map[string]string{karpv1.AnnotationExpiration: annotation}
	}
	return s
}

func TestNodesAreReplacedBeforeTheyExpire(t *testing.T) {
	drifted := aged("drifted", 90*time.Hour)
	drifted.DriftedAt = Now().Add(-time.Hour)
	protected := aged("protected", 90*time.Hour, Pod("p", func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }))
	bounded := protected
	bounded.Bounded = true
	for _, tt := range []struct {
		name string
		s    *snapshot.Snapshot
		want string
	}{
		{"without the annotation none goes", expiring("100%", "", aged("a", 99*time.Hour)), ""},
		{"Forceful is the same", expiring("100%", `{"mode":"Forceful"}`, aged("a", 99*time.Hour)), ""},
		{"an annotation that cannot be read replaces none", expiring("100%", `{"mode":"Graceful","lead":"x"}`, aged("a", 99*time.Hour)), ""},
		{"not before its lead", expiring("100%", graceful, aged("a", 80*time.Hour-time.Second)), ""},
		{"from its lead on, with a replacement", expiring("100%", graceful, aged("a", 80*time.Hour)), "Expired a launches 1"},
		{
			"within the budget, the oldest first",
			expiring("1", graceful, aged("young", 85*time.Hour), aged("old", 95*time.Hour)), "Expired old launches 1",
		},
		{"a budget of 0 keeps it, also after its expireAfter", expiring("0", graceful, aged("a", 120*time.Hour)), ""},
		{"a drifted node goes as drifted", expiring("100%", graceful, drifted), "Drifted drifted launches 1"},
		{
			"drifted nodes go first",
			expiring("1", graceful, aged("old", 99*time.Hour), drifted), "Drifted drifted launches 1",
		},
		{"do-not-disrupt keeps it", expiring("100%", graceful, protected), ""},
		{"as for drift, not where the drain is bounded", expiring("100%", graceful, bounded), "Expired protected launches 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(pass.Input{Snapshot: tt.s, Work: pass.Ahead(tt.s), Settings: settings})
			if got := text(d); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// The budget is that of the annotation's reason, and a command for another reason uses it up, too.
func TestTheBudgetOfExpiration(t *testing.T) {
	for reason, want := range map[string]string{"Underutilized": "", "Drifted": "Expired a launches 1"} {
		s := expiring("100%", fmt.Sprintf(`{"mode":"Graceful","lead":"20h","budgetReason":%q}`, reason), aged("a", 99*time.Hour))
		s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{
			{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionUnderutilized}},
		}
		if got := text(decide(pass.Input{Snapshot: s, Work: pass.Ahead(s), Settings: settings})); got != want {
			t.Errorf("budgetReason %s: %q, want %q", reason, got, want)
		}
	}
}

func TestNoExpirationWhilePaused(t *testing.T) {
	s := expiring("100%", graceful, aged("a", 99*time.Hour))
	in := pass.Input{Snapshot: s, Work: pass.Ahead(s), Settings: settings}
	in.Facts.Limits = []pass.StartLimit{{NodePool: "p", Reason: karpv1.DisruptionExpired, Why: "new nodes fail"}}
	d := decide(in)
	if len(d.Start) > 0 || len(d.Limits) != 1 || d.Limits[0].Why != "new nodes fail" {
		t.Errorf("%s, limits %+v", text(d), d.Limits)
	}
	in.Facts = pass.Facts{Paused: []string{"p"}}
	if d = decide(in); len(d.Start) > 0 {
		t.Errorf("replaced although deletions are paused: %s", text(d))
	}
}

// A pass that finds nothing sleeps until the next node is due.
func TestWakeAtTheNextDueNode(t *testing.T) {
	s := expiring("100%", graceful, aged("a", 80*time.Hour-90*time.Second))
	controller := settings
	controller.Validate = true
	d := decide(pass.Input{Snapshot: s, Work: pass.Due | pass.Ahead(s), Settings: controller})
	if want := Now().Add(90 * time.Second); !d.Wake.Equal(want) {
		t.Errorf("wakes at %s, want %s", d.Wake, want)
	}
}
