package podlatency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// measured returns how often, and with what sum, something was observed: "2 in 30s".
func measured(t *testing.T, o prometheus.Metric) string {
	t.Helper()
	var m dto.Metric
	if err := o.Write(&m); err != nil {
		t.Fatal(err)
	}
	if s := m.GetSummary(); s != nil {
		return fmt.Sprintf("%d in %vs", s.GetSampleCount(), s.GetSampleSum())
	}
	return fmt.Sprintf("%d in %vs", m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
}

func pending(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }

func TestDecisions(t *testing.T) {
	pod, bound := controllertest.Pod("a", "", pending), controllertest.Pod("a", "node-1")
	at := func(s int) time.Time { return controllertest.Start.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name string
		// what happens, a second after the other
		events []func(*podlatency.Decisions)
		want   podlatency.Decision
		first  string
	}{
		{"nothing", nil, podlatency.Decision{}, "0 in 0s"},
		{"seen twice: the first time counts", []func(*podlatency.Decisions){see(pod), see(pod)}, podlatency.Decision{Seen: at(0)}, "0 in 0s"},
		{"refused", []func(*podlatency.Decisions){see(pod), refuse(pod)}, podlatency.Decision{Seen: at(0), Decided: at(1)}, "1 in 1s"},
		{
			"placed in a healthy pool",
			[]func(*podlatency.Decisions){see(pod), place(pod, true)},
			podlatency.Decision{Seen: at(0), Decided: at(1), Schedulable: at(1), Healthy: at(1)},
			"1 in 1s",
		},
		{
			"in one that is not",
			[]func(*podlatency.Decisions){see(pod), place(pod, false)},
			podlatency.Decision{Seen: at(0), Decided: at(1), Schedulable: at(1)},
			"1 in 1s",
		},
		{
			"first in a healthy one, then in another",
			[]func(*podlatency.Decisions){place(pod, true), place(pod, false)},
			podlatency.Decision{Seen: at(0), Decided: at(0), Schedulable: at(0)},
			"1 in 0s",
		},
		{
			"then in a healthy one",
			[]func(*podlatency.Decisions){place(pod, false), place(pod, true)},
			podlatency.Decision{Seen: at(0), Decided: at(0), Schedulable: at(0), Healthy: at(1)},
			"1 in 0s",
		},
		{
			"placed again: the first time is kept",
			[]func(*podlatency.Decisions){see(pod), place(pod, true), place(pod, true)},
			podlatency.Decision{Seen: at(0), Decided: at(1), Schedulable: at(1), Healthy: at(1)},
			"1 in 1s",
		},
		{
			"placed, then refused",
			[]func(*podlatency.Decisions){see(pod), place(pod, true), refuse(pod)},
			podlatency.Decision{Seen: at(0), Decided: at(1)},
			"1 in 1s",
		},
		{
			"and placed anew",
			[]func(*podlatency.Decisions){place(pod, true), refuse(pod), place(pod, true)},
			podlatency.Decision{Seen: at(0), Decided: at(0), Schedulable: at(2), Healthy: at(2)},
			"1 in 0s",
		},
		{
			"it is bound already",
			[]func(*podlatency.Decisions){see(bound), place(bound, true), refuse(bound)},
			podlatency.Decision{},
			"0 in 0s",
		},
		{
			"decided on twice, measured once",
			[]func(*podlatency.Decisions){see(pod), refuse(pod), place(pod, true), refuse(pod)},
			podlatency.Decision{Seen: at(0), Decided: at(1)},
			"1 in 1s",
		},
		{
			"forgotten",
			[]func(*podlatency.Decisions){see(pod), place(pod, true), func(d *podlatency.Decisions) { d.Forget(pod.UID) }},
			podlatency.Decision{},
			"1 in 1s",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t)
			d := podlatency.NewDecisions(f.Metrics, f.Now)
			for _, happens := range tt.events {
				happens(d)
				f.Clock = f.Clock.Add(time.Second)
			}
			if diff := cmp.Diff(tt.want, d.Of(pod.UID)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := measured(t, f.Metrics.PodDecision); got != tt.first {
				t.Errorf("decisions measured: %s, want %s", got, tt.first)
			}
		})
	}
	var none *podlatency.Decisions
	none.See(pod)
	none.Forget(pod.UID)
	if none.Of(pod.UID) != (podlatency.Decision{}) {
		t.Error("nobody remembers something")
	}
}

func see(p *corev1.Pod) func(*podlatency.Decisions) {
	return func(d *podlatency.Decisions) { d.See(p) }
}

func place(p *corev1.Pod, healthy bool) func(*podlatency.Decisions) {
	return func(d *podlatency.Decisions) { d.Place(p, healthy) }
}

func refuse(p *corev1.Pod) func(*podlatency.Decisions) {
	return func(d *podlatency.Decisions) { d.Refuse(p) }
}

