package schedule_test

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// Pods that prefer a zone in which nothing is offered, and nodes apart there, cannot have any of it: it costs nothing.
func TestPreferencesThatNothingMeetsCostNothing(t *testing.T) {
	list := catalogNamed(t, "ec2-spot")
	for _, deployments := range []int{1, 20} {
		for _, n := range []int{20, 60, 200, 600} {
			pods := workload.Diverse(n, uint64(n))
			for i, p := range pods {
				app := fmt.Sprintf("app-%d", i%deployments)
				if deployments == 1 {
					p.Spec.Containers[0].Resources = pods[0].Spec.Containers[0].Resources
				}
				p.Labels, p.Spec.TopologySpreadConstraints, p.Spec.Affinity, p.Spec.NodeSelector = map[string]string{"app": app}, nil, nil, nil
				for _, edit := range []func(*corev1.Pod){
					enginetest.Prefers(1, enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpIn, "nowhere")),
					enginetest.PreferApart(10, enginetest.Zone, app), enginetest.PreferApart(1, enginetest.Host, app),
				} {
					edit(p)
				}
			}
			s := workload.Snapshot([]snapshot.Pool{workload.GeneralPool("general", list)}, pods, false)
			respect := schedule.Solve(s, schedule.Budget{})
			s.Settings.PreferencePolicy = snapshot.PreferencesIgnore
			ignore := schedule.Solve(s, schedule.Budget{})
			if got, want := respect.Stats.HourlyCost, ignore.Stats.HourlyCost; math.Abs(got-want) > 1e-9*want {
				t.Errorf("%d pods of %d deployments cost $%.4f/h, without preferences $%.4f/h", n, deployments, got, want)
			}
		}
	}
}
