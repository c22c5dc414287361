package scenario

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestGuardCountsDisruptedNodes(t *testing.T) {
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
		{"two, after one has gone", []*karpv1.NodeClaim{claim("a", up, disrupted), claim("b", up, disrupted)}, claim("a"), claim("c", up, disrupted), false},
		{"two, while one's instance terminates", []*karpv1.NodeClaim{claim("a", up, disrupted), claim("a", up, disrupted, terminating), claim("b", up, disrupted)}, nil, claim("c", up, disrupted), false},
		{"one that has never been up", []*karpv1.NodeClaim{claim("a", up, disrupted), claim("b", up, disrupted)}, nil, claim("e", disrupted), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuard(share(50))
			for _, name := range []string{"a", "b", "c", "d"} {
				g.seeClaim(claim(name, up), false)
			}
			for _, c := range tt.seen {
				g.seeClaim(c, false)
			}
			if tt.gone != nil {
				g.seeClaim(tt.gone, true)
			}
			if len(g.broken) > 0 {
				t.Fatalf("broken before: %v", g.broken)
			}
			g.seeClaim(tt.then, false)
			if got := len(g.broken) > 0; got != tt.wrong {
				t.Errorf("broken: %v, want %v", g.broken, tt.wrong)
			}
		})
	}
}

func TestGuardCountsReadyPods(t *testing.T) {
	pod := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	g := newGuard(most(0))
	for _, name := range []string{"a", "b", "c"} {
		g.seePod(pod(name, corev1.ConditionTrue), false)
	}
	g.keep("web", 2)
	g.seePod(pod("d", corev1.ConditionFalse), false) // is on its way up
	g.seePod(pod("a", corev1.ConditionTrue), true)
	if len(g.broken) > 0 {
		t.Fatalf("two of three ready pods: %v", g.broken)
	}
	g.seePod(pod("b", corev1.ConditionFalse), false)
	if len(g.broken) != 1 || !strings.Contains(g.broken[0], "web has 1 ready pods, its disruption budget leaves it 2") {
		t.Errorf("one of three ready pods: %v", g.broken)
	}
}
