package drain_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// budget allows no eviction of the pods of an app.
func budget(name, app string) *policyv1.PodDisruptionBudget {
	out := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	out.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return out
}

func TestWhyAPodIsWaitedFor(t *testing.T) {
	allows := budget("allows", "app")
	allows.Status.DisruptionsAllowed = 1
	tests := []struct {
		name     string
		pod      pod
		behind   bool // another pod leaves first
		deadline *time.Time
		budgets  []*policyv1.PodDisruptionBudget
		want     drain.Why
		until    *time.Time
	}{
		{name: "nothing keeps it", pod: pod{}, want: drain.Evictable},
		{
			name: "it has 210 s left, and needs 60 to shut down", pod: pod{grace: time.Minute}, deadline: at(210 * time.Second),
			want: drain.Evictable, until: at(150 * time.Second),
		},
		{name: "it is critical, and another pod is not", pod: pod{critical: critical}, behind: true, want: drain.Later},
		{
			name: "it leaves later, but has to be gone before", pod: pod{critical: critical, grace: time.Minute}, behind: true,
			deadline: at(210 * time.Second), want: drain.Later, until: at(150 * time.Second),
		},
		{name: "do-not-disrupt forever", pod: pod{keep: "true"}, want: drain.Protected},
		{name: "do-not-disrupt for two hours, of which one has passed", pod: pod{keep: "2h"}, want: drain.Protected, until: at(time.Hour)},
		{
			name: "do-not-disrupt for longer than the drain may take", pod: pod{keep: "2h", grace: time.Minute}, deadline: at(30 * time.Minute),
			want: drain.Protected, until: at(29 * time.Minute),
		},
		{name: "do-not-disrupt has elapsed", pod: pod{keep: "30m"}, want: drain.Evictable},
		{
			name: "a PodDisruptionBudget allows no eviction", budgets: []*policyv1.PodDisruptionBudget{budget("one", "app")},
			want: drain.BudgetBlocks,
		},
		{name: "one that allows it", budgets: []*policyv1.PodDisruptionBudget{allows}, want: drain.Evictable},
		{name: "one of other pods", budgets: []*policyv1.PodDisruptionBudget{budget("other", "other")}, want: drain.Evictable},
		{
			name: "the eviction API supports one PodDisruptionBudget for a pod", budgets: []*policyv1.PodDisruptionBudget{allows, allows},
			want: drain.BudgetBlocks,
		},
		{
			name: "its time is over, whatever protects it", pod: pod{keep: "true", grace: time.Minute}, deadline: at(time.Minute),
			budgets: []*policyv1.PodDisruptionBudget{budget("one", "app")}, want: drain.AtDeadline,
		},
		{
			name: "it shuts down, and nobody waits longer than a minute for a kubelet that does not report the end",
			pod:  pod{deleted: 20 * time.Second}, want: drain.Terminating, until: at(80*time.Second + 1),
		},
		{
			name: "it shuts down, and would for longer than the drain may take", pod: pod{deleted: 5900 * time.Second},
			deadline: at(210 * time.Second), want: drain.AtDeadline, until: at(5960*time.Second + 1),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.pod.name = "app"
			pods := []*corev1.Pod{tt.pod.build()}
			if tt.behind {
				pods = append(pods, pod{name: "other"}.build())
			}
			got := drain.Next(drain.Node{Pods: pods, Deadline: tt.deadline, Budgets: snapshot.Budgets(tt.budgets)}, now).Waits
			if len(got) == 0 || got[0].Pod != pods[0] || got[0].Why != tt.want {
				t.Fatalf("got %+v, want %s", got, tt.want)
			}
			if until := got[0].Until; until.IsZero() != (tt.until == nil) || tt.until != nil && !until.Equal(*tt.until) {
				t.Errorf("until %v, want %v", until, tt.until)
			}
		})
	}
}

