package termination

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// pod describes the properties of a pod that matter to a drain.
type pod struct {
	name       string
	daemon     bool
	critical   string
	grace      time.Duration
	deleted    time.Duration // deletionTimestamp, relative to now
	terminal   bool
	mirror     bool
	toleration *corev1.Toleration
}

func (p pod) build() *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	out.Spec.PriorityClassName = p.critical
	if p.grace > 0 {
		seconds := int64(p.grace / time.Second)
		out.Spec.TerminationGracePeriodSeconds = &seconds
	}
	if p.daemon {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet"})
	}
	if p.mirror {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node"})
	}
	if p.deleted != 0 {
		out.DeletionTimestamp = &metav1.Time{Time: now.Add(p.deleted)}
	}
	if p.terminal {
		out.Status.Phase = corev1.PodSucceeded
	}
	if p.toleration != nil {
		out.Spec.Tolerations = []corev1.Toleration{*p.toleration}
	}
	return out
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestNextDrain(t *testing.T) {
	const critical = "system-cluster-critical"
	at := func(d time.Duration) *time.Time { v := now.Add(d); return &v }
	tests := []struct {
		name     string
		pods     []pod
		deadline *time.Time
		evict    []string
		force    []string
		left     int
	}{
		{"nothing to drain", nil, nil, nil, nil, 0},
		{
			"first what is neither critical nor a daemon; the other tiers wait",
			[]pod{
				{name: "app"},
				{name: "agent", daemon: true},
				{name: "dns", critical: critical},
				{name: "proxy", daemon: true, critical: "system-node-critical"},
			},
			nil,
			[]string{"app"},
			nil, 4,
		},
		{"then daemons", []pod{{name: "agent", daemon: true}, {name: "dns", critical: critical}}, nil, []string{"agent"}, nil, 2},
		{
			"then critical pods",
			[]pod{{name: "dns", critical: critical}, {name: "proxy", daemon: true, critical: critical}},
			nil,
			[]string{"dns"},
			nil,
			2,
		},
		{"critical daemons last", []pod{{name: "proxy", daemon: true, critical: critical}}, nil, []string{"proxy"}, nil, 1},
		{
			"pods that tolerate the taint, by Equal or Exists, are neither evicted nor in the way; nor are static and terminated pods",
			[]pod{
				{
					name: "equal",
					toleration: &corev1.Toleration{
						Key:      "karpenter.sh/disrupted",
						Operator: corev1.TolerationOpEqual,
						Effect:   corev1.TaintEffectNoSchedule,
					},
				},
				{name: "exists", toleration: &corev1.Toleration{Operator: corev1.TolerationOpExists}},
				{name: "static", mirror: true},
				{name: "terminated", terminal: true},
			},
			nil, nil, nil, 0,
		},
		{
			"a pod that tolerates only cordoned nodes leaves",
			[]pod{{name: "app", toleration: &corev1.Toleration{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists}}},
			nil,
			[]string{"app"},
			nil, 1,
		},
		{"a pod stuck 90 s after its deletion is ignored", []pod{{name: "stuck", deleted: -90 * time.Second}}, nil, nil, nil, 0},
		{"a terminating pod is waited for", []pod{{name: "leaving", deleted: 10 * time.Second}}, nil, []string{"leaving"}, nil, 1},
		{
			"a critical pod past its time is deleted now, although an earlier tier is not empty",
			[]pod{{name: "app", grace: 30 * time.Second}, {name: "dns", critical: critical, grace: 600 * time.Second}},
			at(300 * time.Second),
			[]string{"app"},
			[]string{"dns"},
			2,
		},
		{
			"a grace period of 300 s and 301 s left: not yet",
			[]pod{{name: "app", grace: 300 * time.Second}},
			at(301 * time.Second),
			[]string{"app"},
			nil,
			1,
		},
		{
			"a grace period of 300 s and 299 s left: now",
			[]pod{{name: "app", grace: 300 * time.Second}},
			at(299 * time.Second),
			nil,
			[]string{"app"},
			1,
		},
		{
			"a grace period of 300 s as the drain begins, and 300 s left: now",
			[]pod{{name: "app", grace: 300 * time.Second}},
			at(300 * time.Second),
			nil,
			[]string{"app"},
			1,
		},
		{
			"a grace period of 60 s and 60 s left: now",
			[]pod{{name: "app", grace: 60 * time.Second}},
			at(60 * time.Second),
			nil,
			[]string{"app"},
			1,
		},
		{
			"a grace period of 60 s and 210 s left: alive",
			[]pod{{name: "app", grace: 60 * time.Second}},
			at(210 * time.Second),
			[]string{"app"},
			nil,
			1,
		},
		{
			"terminating, but its grace period lasts beyond the deadline: shortened",
			[]pod{{name: "slow", grace: 6000 * time.Second, deleted: 5900 * time.Second}},
			at(210 * time.Second),
			nil,
			[]string{"slow"},
			1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, p := range tt.pods {
				pods = append(pods, p.build())
			}
			got := nextDrain(pods, tt.deadline, now)
			if diff := cmp.Diff(tt.evict, names(got.Evict)); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.force, names(got.Force)); diff != "" {
				t.Errorf("forced (-want +got):\n%s", diff)
			}
			if got.Waiting != tt.left {
				t.Errorf("%d pods left, want %d", got.Waiting, tt.left)
			}
		})
	}
}

func TestGrantedSeconds(t *testing.T) {
	tests := []struct {
		name     string
		deadline time.Duration
		want     int64
	}{
		{"what is left", 210 * time.Second, 210},
		{"whole seconds", 1900 * time.Millisecond, 1},
		{"an hour ago: one second, never zero", -time.Hour, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := grantedSeconds(now.Add(tt.deadline), now); got != tt.want {
				t.Errorf("granted %d, want %d", got, tt.want)
			}
		})
	}
}