func condition(typ corev1.PodConditionType, after time.Duration) corev1.PodCondition {
	return corev1.PodCondition{
		Type:               typ,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(controllertest.Start.Add(after)),
	}
}

func TestPodsAreMeasuredOnce(t *testing.T) {
	pod := controllertest.Pod("a", "", pending)
	f := controllertest.New(t, pod)
	decisions := podlatency.NewDecisions(f.Metrics, f.Now)
	events := started(t, &podlatency.Pods{Decisions: decisions, Metrics: f.Metrics, Now: f.Now, Log: f.Log})
	now := pod
	look := func(edit func(*corev1.Pod)) {
		now = now.DeepCopy()
		edit(now)
		for range 2 { // what is seen twice is measured once
			events.changed(now)
		}
	}
	want := func(when string, want ...string) {
		t.Helper()
		got := []string{
			measured(
				t,
				f.Metrics.PodBound.WithLabelValues("false").(prometheus.Metric),
			), measured(t, f.Metrics.ProvisioningBound.WithLabelValues("false").(prometheus.Metric)), measured(t, f.Metrics.PodStartup), measured(t, f.Metrics.ProvisioningStartup),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: bound and started, since creation and since placed (-want +got):\n%s", when, diff)
		}
	}
	events.changed(pod)
	f.Clock = f.Clock.Add(5 * time.Second)
	decisions.Place(pod, true)
	want("pending", "0 in 0s", "0 in 0s", "0 in 0s", "0 in 0s")
	look(func(p *corev1.Pod) {
		p.Spec.NodeName = "node-1"
		p.Status.Conditions = []corev1.PodCondition{condition(corev1.PodScheduled, 30*time.Second)}
	})
	want("bound", "1 in 30s", "1 in 25s", "0 in 0s", "0 in 0s")
	look(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = append(p.Status.Conditions, condition(corev1.PodReady, 40*time.Second))
	})
	want("ready", "1 in 30s", "1 in 25s", "1 in 40s", "1 in 35s")
	if decisions.Of(pod.UID) != (podlatency.Decision{}) {
		t.Error("what was decided of a pod that runs is remembered")
	}
	look(func(p *corev1.Pod) { p.Status.Conditions[1] = condition(corev1.PodReady, time.Hour) })
	want("ready again", "1 in 30s", "1 in 25s", "1 in 40s", "1 in 35s")
}

func TestPodsThatRunAlreadyAreNotMeasured(t *testing.T) {
	f := controllertest.New(t)
	started(t, &podlatency.Pods{Metrics: f.Metrics, Now: f.Now, Log: f.Log}).changed(controllertest.Pod("a", "node-1", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{condition(corev1.PodReady, time.Hour)}
	}))
	if got := measured(t, f.Metrics.PodStartup); got != "0 in 0s" {
		t.Errorf("measured %s", got)
	}
}

func TestPodsThatGoAreForgotten(t *testing.T) {
	pod := controllertest.Pod("a", "", pending)
	f := controllertest.New(t)
	decisions := podlatency.NewDecisions(f.Metrics, f.Now)
	events := started(t, &podlatency.Pods{Decisions: decisions, Metrics: f.Metrics, Now: f.Now, Log: f.Log})
	decisions.See(pod)
	events.changed(pod)
	// The source reports the pod as deleted that another of its name has replaced.
	again := controllertest.Pod("a", "", pending, func(p *corev1.Pod) { p.UID = "again" })
	events.deleted(pod)
	events.changed(again)
	if decisions.Of(pod.UID) != (podlatency.Decision{}) {
		t.Error("a pod is remembered that another of its name has replaced")
	}
	decisions.See(again)
	events.deleted(again)
	if decisions.Of(again.UID) != (podlatency.Decision{}) {
		t.Error("a pod that is gone is remembered")
	}
	events.deleted(again)
}

// The trigger and plans may see a pod after it has gone. Such pods are forgotten, too, and those that wait are not.
func TestPodsThatWereDecidedOnAfterTheyWentAreForgotten(t *testing.T) {
	waits, gone, late, last := controllertest.Pod("waits", "", pending), controllertest.Pod("gone", "", pending),
		controllertest.Pod("late", "", pending), controllertest.Pod("last", "", pending)
	f := controllertest.New(t)
	decisions := podlatency.NewDecisions(f.Metrics, f.Now)
	events := started(t, &podlatency.Pods{Decisions: decisions, Metrics: f.Metrics, Now: f.Now, Log: f.Log})
	for _, pod := range []*corev1.Pod{waits, gone, last} {
		events.changed(pod)
	}
	events.deleted(gone)
	decisions.See(waits)
	decisions.See(gone)
	decisions.Refuse(late)
	f.Clock = f.Clock.Add(2 * time.Minute)
	decisions.See(last) // before it is seen here
	events.deleted(last)
	decisions.Place(last, true)
	for pod, want := range map[*corev1.Pod]bool{waits: true, gone: false, late: false, last: true} {
		if got := decisions.Of(pod.UID) != (podlatency.Decision{}); got != want {
			t.Errorf("pod %s is remembered: %v", pod.Name, got)
		}
	}
}

