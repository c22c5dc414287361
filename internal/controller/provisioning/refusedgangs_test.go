package provisioning

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Pods that a node was launched for in vain get one node at a time, and gangs one for each of their pods.
func TestAGangIsTriedAsAWhole(t *testing.T) {
	gang := engine.Pods(3, "train", engine.InGroup("train"), engine.Labeled("app", "train"))
	single := engine.Pods(2, "web", engine.Labeled("app", "web"))
	s := engine.WithGroups(engine.World(nil, append(gang, single...)...), engine.Gang("train", 3))
	r := &refusals{snap: s, classes: refusal.Classes{}, verdicts: map[string]refusal.Verdict{}}
	for _, pod := range s.Pods {
		r.verdicts[r.classes.Of(pod)] = refusal.Verdict{State: refusal.Due}
	}
	launchesFor := func(pods []*corev1.Pod) (out []schedule.Launch) {
		for _, pod := range pods {
			out = append(out, schedule.Launch{Pods: []*corev1.Pod{pod}})
		}
		return out
	}
	for _, c := range []struct {
		name string
		of   []*corev1.Pod
		want int
	}{
		{"pods in no group", single, 1},
		{"a gang", gang, 3},
		{"a gang, then pods in no group", append(gang[:3:3], single...), 3},
		{"pods in no group, then a gang", append(single[:2:2], gang...), 1},
	} {
		if got := r.one(launchesFor(c.of)); len(got) != c.want {
			t.Errorf("%s: %d launches, want %d", c.name, len(got), c.want)
		}
	}
}
