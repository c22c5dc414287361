package snapshot_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Now()} }

func phase(v corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = v }
}

func TestProvisionable(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*corev1.Pod)
		want bool
	}{
		{"unschedulable", func(*corev1.Pod) {}, true},
		{"not looked at yet", func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		{"gated", func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }, false},
		{"bound", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, false},
		{"about to preempt", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }, false},
		{"of a DaemonSet", OwnedBy("apps/v1", "DaemonSet"), false},
		{"static", OwnedBy("v1", "Node"), false},
		{"of a Job", OwnedBy("batch/v1", "Job"), true},
		{"being deleted", terminating, false},
		{"finished", phase(corev1.PodFailed), false},
	} {
		if got := snapshot.Provisionable(Pod("a", c.edit)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestReschedulable(t *testing.T) {
	for _, c := range []struct {
		name string
		edit []func(*corev1.Pod)
		want bool
	}{
		{"active", nil, true},
		{"terminating", []func(*corev1.Pod){terminating}, false},
		{"terminating, of a ReplicaSet", []func(*corev1.Pod){terminating, OwnedBy("apps/v1", "ReplicaSet")}, false},
		{"terminating, of a StatefulSet", []func(*corev1.Pod){terminating, OwnedBy("apps/v1", "StatefulSet")}, true},
		{"of a DaemonSet", []func(*corev1.Pod){OwnedBy("apps/v1", "DaemonSet")}, false},
		{"static", []func(*corev1.Pod){OwnedBy("v1", "Node")}, false},
	} {
		if got := snapshot.Reschedulable(Bound(Pod("a", c.edit...), "n")); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	done := Bound(Pod("a"), "n")
	done.Status.Phase = corev1.PodSucceeded
	if snapshot.Reschedulable(done) {
		t.Error("finished: true")
	}
}

func TestFullyBlocked(t *testing.T) {
	number, share := intstr.FromInt32, intstr.FromString
	budget := func(maxUnavailable, minAvailable *intstr.IntOrString) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: App("web"), MaxUnavailable: maxUnavailable, MinAvailable: minAvailable},
		}
	}
	ptr := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	one := budget(ptr(number(1)), nil)
	waived := budget(ptr(number(0)), nil)
	always := policyv1.AlwaysAllow
	waived.Spec.UnhealthyPodEvictionPolicy = &always
	unready := Pod("a", Labeled("app", "web"))
	unready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	web := Pod("a", Labeled("app", "web"))
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		pdbs []*policyv1.PodDisruptionBudget
		want bool
	}{
		{"none", web, nil, false},
		{"maxUnavailable 0", web, []*policyv1.PodDisruptionBudget{budget(ptr(number(0)), nil)}, true},
		{"maxUnavailable 0%", web, []*policyv1.PodDisruptionBudget{budget(ptr(share("0%")), nil)}, true},
		{"minAvailable 100%", web, []*policyv1.PodDisruptionBudget{budget(nil, ptr(share("100%")))}, true},
		{"two", web, []*policyv1.PodDisruptionBudget{one, one}, true},
		{"out of allowance just now", web, []*policyv1.PodDisruptionBudget{one}, false},
		{"others' pods", Pod("a"), []*policyv1.PodDisruptionBudget{budget(ptr(number(0)), nil)}, false},
		{"unhealthy pod, waived", unready, []*policyv1.PodDisruptionBudget{waived}, false},
		{"healthy pod, not waived", web, []*policyv1.PodDisruptionBudget{waived}, true},
		{
			"stays on disrupted nodes anyway", Pod("a", Labeled("app", "web"), Tolerates(karpv1.TaintKeyDisrupted)),
			[]*policyv1.PodDisruptionBudget{budget(ptr(number(0)), nil)},
			false,
		},
	} {
		if got := snapshot.FullyBlocked(c.pod, snapshot.Budgets(c.pdbs), Now()); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestDoNotDisrupt(t *testing.T) {
	since := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: Now().Add(-ago)} }
	for _, c := range []struct {
		value   string
		started *metav1.Time
		want    snapshot.Protection
		until   time.Time
	}{
		{"true", nil, snapshot.ProtectedForever, time.Time{}},
		{"30m", nil, snapshot.ProtectedUntil, time.Time{}},
		{"30m", since(10 * time.Minute), snapshot.ProtectedUntil, Now().Add(20 * time.Minute)},
		{"1h30m", since(2 * time.Hour), snapshot.ProtectionElapsed, time.Time{}},
		{"30m", since(30 * time.Minute), snapshot.ProtectionElapsed, time.Time{}},
		{"false", nil, snapshot.ProtectionInvalid, time.Time{}},
		{"0s", nil, snapshot.ProtectionInvalid, time.Time{}},
		{"-5m", nil, snapshot.ProtectionInvalid, time.Time{}},
		{"abc", nil, snapshot.ProtectionInvalid, time.Time{}},
	} {
		p := Pod("a", func(p *corev1.Pod) {
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: c.value}
			p.Status.StartTime = c.started
		})
		if got, until := snapshot.DoNotDisrupt(p, Now()); got != c.want || !until.Equal(c.until) {
			t.Errorf("%q: %s until %v, want %s until %v", c.value, got, until, c.want, c.until)
		}
	}
}

func TestTolerates(t *testing.T) {
	taint := &corev1.Taint{Key: "k", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		name string
		t    corev1.Toleration
		want bool
	}{
		{"everything", corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{"by key", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		{"another key", corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists}, false},
		{"another effect", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		{"by value", corev1.Toleration{Key: "k", Value: "5"}, true},
		{"another value", corev1.Toleration{Key: "k", Value: "6"}, false},
		{"greater", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpGt, Value: "4"}, true},
		{"not greater", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpGt, Value: "5"}, false},
		{"less", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "6"}, true},
		{"not less", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "5"}, false},
		{"no number", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "many"}, false},
	} {
		if got := snapshot.Tolerates([]corev1.Toleration{c.t}, taint); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestSchedulingTaints(t *testing.T) {
	startup := []corev1.Taint{{Key: "boot", Effect: corev1.TaintEffectNoSchedule}}
	for _, c := range []struct {
		key    string
		effect corev1.TaintEffect
		counts bool // while the node is not initialized
	}{
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, false},
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, false},
		{corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, false},
		{corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, true},
		{"node.cloudprovider.kubernetes.io/uninitialized", corev1.TaintEffectNoSchedule, false},
		{karpv1.TaintKeyUnregistered, corev1.TaintEffectNoExecute, false},
		{"readiness.k8s.io/network", corev1.TaintEffectPreferNoSchedule, false},
		{"boot", corev1.TaintEffectNoSchedule, false},
		{"boot", corev1.TaintEffectNoExecute, true},
		{"custom", corev1.TaintEffectNoSchedule, true},
	} {
		taints := []corev1.Taint{{Key: c.key, Value: "whatever", Effect: c.effect}}
		if got := len(snapshot.SchedulingTaints(taints, startup, false)) == 1; got != c.counts {
			t.Errorf("%s:%s counts %v on a node that is not initialized", c.key, c.effect, got)
		}
		if len(snapshot.SchedulingTaints(taints, startup, true)) != 1 {
			t.Errorf("%s:%s does not count on a node that is", c.key, c.effect)
		}
	}
}
