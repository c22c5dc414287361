package drain_test

import (
	"math"
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// allowing is a PodDisruptionBudget for all pods of the namespace that allows so many evictions now.
func allowing(evictions int32) []snapshot.Budget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	b.Spec.Selector, b.Status.DisruptionsAllowed = &metav1.LabelSelector{}, evictions
	return snapshot.Budgets([]*policyv1.PodDisruptionBudget{b})
}

func TestHowLongADrainTakes(t *testing.T) {
	const minute = time.Minute
	web := pod{name: "web", grace: 30 * time.Second}
	slow := pod{name: "slow", grace: 2 * minute}
	tests := []struct {
		name    string
		node    drain.Node
		want    time.Duration
		endless []string
	}{
		{name: "nothing: a scheduler may still bind a pod", want: 5 * time.Second},
		{name: "pods of a tier at the same time", node: drain.Node{Pods: build([]pod{web, slow})}, want: 2*minute + 5*time.Second},
		{
			name: "tier after tier, the daemons that the others need last",
			node: drain.Node{Pods: build([]pod{web, {name: "dns", critical: critical, grace: 45 * time.Second}, plugin})},
			want: 30*time.Second + 45*time.Second + 30*time.Second + 5*time.Second,
		},
		{name: "a pod that shuts down", node: drain.Node{Pods: build([]pod{{name: "a", deleted: 7 * time.Second}})}, want: 12 * time.Second},
		{
			name: "pods that stay to the end", node: drain.Node{Pods: build([]pod{{name: "a", mirror: true, grace: minute}})},
			want: 5 * time.Second,
		},
		{
			name: "a budget that allows two of three", node: drain.Node{Pods: build([]pod{web, web, web}), Budgets: allowing(2)},
			want: minute + 5*time.Second,
		},
		{
			name: "a budget that allows none", node: drain.Node{Pods: build([]pod{web}), Budgets: allowing(0)}, want: 5 * time.Second,
			endless: []string{"web BudgetBlocks"},
		},
		{
			name: "protected", node: drain.Node{Pods: build([]pod{slow, {name: "job", keep: "true"}})}, want: 2*minute + 5*time.Second,
			endless: []string{"job Protected"},
		},
		{
			name: "protected for another ten minutes", node: drain.Node{Pods: build([]pod{{name: "job", keep: "70m", grace: minute}})},
			want: 11*minute + 5*time.Second,
		},
		{
			name: "protected, with a deadline",
			node: drain.Node{Pods: build([]pod{{name: "job", keep: "true"}}), Deadline: at(4 * minute)}, want: 4 * minute,
		},
		{
			name: "a deadline that is far away", node: drain.Node{Pods: build([]pod{slow}), Deadline: at(time.Hour)},
			want: 2*minute + 5*time.Second,
		},
		{name: "a deadline that has passed", node: drain.Node{Pods: build([]pod{slow}), Deadline: at(-minute)}},
		{
			name: "one after the other",
			node: drain.Node{Pods: pods(replica("a", "ReplicaSet", "here"), replica("b", "ReplicaSet", "here"))},
			want: minute + 5*time.Second,
		},
		{
			name: "a job that is almost done", node: drain.Node{Pods: pods(replica("job", "Job", "here", ends("63m")))},
			want: 3*minute + 30*time.Second + 5*time.Second,
		},
		{
			name: "a grace period without end counts as ten days",
			node: drain.Node{Pods: build([]pod{{name: "a", grace: math.MaxInt64}, {name: "dns", critical: critical, grace: math.MaxInt64}})},
			want: 2*240*time.Hour + 5*time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := drain.Expect(tt.node, now)
			var endless []string
			for _, w := range got.Endless {
				endless = append(endless, w.Pod.Name+" "+string(w.Why))
			}
			if got.Longest != tt.want || !slices.Equal(endless, tt.endless) {
				t.Errorf("%v, %v; want %v, %v", got.Longest, endless, tt.want, tt.endless)
			}
		})
	}
}

// A forecast is never negative, and a drain with a deadline has an end.
func TestForecastsHaveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNode(t)
		n.Budgets = allowing(rapid.Int32Range(0, 3).Draw(t, "allowed"))
		got := drain.Expect(n, now)
		if got.Longest < 0 || n.Deadline != nil && (len(got.Endless) > 0 || got.Longest > max(0, n.Deadline.Sub(now))) {
			t.Errorf("%v, endless %d, deadline %v", got.Longest, len(got.Endless), n.Deadline)
		}
	})
}
