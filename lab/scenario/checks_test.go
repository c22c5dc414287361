package scenario

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// These tests break each rule that a scenario's check must detect.

func TestUnpaired(t *testing.T) {
	claim := func(name, id string) karpv1.NodeClaim {
		c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if id != "" {
			c.Status.ProviderID = "aws:///us-east-1a/" + id
		}
		return c
	}
	for _, tt := range []struct {
		name   string
		claims []karpv1.NodeClaim
		live   []awsim.Instance
		want   string // empty = all is well
	}{
		{"nothing at all", nil, nil, ""},
		{"a pair", []karpv1.NodeClaim{claim("a", "i-1")}, []awsim.Instance{{ID: "i-1"}}, ""},
		{
			"instance without claim",
			[]karpv1.NodeClaim{claim("a", "i-1")},
			[]awsim.Instance{{ID: "i-1"}, {ID: "i-2"}},
			"instance i-2 has no NodeClaim",
		},
		{"claim without instance", []karpv1.NodeClaim{claim("a", "i-1")}, nil, "NodeClaim a has no live instance"},
		{"claim that is not launched", []karpv1.NodeClaim{claim("a", "")}, nil, "NodeClaim a has no live instance"},
		{
			"two claims of one instance",
			[]karpv1.NodeClaim{claim("a", "i-1"), claim("b", "i-1")},
			[]awsim.Instance{{ID: "i-1"}},
			"NodeClaims a and b",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := unpaired(tt.claims, tt.live)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestPeakCPUs(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 8, 1, 12, 0, s, 0, time.UTC) }
	running := func(cpus, from int) awsim.Instance {
		return awsim.Instance{State: "running", VCPUs: cpus, LaunchedAt: at(from), StateChangedAt: at(from + 2)}
	}
	ended := func(cpus, from, to int) awsim.Instance {
		return awsim.Instance{State: "terminated", VCPUs: cpus, LaunchedAt: at(from), StateChangedAt: at(to)}
	}
	for _, tt := range []struct {
		name      string
		instances []awsim.Instance
		want      int
	}{
		{"none", nil, 0},
		{"together", []awsim.Instance{running(2, 0), running(2, 5)}, 4},
		{"one after the other", []awsim.Instance{ended(2, 0, 5), running(4, 6)}, 4},
		{"one in place of the other", []awsim.Instance{ended(2, 0, 5), running(2, 5)}, 2},
		{"overlapping for a moment", []awsim.Instance{ended(2, 0, 6), running(4, 5)}, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := peakCPUs(tt.instances); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestLimitEvent(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	event := func(uid, reason, message string) []corev1.Event {
		e := corev1.Event{Reason: reason, Message: message}
		e.InvolvedObject.UID = pod.UID
		if uid != "" {
			e.InvolvedObject.UID = "u2"
		}
		return []corev1.Event{e}
	}
	const message = `Failed to schedule pod, nodepool "limited": its limit of 4 cpu: 4 in use`
	for _, tt := range []struct {
		name   string
		events []corev1.Event
		want   string
	}{
		{"event of the pod", event("", "FailedScheduling", message), message},
		{"event of another pod", event("other", "FailedScheduling", message), ""},
		{"event of kube-scheduler", event("", "FailedScheduling", "0/2 nodes are available"), ""},
		{"another reason", event("", "Nominated", message), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := limitEvent(tt.events, pod); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNotReady(t *testing.T) {
	conditions := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Message: "no subnets"}}
	if got := notReady(conditions); !strings.Contains(got, "no subnets") {
		t.Errorf("got %q", got)
	}
	if got := notReady(nil); got == "" {
		t.Error("no conditions count as Ready")
	}
	conditions[0].Status = metav1.ConditionTrue
	if got := notReady(conditions); got != "" {
		t.Errorf("got %q for what is ready", got)
	}
}
