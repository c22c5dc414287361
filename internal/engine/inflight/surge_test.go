package inflight_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
)

// pod is a pod on a node, Ready or not.
func pod(node string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// singleton is a Deployment with one replica on node a, of a command that began to wait a minute ago.
func singleton(change ...func(*inflight.Surge)) inflight.Surge {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid", Generation: 4}}
	d.Spec.Replicas, d.Spec.ProgressDeadlineSeconds = new(int32(1)), new(int32(600))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	s := inflight.Surge{
		Record: karpv1.Surge{Namespace: "shop", Name: "web", UID: "uid", Began: ago(time.Minute)}, Deployment: d,
		Pods: []*corev1.Pod{pod("a", corev1.ConditionTrue)}, Nodes: map[string]bool{"a": true}, Timeout: 10 * time.Minute,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

// restarted makes a Surge one that was restarted so long ago, with the rollout in progress.
func restarted(d time.Duration) func(*inflight.Surge) {
	return func(s *inflight.Surge) {
		s.Record.Restarted, s.Record.Generation = ago(d), 4
		s.Deployment.Generation, s.Deployment.Status.ObservedGeneration = 5, 5
		s.Pods = append(s.Pods, pod("b", corev1.ConditionFalse))
	}
}

func TestSurge(t *testing.T) {
	minute := now.Add(9 * time.Minute)
	tests := []struct {
		name   string
		change []func(*inflight.Surge)
		want   inflight.SurgeAction
		reason string
		says   string
		until  time.Time
	}{
		{
			name: "the wait begins", want: inflight.SurgeBegin,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Record.Began = nil }},
		},
		{name: "no rollout is in progress", want: inflight.SurgeRecord},
		{
			name: "one is: a new template is not observed yet", want: inflight.SurgeWait, reason: "RolloutInProgress", until: minute,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Generation = 5 }},
		},
		{
			name: "one is: an old pod is left", want: inflight.SurgeWait, reason: "RolloutInProgress", until: minute,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Status.Replicas = 2 }},
		},
		{
			name: "one is: the pod is not available", want: inflight.SurgeWait, reason: "RolloutInProgress", until: minute,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Status.AvailableReplicas = 0 }},
		},
		{
			name: "one is for ten minutes", want: inflight.SurgeGiveUp, reason: "SurgeTimedOut", says: "another rollout",
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Status.Replicas, s.Record.Began = 2, ago(10*time.Minute) }},
		},
		{
			name: "it was recorded, and the process stopped", want: inflight.SurgeRestart,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Record.Restarted, s.Record.Generation = ago(time.Second), 4 }},
		},
		{
			name: "restarted", want: inflight.SurgeWait, until: now.Add(11*time.Minute - time.Minute),
			change: []func(*inflight.Surge){restarted(time.Minute)},
		},
		{
			name: "somebody has changed it since: it is not restarted again", want: inflight.SurgeWait, until: now.Add(11*time.Minute - time.Minute),
			change: []func(*inflight.Surge){restarted(time.Minute), func(s *inflight.Surge) { s.Deployment.Generation = 6 }},
		},
		{
			name: "the Deployment allows more time than the setting", want: inflight.SurgeWait, until: now.Add(10*time.Minute - time.Minute),
			change: []func(*inflight.Surge){
				restarted(time.Minute), func(s *inflight.Surge) { s.Deployment.Spec.ProgressDeadlineSeconds = new(int32(3600)) },
			},
		},
		{
			name: "the Deployment controller has not stated yet that it failed", want: inflight.SurgeWait, until: now.Add(time.Second),
			change: []func(*inflight.Surge){restarted(11*time.Minute - time.Second)},
		},
		{
			name: "nor does it", want: inflight.SurgeGiveUp, reason: "SurgeTimedOut", says: "has not completed for 11m0s",
			change: []func(*inflight.Surge){restarted(11 * time.Minute)},
		},
		{
			name: "it failed", want: inflight.SurgeFailed, change: []func(*inflight.Surge){restarted(time.Minute), func(s *inflight.Surge) {
				s.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
			}},
		},
		{
			name: "an earlier rollout did", want: inflight.SurgeWait, until: now.Add(11*time.Minute - time.Minute),
			change: []func(*inflight.Surge){restarted(time.Minute), func(s *inflight.Surge) {
				s.Deployment.Status.ObservedGeneration = 4
				s.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
			}},
		},
		{
			name: "its pod is elsewhere", want: inflight.SurgeDone,
			change: []func(*inflight.Surge){restarted(time.Minute), func(s *inflight.Surge) { s.Pods = s.Pods[1:] }},
		},
		{
			name: "its pod shuts down", want: inflight.SurgeDone,
			change: []func(*inflight.Surge){restarted(time.Minute), func(s *inflight.Surge) { s.Pods[0].DeletionTimestamp = ago(-time.Minute) }},
		},
		{
			name: "it was deleted", want: inflight.SurgeDone, change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment = nil }},
		},
		{
			name: "another has its name", want: inflight.SurgeDone,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.UID = "other" }},
		},
		{
			name: "its pods are evicted instead", want: inflight.SurgeDone,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Record.GaveUp = true }},
		},
		{
			name: "it is paused", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: "paused",
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Spec.Paused = true }},
		},
		{
			name: "the old pod goes first", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: "Recreate",
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }},
		},
		{
			name: "its volume is for one node", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: `"data"`,
			change: []func(*inflight.Surge){func(s *inflight.Surge) { s.Exclusive = "data" }},
		},
		{
			name: "no pod may be added", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: "maxSurge",
			change: []func(*inflight.Surge){rolling("0%", "25%")},
		},
		{
			name: "the pod may be missing", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: "maxUnavailable allows 1",
			change: []func(*inflight.Surge){rolling("1", "1")},
		},
		{name: "25 % of one pod is none", want: inflight.SurgeRecord, change: []func(*inflight.Surge){rolling("25%", "25%")}},
		{
			name: "two replicas on nodes of the command", want: inflight.SurgeRecord,
			change: []func(*inflight.Surge){func(s *inflight.Surge) {
				s.Deployment.Spec.Replicas = new(int32(2))
				s.Deployment.Status.Replicas, s.Deployment.Status.UpdatedReplicas, s.Deployment.Status.AvailableReplicas = 2, 2, 2
				s.Pods = append(s.Pods, pod("a", corev1.ConditionTrue))
			}},
		},
		{
			name: "one of two is elsewhere", want: inflight.SurgeGiveUp, reason: "SurgeImpossible", says: "another node",
			change: []func(*inflight.Surge){func(s *inflight.Surge) {
				s.Deployment.Spec.Replicas, s.Pods = new(int32(2)), append(s.Pods, pod("b", corev1.ConditionTrue))
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := singleton(tt.change...)
			got := s.Next(now)
			if got.Action != tt.want || got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) || !got.Until.Equal(tt.until) {
				t.Errorf("got %+v, want %s, event %q with %q, until %v", got, tt.want, tt.reason, tt.says, tt.until)
			}
		})
	}
}

