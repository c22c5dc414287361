package provisioning

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// What is measured of a pass: the pods without a place, those that were not considered, and the zones that are left.
func TestMetricsOfAPass(t *testing.T) {
	volume := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}},
		}
	}
	huge := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("999")
	}
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Pool("general"),
		pending("a", waiting, selects("z1")),
		pending("b", waiting, selects("z1")),
		pending("c", waiting),
		pending("d", waiting, huge),
		pending("e", waiting, volume),
	)
	p := provisioner(f)
	run(t, p)
	for name, c := range map[string]struct{ got, want float64 }{
		"unschedulable": {testutil.ToFloat64(f.Metrics.Unschedulable.WithLabelValues("provisioner")), 1},
		"ignored":       {testutil.ToFloat64(f.Metrics.Ignored), 1},
		"in z1":         {testutil.ToFloat64(f.Metrics.PendingByZone.WithLabelValues("provisioner", "z1")), 2},
		"flexible":      {testutil.ToFloat64(f.Metrics.PendingByZone.WithLabelValues("provisioner", "flexible")), 2},
		"being planned": {float64(testutil.CollectAndCount(f.Metrics.Plans)), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	f.Clock = f.Clock.Add(time.Minute) // by then nobody waits for what was launched for them
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.Do(f.API.Delete(t.Context(), pending(name)))
	}
	run(t, p)
	if got := testutil.ToFloat64(f.Metrics.Ignored) + testutil.ToFloat64(f.Metrics.Unschedulable.WithLabelValues("provisioner")); got != 0 {
		t.Errorf("without pods, %v are left over", got)
	}
	if got := testutil.CollectAndCount(f.Metrics.PendingByZone); got != 0 {
		t.Errorf("without pods, %d zones are left", got)
	}
}

func waiting(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }

func TestMetricsOfARunningPlan(t *testing.T) {
	f := controllertest.New(t)
	done := f.Metrics.Plans.Begin("provisioner", "3", 42, func() time.Duration { return 1500 * time.Millisecond })
	const want = `
# HELP karpenter_scheduler_queue_depth Pods of the plan in progress.
# TYPE karpenter_scheduler_queue_depth gauge
karpenter_scheduler_queue_depth{controller="provisioner",scheduling_id="3"} 42
# HELP karpenter_scheduler_unfinished_work_seconds For how long the plan has been in progress.
# TYPE karpenter_scheduler_unfinished_work_seconds gauge
karpenter_scheduler_unfinished_work_seconds{controller="provisioner",scheduling_id="3"} 1.5
`
	if err := testutil.CollectAndCompare(f.Metrics.Plans, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	done()
	if got := testutil.CollectAndCount(f.Metrics.Plans); got != 0 {
		t.Errorf("%d are left behind", got)
	}
}

func TestDecisionsOfAPass(t *testing.T) {
	healthy := func(p *karpv1.NodePool) {
		condition.SetTrue(p, karpv1.ConditionNodeRegistrationHealthy, controllertest.Start)
	}
	unhealthy := func(p *karpv1.NodePool) {
		condition.SetFalse(p, karpv1.ConditionNodeRegistrationHealthy, condition.Because("X", ""), controllertest.Start)
	}
	closed := func(p *karpv1.NodePool) {
		condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("X", ""), controllertest.Start)
	}
	start := controllertest.Start
	for _, c := range []struct {
		name string
		pool func(*karpv1.NodePool)
		want podlatency.Decision
	}{
		{"a healthy pool", healthy, podlatency.Decision{Seen: start.Add(-time.Second), Decided: start, Schedulable: start, Healthy: start}},
		{"a pool that is not", unhealthy, podlatency.Decision{Seen: start.Add(-time.Second), Decided: start, Schedulable: start}},
		{"no pool", closed, podlatency.Decision{Seen: start.Add(-time.Second), Decided: start}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := pending("a")
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", c.pool), pod)
			p := provisioner(f)
			p.Decisions = podlatency.NewDecisions(f.Metrics, f.Now)
			f.Clock = start.Add(-time.Second)
			shown(t, &PodTrigger{Batch: NewBatch(0, 0), Decisions: p.Decisions}, pod)
			f.Clock = start
			run(t, p)
			if got := p.Decisions.Of(pod.UID); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
