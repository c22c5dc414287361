package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// onePodNodes is an instance type of which each node holds one of the pods of gangPods.
func onePodNodes() []*catalog.InstanceType {
	return []*catalog.InstanceType{Type("one", 1, "cpu", "2", "memory", "8Gi")}
}

// gangPods are n pods of a group, created at a minute.
func gangPods(n int, group string, minute int, edit ...func(*corev1.Pod)) []*corev1.Pod {
	created := func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.Time{Time: Now().Add(time.Duration(minute-60) * time.Minute)}
	}
	return Pods(n, group, append([]func(*corev1.Pod){Requests("cpu", "1500m"), InGroup(group), created}, edit...)...)
}

// placedPods counts the pods with a node in the plan, by group.
func placedPods(p schedule.Plan) map[string]int {
	out := map[string]int{}
	count := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			name, _ := snapshot.PodGroupOf(pod)
			out[name.Name]++
		}
	}
	for i := range p.Launches {
		count(p.Launches[i].Pods)
	}
	for i := range p.Placements {
		count(p.Placements[i].Pods)
	}
	return out
}

func TestAGangGetsNodesForAllThatItNeedsOrNone(t *testing.T) {
	four := func(limit string) *snapshot.Snapshot {
		pools := []snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", limit))}
		return WithGroups(World(pools, gangPods(5, "train", 0)...), Gang("train", 4))
	}
	for _, c := range []struct {
		name     string
		s        *snapshot.Snapshot
		launches int
		// rejected is part of each reason, code its code.
		rejected string
	}{
		{"room for fewer than minCount", four("3"), 0, "needs nodes for 4 pods at the same time (gang.minCount): 3 of its 5 pods fit"},
		{"the message has the first cause", four("3"), 0, "does not: nodepool general: the pool's limit of 3 nodes"},
		{"room for minCount", four("4"), 4, "limit of 4 nodes"},
		{"room for all", four("5"), 5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := solveValid(t, c.s)
			if len(p.Launches) != c.launches || len(p.Launches)+len(p.Rejected) < 5 {
				t.Errorf("%d launches and %d rejected, want %d launches", len(p.Launches), len(p.Rejected), c.launches)
			}
			for _, r := range p.Rejected {
				if !strings.Contains(wording.Reason(r.Reasons[0]), c.rejected) {
					t.Errorf("%s: %s", r.Pod.Name, wording.Reason(r.Reasons[0]))
				}
				if (r.Reasons[0].Code == schedule.PodGroup) != (c.launches == 0) {
					t.Errorf("%s: code %s", r.Pod.Name, r.Reasons[0].Code)
				}
			}
		})
	}
}

func TestAGangThatDoesNotFitLeavesItsRoom(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", "3"))}
	pods := slices.Concat(gangPods(4, "train", 0), Pods(3, "web", Requests("cpu", "1")))
	p := solveValid(t, WithGroups(World(pools, pods...), Gang("train", 4)))
	if got, want := placedPods(p), map[string]int{"": 3}; !maps.Equal(got, want) {
		t.Errorf("placed %v, want %v", got, want)
	}
}

