package scenario

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestInvariantsCountDisruptedNodes(t *testing.T) {
	claim := func(name string, conditions ...string) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		for _, t := range conditions {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: t, Status: metav1.ConditionTrue})
		}
		return c
	}
	const up, disrupted, terminating = karpv1.ConditionInitialized, karpv1.ConditionDisruptionReason, karpv1.ConditionInstanceTerminating
	for _, tt := range []struct {
		name  string
		seen  []*karpv1.NodeClaim
		gone  *karpv1.NodeClaim
		then  *karpv1.NodeClaim
		wrong bool
	}{
		{"one of four, half allowed", nil, nil, claim("a", up, disrupted), false},
		{"three of four", []*karpv1.NodeClaim{claim("a", up, disrupted), claim("b", up, disrupted)}, nil, claim("c", up, disrupted), true},
		{"two, after one has gone", []*karpv1.NodeClaim{claim("a", up, disrupted), claim("b", up, disrupted)}, claim("a"), claim("c", up,
			disrupted), false},
		{"two, while one's instance terminates", []*karpv1.NodeClaim{
			claim("a", up, disrupted), claim("a", up, disrupted, terminating),
			claim("b", up, disrupted),
		}, nil, claim("c", up, disrupted), false},
		{
			"one that has never been up",
			[]*karpv1.NodeClaim{claim("a", up, disrupted), claim("b", up, disrupted)},
			nil, claim("e", disrupted),
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newInvariants(percentBudget(50))
			for _, name := range []string{"a", "b", "c", "d"} {
				g.observeClaim(claim(name, up), false)
			}
			for _, c := range tt.seen {
				g.observeClaim(c, false)
			}
			if tt.gone != nil {
				g.observeClaim(tt.gone, true)
			}
			if len(g.violations) > 0 {
				t.Fatalf("broken before: %v", g.violations)
			}
			g.observeClaim(tt.then, false)
			if got := len(g.violations) > 0; got != tt.wrong {
				t.Errorf("broken: %v, want %v", g.violations, tt.wrong)
			}
		})
	}
}

func TestInvariantsCountReadyPods(t *testing.T) {
	pod := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	g := newInvariants(nodeBudget(0))
	for _, name := range []string{"a", "b", "c"} {
		g.observePod(pod(name, corev1.ConditionTrue), false)
	}
	g.requireReady("web", 2)
	g.observePod(pod("d", corev1.ConditionFalse), false) // goes up
	g.observePod(pod("a", corev1.ConditionTrue), true)
	if len(g.violations) > 0 {
		t.Fatalf("two of three ready pods: %v", g.violations)
	}
	g.observePod(pod("b", corev1.ConditionFalse), false)
	if len(g.violations) != 1 || !strings.Contains(g.violations[0], "web has 1 ready pods, its PodDisruptionBudget requires 2") {
		t.Errorf("one of three ready pods: %v", g.violations)
	}
}
