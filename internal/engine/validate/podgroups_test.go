package validate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// Plans that put the pods on nodes one by one are wrong once they are in a group that kube-scheduler does not bind so.
func TestPlansThatPlaceTooFewPodsOfAGroupAreWrong(t *testing.T) {
	three := []snapshot.Pool{Pool("general", Types(), Limit("nodes", "3"))}
	zones := func(i int, p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{Zone: Zones()[i%3]} }
	for _, c := range []struct {
		name  string
		group *schedulingv1beta1.PodGroup
		edit  func(i int, p *corev1.Pod)
		want  string // part of the error; empty if the plan is right
	}{
		{"three of three", Gang("g", 3), nil, ""},
		{"three of four", Gang("g", 4), nil, "3 pods are placed, and kube-scheduler binds none before 1 more fit"},
		{"fewer pods exist", Gang("g", 5), nil, "kube-scheduler does not try its PodGroup: of 5 pods 4 exist"},
		{"schedulers differ", Gang("g", 3), func(i int, p *corev1.Pod) {
			if i == 3 {
				p.Spec.SchedulerName = "mine"
			}
		}, "different schedulers"},
		{"one zone", Gang("g", 3, GroupKey(Zone)), func(_ int, p *corev1.Pod) { zones(0, p) }, ""},
		{"two zones", Gang("g", 3, GroupKey(Zone)), zones, "must be in one domain of " + Zone},
	} {
		t.Run(c.name, func(t *testing.T) {
			pods := Pods(4, "p", Requests("cpu", "5"), InGroup("g"))
			for i, p := range pods {
				if c.edit != nil {
					c.edit(i, p)
				}
			}
			s := World(three, pods...)
			p := schedule.Solve(s, schedule.DefaultBudget()) // which does not know of the group
			if len(p.Launches) != 3 {
				t.Fatalf("%d launches", len(p.Launches))
			}
			err := validate.Plan(WithGroups(s, c.group), p)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
