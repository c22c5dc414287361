package propertytest

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// schedulerWorlds sets how many worlds a test run compares with the rules of the scheduler.
const schedulerWorlds = 400

// mendedWorlds holds those after the first schedulerWorlds in which plans once differed: two policies of one constraint were one group, a
// node for other pods made a domain that counted, pods without a rule sat on a node before its zone was chosen, rules of two apps crossed.
var mendedWorlds = []uint64{595, 691, 746, 1694, 1922, 2285, 3597, 4459, 5975}

// TestTheSchedulerAcceptsPlans carries plans out under the scheduler's rules: the launches come up, as any of what they may
// become, and daemons start. Then there is an order in which the scheduler accepts each pod on its node, and after it no pod
// that was rejected would be accepted by an existing node, or by one more node that can be launched.
// DOVETAIL_WORLDS=first,count compares others.
func TestTheSchedulerAcceptsPlans(t *testing.T) {
	schedulerAccepts(t, func(seed uint64) *snapshot.Snapshot { return seeded(3_000_000 + seed).schedulerWorld() }, mendedWorlds...)
}

// TestTheSchedulerAcceptsPlansOverFullHosts does the same for clusters of which each node has pods that spread over hosts, and mostly no
// room for more: how many of them a new host may hold depends on those.
func TestTheSchedulerAcceptsPlansOverFullHosts(t *testing.T) {
	schedulerAccepts(t, func(seed uint64) *snapshot.Snapshot { return seeded(5_000_000 + seed).fullHostsWorld() })
}

func schedulerAccepts(t *testing.T, world func(seed uint64) *snapshot.Snapshot, more ...uint64) {
	first, count := worldRange(t, schedulerWorlds)
	placed, rejected, failed := 0, 0, 0
	seen := NewTally(SchedulerHappenings()...)
	all := os.Getenv("DOVETAIL_FINDINGS") != "" // list every difference, each as found
	var seeds []uint64
	for seed := first; seed < first+count; seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range append(seeds, more...) {
		if failed == 3 && !all {
			break
		}
		s := world(seed)
		plan := schedule.Solve(s, schedule.Budget{})
		why := Disagreement(s, plan, nil, seeded(seed).next)
		placed, rejected = placed+len(s.Pods)-len(plan.Rejected), rejected+len(plan.Rejected)
		if seed >= first && seed < first+count { // the others were not chosen by chance
			seen.Add(s, &plan)
		}
		kind, _, _ := strings.Cut(why, ":")
		if why == "" {
			continue
		}
		failed++
		small := Shrink(s, func(w *snapshot.Snapshot) bool {
			if len(w.Pools) == 0 {
				return false
			}
			found := Disagreement(w, schedule.Solve(w, schedule.Budget{}), nil, seeded(seed).next)
			return strings.HasPrefix(found, kind+":")
		})
		smallPlan := schedule.Solve(small, schedule.Budget{})
		t.Errorf("world %d: %s\nshrunk: %s\n%s%s", seed, why, Disagreement(small, smallPlan, nil, seeded(seed).next), Show(small), Describe(smallPlan))
	}
	for _, rare := range seen.Rare() {
		t.Errorf("too little happened: %s", rare)
	}
	t.Logf("%d pods placed, %d rejected, %d of %d worlds differ", placed, rejected, failed, count)
}

// TestPodsFollowOneThatTerminatesBeforeOthersTakeItsPlace: c follows a pod that terminates, and has to come before it is gone; a keeps
// away from another one, and has to come after. The scheduler binds both, although at no moment it would both.
func TestPodsFollowOneThatTerminatesBeforeOthersTakeItsPlace(t *testing.T) {
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Now()} }
	on := func(name, zone string, pods ...*corev1.Pod) snapshot.Node {
		return Node(name, "general", func(n *snapshot.Node) {
			n.Labels[Zone], n.Allocatable = zone, Resources("cpu", "1", "memory", "4Gi", "pods", "110")
			for _, p := range pods {
				n.Pods = append(n.Pods, Bound(p, name))
			}
		})
	}
	for _, c := range []struct {
		name, refused string
		pods          []*corev1.Pod
	}{
		{"one follows, one keeps away", "", []*corev1.Pod{
			Pod("c", Near(Zone, "c"), Selects(Zone, "z1")), Pod("a", Apart(Zone, "a"), Selects(Zone, "z2")),
		}},
		{"one does both", "refused: c", []*corev1.Pod{Pod("c", Near(Zone, "c"), Apart(Zone, "c"), Selects(Zone, "z1"))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())}, c.pods...)
			s.Nodes = []snapshot.Node{
				on("n1", "z1", Pod("c-old", Labeled("app", "c"), terminating)), on("n2", "z2", Pod("a-old", Labeled("app", "a"), terminating)),
			}
			plan := schedule.Plan{}
			for _, p := range c.pods {
				node := "n" + strings.TrimPrefix(p.Spec.NodeSelector[Zone], "z")
				plan.Placements = append(plan.Placements, schedule.Placement{Node: node, Pods: []*corev1.Pod{p}})
			}
			why := Disagreement(s, plan, nil, seeded(1).next)
			if (why == "") != (c.refused == "") || !strings.HasPrefix(why, c.refused) {
				t.Errorf("%q, want %q", why, c.refused)
			}
		})
	}
}

// TestNodesInFlightComeUpInTurn: each of three nodes in flight brings a pod of a DaemonSet, and a pod that is nominated to one of them may
// have two beside it in its domain. The scheduler binds it once its node and another are there.
func TestNodesInFlightComeUpInTurn(t *testing.T) {
	flying := func(name string) snapshot.Node {
		return Node(name, "general", func(n *snapshot.Node) {
			n.Initialized, n.Allocatable = false, Resources("cpu", "4", "memory", "16Gi", "pods", "110")
		})
	}
	fewest := int32(9)
	for _, c := range []struct {
		name, refused string
		skew          int32
	}{{"two of them may be up", "", 2}, {"none may be up", "refused: c", 0}} {
		t.Run(c.name, func(t *testing.T) {
			pod := Pod("c", Spread(Zone, c.skew, "agent", func(t *corev1.TopologySpreadConstraint) { t.MinDomains = &fewest }))
			s := World([]snapshot.Pool{Pool("general", Types())}, pod)
			s.Nodes = []snapshot.Node{flying("n1"), flying("n2"), flying("n3")}
			s.DaemonSets = []snapshot.DaemonSet{{Namespace: "default", Name: "agent", Pod: Pod("agent", Labeled("app", "agent"))}}
			plan := schedule.Plan{Placements: []schedule.Placement{{Node: "n2", Pods: []*corev1.Pod{pod}}}}
			why := Disagreement(s, plan, nil, seeded(1).next)
			if (why == "") != (c.refused == "") || !strings.HasPrefix(why, c.refused) {
				t.Errorf("%q, want %q", why, c.refused)
			}
		})
	}
}