// rolling sets how many pods a rollout may add, and may leave missing.
func rolling(surge, unavailable string) func(*inflight.Surge) {
	return func(s *inflight.Surge) {
		s.Deployment.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.Parse(surge)), MaxUnavailable: new(intstr.Parse(unavailable))},
		}
	}
}

func TestACommandRestartsBeforeItDeletes(t *testing.T) {
	done := singleton(func(s *inflight.Surge) { s.Record.GaveUp = true })
	failed := singleton(restarted(time.Minute), func(s *inflight.Surge) {
		s.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
	})
	tests := []struct {
		name   string
		states []inflight.State
		surges []inflight.Surge
		want   inflight.Step
		says   string
	}{
		{
			name: "not before the replacement is ready", states: []inflight.State{inflight.Registered}, surges: []inflight.Surge{singleton()},
			want: inflight.Step{Action: inflight.Wait, Until: now.Add(6 * time.Minute)},
		},
		{
			name: "then", states: []inflight.State{inflight.Initialized}, surges: []inflight.Surge{done, singleton()},
			want: inflight.Step{Action: inflight.Restart},
		},
		{name: "without replacements, too", surges: []inflight.Surge{singleton()}, want: inflight.Step{Action: inflight.Restart}},
		{
			name:   "the first wait that is over",
			surges: []inflight.Surge{singleton(restarted(2 * time.Minute)), singleton(restarted(3 * time.Minute))},
			want:   inflight.Step{Action: inflight.Restart, Until: now.Add(8 * time.Minute)},
		},
		{name: "all are done", surges: []inflight.Surge{done}, want: inflight.Step{Action: inflight.Delete}},
		{
			name: "one failed", surges: []inflight.Surge{singleton(), failed},
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.RestartFailed, Deployment: "shop/web"}, Failed: 1},
			says: "the restart of Deployment shop/web, which was to move its pod, has failed",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := two(tt.states...)
			c.Surges = tt.surges
			if got := inflight.Next(c, now); got != tt.want || got.Why.String() != tt.says {
				t.Errorf("got %+v (%s), want %+v (%s)", got, got.Why, tt.want, tt.says)
			}
		})
	}
}
