package kubelet

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// The pods of these tests are edited from a plain one by small functions.
type edit func(*corev1.Pod)

func pod(edits ...edit) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1", Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "nginx"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, e := range edits {
		e(p)
	}
	return p
}

func created(p *corev1.Pod) {
	p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
	}
}

func running(p *corev1.Pod) {
	created(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: time.Unix(1, 0)}}},
	}}
}

func ready(p *corev1.Pod) {
	running(p)
	p.Status.Conditions[1].Status = corev1.ConditionTrue
}

// waits is a pod with a container that waits.
func waits(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}
}

func restartedOnce(p *corev1.Pod) {
	waits(p)
	p.Status.ContainerStatuses[0].RestartCount = 1
}

func annotated(key, value string) edit {
	return func(p *corev1.Pod) { p.Annotations["lab.dovetail.sh/"+key] = value }
}

func runs(policy corev1.RestartPolicy, command ...string) edit {
	return func(p *corev1.Pod) {
		p.Spec.RestartPolicy = policy
		p.Spec.Containers[0].Command = command
	}
}

func ofJob(p *corev1.Pod) {
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
}

func probe(h corev1.ProbeHandler, ports ...corev1.ContainerPort) edit {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = ports
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: h, InitialDelaySeconds: 7}
	}
}

func execProbe(command ...string) edit {
	return probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}})
}

func httpProbe(port intstr.IntOrString, ports ...corev1.ContainerPort) edit {
	return probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}, ports...)
}

func deleted(grace int64) edit {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(100, 0)}, &grace
	}
}

func preStop(h corev1.LifecycleHandler) edit {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &h} }
}

func sleepHook(seconds int64) edit {
	return preStop(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}})
}

func compiled(t *testing.T, documents []byte) *Stages {
	t.Helper()
	stages, err := ParseStages(documents)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewStages(stages)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNextDefaultStage(t *testing.T) {
	stages := compiled(t, stagesYAML)
	http := corev1.ContainerPort{Name: "http", ContainerPort: 8080}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want string // stage and delay
	}{
		{"new", pod(), "pod-create 0s"},
		{"created", pod(created), "pod-start 300ms"},
		{"slow image", pod(created, annotated("starts-in", "20s")), "pod-start 20s"},
		{
			"init containers first", pod(created, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
			"pod-initialize 300ms",
		},
		{"ready and serving", pod(ready), "nothing"},
		{"image that cannot be pulled", pod(created, annotated("fault", "image"), waits), "pod-image-not-pulled 1s"},
		{"first crash", pod(created, annotated("fault", "crash"), waits), "pod-crash 1s"},
		{"crash after crash", pod(running, annotated("fault", "crash"), restartedOnce), "pod-crash 10s"},
		{"probe that fails on this node", pod(running, httpProbe(intstr.FromInt32(8080), http), annotated("fault", "unready")), "nothing"},
		{"succeeded", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "nothing"},

		{"probe that succeeds", pod(running, execProbe("cat", "/tmp/healthy")), "pod-ready 7s"},
		{"probe of a declared port", pod(running, httpProbe(intstr.FromInt32(8080), http)), "pod-ready 7s"},
		{"probe of a named port", pod(running, httpProbe(intstr.FromString("http"), http)), "pod-ready 7s"},
		{"exec of false", pod(running, execProbe("false")), "nothing"},
		{"exec of a shell that exits 1", pod(running, execProbe("sh", "-c", "exit 1")), "nothing"},
		{"probe of a port that nobody declares", pod(running, httpProbe(intstr.FromInt32(9090), http)), "nothing"},
		{"probe of a name that nobody declares", pod(running, httpProbe(intstr.FromString("metrics"), http)), "nothing"},
		{"startup probe that fails", pod(running, func(p *corev1.Pod) {
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
		}), "nothing"},
		{"readiness gate that is open", pod(running, gate(corev1.ConditionTrue)), "pod-ready 0s"},
		{"readiness gate that is shut", pod(running, gate(corev1.ConditionFalse)), "nothing"},

		{"Job", pod(ready, ofJob), "pod-succeed 1s"},
		{"Job that sleeps", pod(ready, ofJob, runs(corev1.RestartPolicyNever, "sh", "-c", "sleep 3; echo done")), "pod-succeed 3s"},
		{"Job with a set time", pod(ready, ofJob, annotated("runs-for", "2m")), "pod-succeed 2m0s"},
		{"Job that fails", pod(ready, ofJob, annotated("exit-code", "3")), "pod-fail 1s"},
		{"bare pod of true", pod(ready, runs(corev1.RestartPolicyNever, "true")), "pod-succeed 1s"},
		{"bare pod of sleep", pod(ready, runs(corev1.RestartPolicyOnFailure, "sleep", "0.5")), "pod-succeed 500ms"},
		{"bare pod of false", pod(ready, runs(corev1.RestartPolicyNever, "false")), "pod-fail 1s"},
		{"bare pod that exits 2", pod(ready, runs(corev1.RestartPolicyNever, "sh", "-c", "exit 2")), "pod-fail 1s"},
		{"crash that is restarted", pod(ready, runs(corev1.RestartPolicyOnFailure, "false")), "pod-restart 10s"},
		{"third crash", pod(ready, runs(corev1.RestartPolicyOnFailure, "false"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].RestartCount = 2
		}), "pod-restart 40s"},
		{"bare pod of a server", pod(ready, runs(corev1.RestartPolicyNever, "nginx")), "nothing"},
		{"Deployment's pod of sleep", pod(ready, runs(corev1.RestartPolicyAlways, "sleep", "5")), "nothing"},

		{"deleted", pod(ready, deleted(30)), "pod-terminate 0s"},
		{"deleted with preStop sleep", pod(ready, deleted(30), sleepHook(5)), "pod-terminate 5s"},
		{"deleted with preStop exec sleep", pod(ready, deleted(30), preStop(corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 12"}},
		})), "pod-terminate 12s"},
		{"deleted with a preStop that does not sleep", pod(ready, deleted(30), preStop(corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"nginx", "-s", "quit"}},
		})), "pod-terminate 0s"},
		{"preStop longer than the grace period", pod(ready, deleted(10), sleepHook(60)), "pod-terminate 10s"},
		{"deleted and ignoring SIGTERM", pod(ready, deleted(25), annotated("ignores-sigterm", "true")), "pod-terminate 25s"},
		{"deleted before it ran", pod(created, deleted(30), sleepHook(5)), "pod-discard 0s"},
		{
			"deleted after it ended, held by a finalizer", pod(ready, deleted(0), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			"nothing",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event := &lifecycle.Event{Labels: tt.pod.Labels, Annotations: tt.pod.Annotations, Data: tt.pod}
			possible, err := stages.pods.ListAllPossible(t.Context(), event)
			if err != nil {
				t.Fatal(err)
			}
			got := "nothing"
			for i, s := range possible {
				delay, _, err := s.Delay(t.Context(), event, time.Unix(50, 0))
				if err != nil {
					t.Fatal(err)
				}
				if i > 0 {
					t.Errorf("also possible: %s", s.Name())
				}
				got = fmt.Sprintf("%s %v", s.Name(), delay)
			}
			if got != tt.want {
				t.Errorf("next is %q, want %q", got, tt.want)
			}
		})
	}
}

func gate(status corev1.ConditionStatus) edit {
	return func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: status})
	}
}