// source is changes of pods that a test makes.
type source struct{ changed, deleted func(*corev1.Pod) }

func (s *source) Watch(_ context.Context, changed, deleted func(*corev1.Pod)) error {
	s.changed, s.deleted = changed, deleted
	return nil
}

// started returns the source of a started Pods.
func started(t *testing.T, p *podlatency.Pods) *source {
	t.Helper()
	s := &source{}
	p.Source = s
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCollector(t *testing.T) {
	controls := true
	waits := controllertest.Pod("waits", "", pending, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: &controls}}
	})
	seen, starts := controllertest.Pod("seen", "", pending), controllertest.Pod("starts", "node-c", pending)
	runs := controllertest.Pod("runs", "node-c", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{condition(corev1.PodReady, 0)}
	})
	node := controllertest.ReadyNode("c", func(n *corev1.Node) {
		n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelInstanceTypeStable] = "z1", "m.large"
	})
	f := controllertest.New(t, []client.Object{waits, seen, starts, runs, node}...)
	decisions := podlatency.NewDecisions(f.Metrics, f.Now)
	decisions.Place(waits, false)
	f.Clock = f.Clock.Add(10 * time.Second)
	decisions.See(seen)
	f.Clock = f.Clock.Add(20 * time.Second)
	c := podlatency.NewCollector(podlatency.Config{Cache: f.API, Decisions: decisions, Now: f.Now, Log: f.Log})
	if got := testutil.CollectAndCount(c); got != 0 {
		t.Errorf("a process that does not lead tells of %d", got)
	}
	const want = `
# HELP karpenter_pods_provisioning_scheduling_undecided_time_seconds Time since the pod was first seen to need a node, until the first plan for it.
# TYPE karpenter_pods_provisioning_scheduling_undecided_time_seconds gauge
karpenter_pods_provisioning_scheduling_undecided_time_seconds{name="seen",namespace="shop"} 20
# HELP karpenter_pods_provisioning_unbound_time_seconds Time since a plan schedules the pod, until it is bound.
# TYPE karpenter_pods_provisioning_unbound_time_seconds gauge
karpenter_pods_provisioning_unbound_time_seconds{dynamic_resources="false",name="waits",namespace="shop"} 30
# HELP karpenter_pods_provisioning_unstarted_time_seconds Time since a plan schedules the pod, until it runs.
# TYPE karpenter_pods_provisioning_unstarted_time_seconds gauge
karpenter_pods_provisioning_unstarted_time_seconds{name="waits",namespace="shop"} 30
# HELP karpenter_pods_state State of each pod: its node, phase and owner.
# TYPE karpenter_pods_state gauge
karpenter_pods_state{arch="",capacity_type="",instance_type="",managed="false",name="seen",namespace="shop",node="",nodepool="",owner="",phase="Pending",ready="false",scheduled="false",zone=""} 1
karpenter_pods_state{arch="",capacity_type="",instance_type="",managed="false",name="waits",namespace="shop",node="",nodepool="",owner="/apis/apps/v1/namespaces/shop/replicasets/web",phase="Pending",ready="false",scheduled="false",zone=""} 1
karpenter_pods_state{arch="",capacity_type="",instance_type="m.large",managed="true",name="runs",namespace="shop",node="node-c",nodepool="general",owner="",phase="Running",ready="true",scheduled="true",zone="z1"} 1
karpenter_pods_state{arch="",capacity_type="",instance_type="m.large",managed="true",name="starts",namespace="shop",node="node-c",nodepool="general",owner="",phase="Pending",ready="false",scheduled="true",zone="z1"} 1
# HELP karpenter_pods_unbound_time_seconds Time since the pod's creation, until it is bound.
# TYPE karpenter_pods_unbound_time_seconds gauge
karpenter_pods_unbound_time_seconds{dynamic_resources="false",name="seen",namespace="shop"} 30
karpenter_pods_unbound_time_seconds{dynamic_resources="false",name="waits",namespace="shop"} 30
# HELP karpenter_pods_unstarted_time_seconds Time since the pod's creation, until it runs.
# TYPE karpenter_pods_unstarted_time_seconds gauge
karpenter_pods_unstarted_time_seconds{name="seen",namespace="shop"} 30
karpenter_pods_unstarted_time_seconds{name="starts",namespace="shop"} 30
karpenter_pods_unstarted_time_seconds{name="waits",namespace="shop"} 30
`
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = c.Start(ctx) }()
		synctest.Wait()
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		stop()
		synctest.Wait()
		if got := testutil.CollectAndCount(c); got != 0 {
			t.Errorf("a process that does not lead any more tells of %d", got)
		}
	})
}
