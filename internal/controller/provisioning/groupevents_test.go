package provisioning

import (
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The owner of a PodGroup reads on the group which of its fields keeps it from nodes, once for all of its pods.
func TestGroupsHaveEventsOfTheirOwn(t *testing.T) {
	pools := []snapshot.Pool{engine.Pool("general", engine.Types())}
	s := engine.WithGroups(engine.World(pools,
		append(engine.Pods(2, "train", engine.InGroup("train")), engine.Pods(1, "gone", engine.InGroup("gone"))...)...),
		engine.Gang("train", 3))
	f := controllertest.New(t)
	provisioner(f).recordGroupEvents(schedule.Solve(s, schedule.Budget{}), s.PodGroups)
	got := slices.DeleteFunc(f.RecordedEvents(), func(e string) bool { return !strings.Contains(e, "PodGroup") })
	if len(got) != 1 || !strings.Contains(got[0], "minCount") || !strings.Contains(got[0], "train") {
		t.Errorf("events: %q", got)
	}
}
