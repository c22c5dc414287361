package rollout

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

var window = Window{Soak: 10 * time.Minute, Now: now}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// podsOf are running pods of an owner that became ready an hour ago.
func podsOf(kind, owner string, n int, change ...func(*corev1.Pod)) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	yes := true
	for i := range out {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint(owner, "-", i), CreationTimestamp: ago(time.Hour),
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: &yes}},
		}}
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app"}},
		}
		for _, c := range change {
			c(p)
		}
		out[i] = p
	}
	return out
}

func waiting(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unready(3 * time.Minute)(p)
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

func unready(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: ago(since)}
	}
}

func restarted(times int32, last time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := &p.Status.ContainerStatuses[0]
		c.RestartCount = times
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(last)}
	}
}

func failed(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, reason }
}

func TestComparePods(t *testing.T) {
	const set = "ReplicaSet"
	join := func(lists ...[]*corev1.Pod) (out []*corev1.Pod) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	for _, tt := range []struct {
		name           string
		pods, siblings []*corev1.Pod
		code           Code // empty for none
		owner          string
		bad, of        int
	}{
		{name: "no pods"},
		{name: "healthy", pods: podsOf(set, "web", 2), siblings: podsOf(set, "web", 3)},
		{"a crash loop", podsOf(set, "web", 2, waiting("CrashLoopBackOff")), podsOf(set, "web", 3), CrashLoop, "web", 2, 2},
		{"an image", podsOf(set, "web", 1, waiting("ImagePullBackOff")), podsOf(set, "web", 3), ImageNotPulled, "web", 1, 1},
		{"starting", podsOf(set, "web", 1, waiting("ContainerCreating"), unready(time.Minute)), podsOf(set, "web", 3), "", "", 0, 0},
		{"not ready for long", podsOf(set, "web", 1, unready(2*time.Minute)), podsOf(set, "web", 3), NotReady, "web", 1, 1},
		{"not ready for a moment", podsOf(set, "web", 1, unready(119*time.Second)), podsOf(set, "web", 3), "", "", 0, 0},
		{"restarts", podsOf(set, "web", 1, restarted(2, time.Minute)), podsOf(set, "web", 3), Restarts, "web", 1, 1},
		{"the first crash", podsOf(set, "web", 1, waiting("CrashLoopBackOff"), unready(time.Minute)), podsOf(set, "web", 3), "", "", 0, 0},
		{
			"crashes within a minute", podsOf(set, "web", 1, waiting("CrashLoopBackOff"), unready(time.Minute), restarted(2, time.Second)),
			podsOf(set, "web", 3), CrashLoop, "web", 1, 1,
		},
		{"a pull that takes a minute", podsOf(set, "web", 1, waiting("ErrImagePull"), unready(time.Minute)), podsOf(set, "web", 3), "", "", 0, 0},
		{"one restart", podsOf(set, "web", 1, restarted(1, time.Minute)), podsOf(set, "web", 3), "", "", 0, 0},
		{"restarts long ago", podsOf(set, "web", 1, restarted(9, time.Hour)), podsOf(set, "web", 3), "", "", 0, 0},
		{"siblings restart, too", podsOf(set, "web", 1, restarted(2, time.Minute)), podsOf(set, "web", 3, restarted(2, time.Minute)), "", "", 0, 0},
		{
			"one of four siblings is unhealthy", podsOf(set, "web", 1, waiting("CrashLoopBackOff")),
			join(podsOf(set, "web", 3), podsOf(set, "web", 1, waiting("CrashLoopBackOff"))), "", "", 0, 0,
		},
		{
			"one of five siblings is unhealthy", podsOf(set, "web", 1, waiting("CrashLoopBackOff")),
			join(podsOf(set, "web", 4), podsOf(set, "web", 1, waiting("CrashLoopBackOff"))), CrashLoop, "web", 1, 1,
		},
		{
			"fewer than among siblings", join(podsOf(set, "web", 9), podsOf(set, "web", 1, unready(time.Hour))),
			join(podsOf(set, "web", 4), podsOf(set, "web", 1, unready(time.Hour))), "", "", 0, 0,
		},
		{"refused by kubelet", podsOf(set, "web", 1, failed("OutOfcpu")), podsOf(set, "web", 3), Refused, "web", 1, 1},
		{"a job that fails", podsOf("Job", "job", 1, failed("")), podsOf("Job", "job", 3), "", "", 0, 0},
		{"a daemon without siblings", podsOf("DaemonSet", "agent", 1, waiting("CrashLoopBackOff")), nil, CrashLoop, "agent", 1, 1},
		{"an owner without siblings", podsOf(set, "web", 2, waiting("CrashLoopBackOff")), podsOf(set, "other", 3), "", "", 0, 0},
		{
			"two owners without siblings", join(podsOf(set, "web", 1, unready(time.Hour)), podsOf(set, "api", 1, waiting("ErrImagePull"))), nil,
			ImageNotPulled, "api", 1, 1,
		},
		{
			"the cause before the effect", join(podsOf(set, "web", 9, unready(time.Hour)), podsOf("DaemonSet", "cni", 1, waiting("CrashLoopBackOff"))),
			join(podsOf(set, "web", 9), podsOf("DaemonSet", "cni", 3)), CrashLoop, "cni", 1, 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, found := ComparePods(tt.pods, tt.siblings, window)
			if found != (tt.code != "") || e.Code != tt.code || e.Owner.Name != tt.owner || e.Bad != tt.bad || e.Of != tt.of {
				t.Errorf("found %v, %+v", found, e)
			}
			if found && (len(e.Pods) == 0 || len(e.Pods) > 3 || e.Since.IsZero()) {
				t.Errorf("names %v, since %v", e.Pods, e.Since)
			}
		})
	}
}

// With a short soak a pod may take half of it.
func TestPodsSettleWithinTheSoak(t *testing.T) {
	pods, siblings := podsOf("ReplicaSet", "web", 1, unready(30*time.Second)), podsOf("ReplicaSet", "web", 3)
	for soak, want := range map[time.Duration]bool{time.Minute: true, 61 * time.Second: false} {
		if _, found := ComparePods(pods, siblings, Window{Soak: soak, Now: now}); found != want {
			t.Errorf("after a soak of %v found is %v", soak, found)
		}
	}
}

func TestExamineNode(t *testing.T) {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pressed := []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Minute)}}
	for _, tt := range []struct {
		name         string
		conditions   []corev1.NodeCondition
		has          corev1.ResourceList
		code         Code
		detail, text string
	}{
		{"as expected", nil, amounts("1930m", "7Gi"), "", "", ""},
		{"a little less", nil, amounts("1600m", "6Gi"), "", "", ""},
		{"too little CPU", nil, amounts("500m", "7Gi"), TooSmall, "cpu", "500m"},
		{"too little memory", nil, amounts("1930m", "2Gi"), TooSmall, "memory", "2Gi"},
		{"no amounts yet", nil, nil, "", "", ""},
		{"no disk", pressed, amounts("1930m", "7Gi"), Pressure, "DiskPressure", ""},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: tt.conditions, Allocatable: tt.has}}
		e, found := ExamineNode(node, amounts("1930m", "7Gi"))
		if found != (tt.code != "") || e.Code != tt.code || e.Detail != tt.detail || e.Has != tt.text {
			t.Errorf("%s: found %v, %+v", tt.name, found, e)
		}
	}
}
