package propertytest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// neighborWorlds sets how many worlds of neighborWorld a test run generates.
const neighborWorlds = 800

// neighborWorld is a world in which the rules of pod affinity and anti-affinity matter: DaemonSets are what pods
// follow or keep off, or keep off themselves, pods have several terms, and running pods are terminating.
func (d random) neighborWorld() *snapshot.Snapshot {
	s := d.anyWorld()
	for len(s.DaemonSets) < 2 {
		name := []string{"agent-x", "agent-y"}[len(s.DaemonSets)]
		s.DaemonSets = append(s.DaemonSets, d.daemon(name))
	}
	key := func() string { return pick(d, Host, Host, Zone, Zone, "rack", Arch, Capacity) }
	app := func() string { return pick(d, "a", "b", "c", "d", "agent") }
	for i := range s.DaemonSets {
		set := &s.DaemonSets[i]
		edits := []edit{Labeled("app", pick(d, "agent", "agent", "a", "b"))}
		if d.maybe(30) {
			edits = append(edits, Apart(key(), app()))
		}
		if d.maybe(40) {
			edits = append(edits, pick(d, Selects(Arch, "arm64"), Selects(Zone, "z1"), Selects(Capacity, "spot"), Selects("team", "x")))
		}
		all(edits...)(set.Pod)
		for k := range s.Nodes {
			for _, pod := range s.Nodes[k].Pods {
				if len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].Name == set.Name {
					all(edits[:len(edits)-1]...)(pod)
				}
			}
		}
	}
	for _, pod := range s.Pods {
		if d.maybe(25) {
			Apart(key(), "agent")(pod)
		}
		if d.maybe(25) {
			Near(key(), pick(d, "agent", pod.Labels["app"]))(pod)
		}
		if d.maybe(15) {
			Near(key(), pick(d, "agent", pod.Labels["app"]))(pod)
		}
	}
	for k := range s.Nodes {
		for _, pod := range s.Nodes[k].Pods {
			if d.maybe(25) && !slices.Contains(s.Pods, pod) {
				pod.DeletionTimestamp = &metav1.Time{Time: s.Now.Add(time.Duration(d.from(-3, 6)) * 30 * time.Second)}
			}
		}
	}
	return s
}

// TestPlansKeepTheRulesOfNeighbors compares affinity and anti-affinity on planned nodes with the rules of
// kube-scheduler, DaemonSets' pods and terminating pods included.
func TestPlansKeepTheRulesOfNeighbors(t *testing.T) {
	first, count := worldRange(t, neighborWorlds)
	seen := &tally{reasons: map[schedule.Code]int{}}
	var next atomic.Uint64
	var failed atomic.Int32
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for failed.Load() < 3 {
				k := next.Add(1) - 1
				if k >= count {
					return
				}
				d := seeded(7_000_000 + first + k)
				s := d.neighborWorld()
				p := schedule.Solve(s, schedule.Budget{})
				if err := validate.Plan(s, p); err != nil {
					failed.Add(1)
					t.Errorf("world %d: %v\n%s%s", first+k, err, Show(s), Describe(p))
					continue
				}
				seen.add(s, p)
			}
		})
	}
	group.Wait()
	if placed := seen.onNodes + seen.launched; failed.Load() == 0 && (placed < int(count) || seen.reasons[schedule.Topology] < int(count)) {
		t.Errorf("too little happened in %d worlds: %d pods placed, reasons %v", count, placed, seen.reasons)
	}
}