// crowd are n gangs of which one pod fits and the other does not, and the gang "late", which fits.
func crowd(n int, limit string) *snapshot.Snapshot {
	groups := []*schedulingv1beta1.PodGroup{Gang("late", 2)}
	pods := gangPods(2, "late", n)
	for i := range n {
		name := fmt.Sprintf("crowd-%02d", i)
		groups = append(groups, Gang(name, 2))
		pods = append(append(pods, gangPods(1, name, i)...), gangPods(1, name+"-large", i, InGroup(name), Requests("cpu", "99"))...)
	}
	return WithGroups(World([]snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", limit))}, pods...), groups...)
}

// Planning by halves would find some of the gangs that do not fit in each pass, the same ones in the next.
func TestGangsThatFitNowhereHoldUpNoOther(t *testing.T) {
	p := solveValid(t, crowd(60, "1000"))
	if diff := cmp.Diff(map[string]int{"late": 2}, placedPods(p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, r := range p.Rejected {
		if !strings.Contains(wording.Reason(r.Reasons[0]), "1 of its 2 pods fit") {
			t.Errorf("%s: %s", r.Pod.Name, wording.Reason(r.Reasons[0]))
		}
	}
}

// Those that do not fit take the room in the plan of all, so that the other seems not to fit, either.
func TestAGangAmongManyThatFitNowhereHasItsTurn(t *testing.T) {
	s := crowd(60, "2")
	for range 40 { // passes
		if p := solveValid(t, s); placedPods(p)["late"] == 2 {
			return
		}
		s.Now = s.Now.Add(10 * time.Second)
	}
	t.Error("it gets no nodes in 40 passes")
}

func TestOfTwoGangsTheFirstInTheQueueGetsTheRoom(t *testing.T) {
	high := int32(10)
	first := func(p *corev1.Pod) { p.Spec.Priority = &high }
	for _, c := range []struct {
		name string
		pods []*corev1.Pod
		a, b *schedulingv1beta1.PodGroup
		want map[string]int
	}{
		{"the older", slices.Concat(gangPods(3, "a", 2), gangPods(3, "b", 1)), Gang("a", 3), Gang("b", 3), map[string]int{"b": 3}},
		{
			"the one of higher priority", slices.Concat(gangPods(3, "a", 2, first), gangPods(3, "b", 1)),
			Gang("a", 3, func(g *schedulingv1beta1.PodGroup) { g.Spec.Priority = &high }), Gang("b", 3),
			map[string]int{"a": 3},
		},
		{"the only one that fits", slices.Concat(gangPods(3, "a", 2), gangPods(9, "b", 1)), Gang("a", 3), Gang("b", 9), map[string]int{"a": 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pools := []snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", "4"))}
			p := solveValid(t, WithGroups(World(pools, c.pods...), c.a, c.b))
			if got := placedPods(p); !maps.Equal(got, c.want) {
				t.Errorf("placed %v, want %v", got, c.want)
			}
		})
	}
}

func TestPodsOfAGangWithEnoughNodesArePlannedOneByOne(t *testing.T) {
	pools := func() []snapshot.Pool { return []snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", "1"))} }
	running := gangPods(4, "train", 0)
	waiting := running[2:]
	s := World(pools(), waiting...)
	for i, name := range []string{"n1", "n2"} {
		s.Nodes = append(s.Nodes, Node(name, "general", func(n *snapshot.Node) {
			n.Allocatable, n.Pods = Resources("cpu", "2", "memory", "8Gi", "pods", "110"), []*corev1.Pod{Bound(running[i], name)}
		}))
	}
	for _, c := range []struct {
		name     string
		minCount int32
		want     int
	}{
		{"minCount has nodes", 2, 1},
		{"one more is needed", 3, 1},
		{"two more are needed, and one fits", 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := *s
			if p := solveValid(t, WithGroups(&of, Gang("train", c.minCount))); len(p.Launches) != c.want {
				t.Errorf("%d launches, want %d: %v", len(p.Launches), c.want, p.Rejected)
			}
		})
	}
}

func TestHeldGroupsGetNoNodes(t *testing.T) {
	pods := gangPods(4, "train", 0)
	for _, c := range []struct {
		name  string
		group *schedulingv1beta1.PodGroup
		edit  func([]*corev1.Pod)
		want  string
	}{
		{"minCount pods do not exist", Gang("train", 8), nil, "needs 8 pods at the same time (gang.minCount), and 4 exist"},
		{"part of a group of groups", Gang("train", 4, func(g *schedulingv1beta1.PodGroup) {
			parent := "all"
			g.Spec.ParentCompositePodGroupName = &parent
		}), nil, `is part of CompositePodGroup "all"`},
		{"schedulers differ", Gang("train", 4), func(p []*corev1.Pod) { p[2].Spec.SchedulerName = "mine" }, "two schedulers"},
		{"the group of another namespace", Gang("train", 4, func(g *schedulingv1beta1.PodGroup) { g.Namespace = "other" }), nil, "does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := make([]*corev1.Pod, len(pods))
			for i := range pods {
				own[i] = pods[i].DeepCopy()
			}
			if c.edit != nil {
				c.edit(own)
			}
			s := WithGroups(World([]snapshot.Pool{Pool("general", onePodNodes())}, own...), c.group)
			if c.group.Namespace != "default" {
				s.PodGroups = append(s.PodGroups, snapshot.PodGroup{Namespace: "default", Name: "train", Members: own})
			}
			p := solveValid(t, s)
			if len(p.Launches) != 0 || len(p.Rejected) != 4 {
				t.Fatalf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
			}
			for _, r := range p.Rejected {
				if r.Reasons[0].Code != schedule.PodGroup || !strings.Contains(wording.Reason(r.Reasons[0]), c.want) {
					t.Errorf("%s: %+v", r.Pod.Name, r.Reasons)
				}
			}
		})
	}
}

// kube-scheduler fails for the group before it tries a pod: those that have completed count as members, and not as scheduled.
func TestAGangOfWhichTooFewPodsHaveNotCompletedGetsNoNodes(t *testing.T) {
	s := WithGroups(World([]snapshot.Pool{Pool("general", onePodNodes())}, gangPods(4, "train", 0)...), Gang("train", 6))
	for _, done := range gangPods(2, "done", 0, InGroup("train")) {
		done.Status.Phase = corev1.PodSucceeded
		s.PodGroups[0].Members = append(s.PodGroups[0].Members, done)
	}
	p := solveValid(t, s)
	const want = "needs nodes for 6 pods at the same time (gang.minCount): 4 of its 4 pods fit. No others wait for a node: the rest of " +
		"the group has completed, or is leaving"
	if len(p.Launches) != 0 || len(p.Rejected) != 4 || !strings.Contains(wording.Reason(p.Rejected[0].Reasons[0]), want) {
		t.Errorf("%d launches, rejected %+v", len(p.Launches), p.Rejected)
	}
}

func TestGangsWithDifferentPodsArePlanned(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", Types()), Pool("special", Types(), PoolTaint("special", corev1.TaintEffectNoSchedule))}
	pods := slices.Concat(gangPods(2, "train", 0), []*corev1.Pod{
		Pod("driver", InGroup("train"), Requests("cpu", "7"), Tolerates("special"), Selects("karpenter.sh/nodepool", "special")),
	})
	p := solveValid(t, WithGroups(World(pools, pods...), Gang("train", 3)))
	if len(p.Rejected) != 0 {
		t.Errorf("rejected: %+v", p.Rejected)
	}
}

func TestWithoutPodGroupsInTheAPIPodsArePlannedOneByOne(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", "3"))}
	if p := solveValid(t, World(pools, gangPods(4, "train", 0)...)); len(p.Launches) != 3 {
		t.Errorf("%d launches, want 3", len(p.Launches))
	}
}

// Nodes for two of the three pods are in flight, and EC2 had no capacity for the third.
func TestOfAGangTheMissingPartIsPlannedAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		available bool
		launches  int
	}{
		{"one more node is launched, while another type has capacity", true, 1},
		{"none is launched, while nothing has capacity", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			sold := onePodNodes()
			for i := range sold[0].Offerings {
				sold[0].Offerings[i].Available = c.available
			}
			pods := gangPods(3, "train", 0)
			s := World([]snapshot.Pool{Pool("general", sold)}, pods...)
			for i, name := range []string{"c1", "c2"} {
				s.Nodes = append(s.Nodes, Node(name, "general", func(n *snapshot.Node) {
					n.Registered, n.Initialized, n.Launched, n.Claim = false, false, true, name
					n.Allocatable, n.Nominated = Resources("cpu", "2", "memory", "8Gi", "pods", "110"), []types.UID{pods[i].UID}
				}))
			}
			p := solveValid(t, WithGroups(s, Gang("train", 3)))
			if len(p.Launches) != c.launches || (len(p.Rejected) == 0) != c.available {
				t.Fatalf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
			}
			for _, r := range p.Rejected {
				if why := wording.Reason(r.Reasons[0]); !strings.Contains(why, "2 of its 3 pods fit") {
					t.Errorf("%s: %s", r.Pod.Name, why)
				}
			}
		})
	}
}
