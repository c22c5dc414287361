package drain_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
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
	volume     bool   // of a PersistentVolumeClaim
	hostPath   string // a directory of the host
	keep       string // the annotation karpenter.sh/do-not-disrupt
}

func (p pod) build() *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.name, Labels: map[string]string{"app": p.name}}}
	out.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
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
	if p.volume {
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.name}
		out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
	}
	if p.hostPath != "" {
		host := &corev1.HostPathVolumeSource{Path: p.hostPath}
		out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: host}})
	}
	if p.keep != "" {
		out.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: p.keep}
	}
	return out
}

func build(pods []pod) (out []*corev1.Pod) {
	for _, p := range pods {
		out = append(out, p.build())
	}
	return out
}

func pods(list ...*corev1.Pod) []*corev1.Pod { return list }

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

const critical = "system-cluster-critical"

// at is so long after now.
func at(d time.Duration) *time.Time { return new(now.Add(d)) }

// plugin is the daemon of a CSI driver, without which no volume is unmounted.
var plugin = pod{name: "csi", daemon: true, critical: "system-node-critical", hostPath: "/var/lib/kubelet/plugins/ebs.csi.aws.com"}

func TestWhichPodsLeaveNow(t *testing.T) {
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
			"pods with volumes leave first within their tier: their volumes are detached while the others shut down",
			[]pod{{name: "web"}, {name: "db", volume: true}, {name: "queue", volume: true, critical: critical}},
			nil,
			[]string{"db", "web"},
			nil,
			3,
		},
		{
			"do-not-disrupt protects a pod within its tier, and holds up the next",
			[]pod{{name: "job", keep: "true"}, {name: "dns", critical: critical}},
			nil,
			[]string{"job"},
			nil,
			2,
		},
		{
			"do-not-disrupt, and a grace period as long as the node's: deleted as the drain begins",
			[]pod{{name: "job", keep: "true", grace: 300 * time.Second}},
			at(300 * time.Second),
			nil,
			[]string{"job"},
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
			got := drain.Next(drain.Node{Pods: build(tt.pods), Deadline: tt.deadline}, now)
			if diff := cmp.Diff(tt.evict, names(got.Evict)); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.force, names(got.Delete)); diff != "" {
				t.Errorf("forced (-want +got):\n%s", diff)
			}
			if len(got.Waits) != tt.left {
				t.Errorf("%d pods left, want %d", len(got.Waits), tt.left)
			}
		})
	}
}