func TestWhatIsDoneAboutAPod(t *testing.T) {
	granted := func(seconds int64, p pod) *corev1.Pod {
		out := p.build()
		out.DeletionGracePeriodSeconds = &seconds
		return out
	}
	tests := []struct {
		name            string
		pod             *corev1.Pod
		deadline, until *time.Time
		want            drain.Action
		grace           int64
	}{
		{name: "it is evicted", pod: pod{}.build(), want: drain.Evict},
		{name: "do-not-disrupt keeps it", pod: pod{keep: "true"}.build(), want: drain.Keep},
		{
			name: "do-not-disrupt no longer does", pod: pod{keep: "true", grace: 300 * time.Second}.build(), deadline: at(300 * time.Second),
			want: drain.Delete, grace: 300,
		},
		{
			name: "it needs 60 of the 210 seconds that are left", pod: pod{keep: "true", grace: time.Minute}.build(),
			deadline: at(210 * time.Second), want: drain.Keep,
		},
		{
			name: "it gets whole seconds", pod: pod{grace: time.Minute}.build(), deadline: at(1900 * time.Millisecond),
			want: drain.Delete, grace: 1,
		},
		{
			name: "the deadline was an hour ago: one second, since with zero a successor might start while the pod runs",
			pod:  pod{grace: time.Minute}.build(), deadline: at(-time.Hour), want: drain.Delete, grace: 1,
		},
		{name: "it tolerates the taint", pod: pod{toleration: &corev1.Toleration{Operator: corev1.TolerationOpExists}}.build(), want: drain.Keep},
		{name: "it has terminated", pod: pod{terminal: true}.build(), want: drain.Nothing},
		{name: "it shuts down", pod: pod{deleted: 30 * time.Second}.build(), want: drain.Nothing},
		{
			name: "it shuts down for longer than the drain may take", pod: granted(6000, pod{deleted: 5900 * time.Second}),
			deadline: at(210 * time.Second), want: drain.Delete, grace: 210,
		},
		{
			name: "its grace period was shortened before, and its kubelet is slow", pod: granted(1, pod{deleted: 2 * time.Second}),
			deadline: at(time.Second), want: drain.Nothing,
		},
		{name: "before a reboot it leaves", pod: pod{}.build(), until: at(time.Second), want: drain.Evict},
		{name: "the reboot no longer waits for it", pod: pod{}.build(), until: at(0), want: drain.Nothing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, grace := drain.Request{Pod: tt.pod, Deadline: tt.deadline, Until: tt.until}.Next(now)
			if got != tt.want || grace != tt.grace {
				t.Errorf("%s with %d s, want %s with %d s", got, grace, tt.want, tt.grace)
			}
		})
	}
}

func TestWhoseVolumesHoldTheInstance(t *testing.T) {
	kubeProxy := pod{daemon: true}.build()
	kubeProxy.Spec.Containers = []corev1.Container{{Name: "kube-proxy"}}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"an application", pod{}.build(), true},
		{"the daemon of a CSI driver", pod{daemon: true, hostPath: "/var/lib/kubelet/plugins/ebs.csi.aws.com/"}.build(), false},
		{"of any driver", pod{daemon: true, hostPath: "/var/lib/kubelet/plugins/csi.example.com"}.build(), false},
		{"the network's", pod{daemon: true, hostPath: "/etc/cni/net.d"}.build(), false},
		{"the network's, by its binaries", pod{daemon: true, hostPath: "/opt/cni/bin/"}.build(), false},
		{"kube-proxy", kubeProxy, false},
		{"a daemon that only registers plugins", pod{daemon: true, hostPath: "/var/lib/kubelet/plugins_registry"}.build(), true},
		{"a daemon that reads kubelet's directory", pod{daemon: true, hostPath: "/var/lib/kubelet"}.build(), true},
		{"an agent", pod{daemon: true, hostPath: "/var/log"}.build(), true},
		{"no daemon", pod{hostPath: "/var/lib/kubelet/plugins/ebs.csi.aws.com"}.build(), true},
		{"a pod that stays to the end", pod{toleration: &corev1.Toleration{Operator: corev1.TolerationOpExists}}.build(), false},
		{"a pod that its kubelet does not report any more", pod{deleted: -90 * time.Second}.build(), false},
	} {
		if got := drain.HoldsInstance(tt.pod, now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
