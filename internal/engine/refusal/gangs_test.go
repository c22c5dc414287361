package refusal_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// gangOfThree is a PodGroup with three pods, of which so many must be bound together.
func gangOfThree(minCount int32) (members []*corev1.Pod, group snapshot.PodGroup) {
	in := func(p *corev1.Pod) {
		name := "train"
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	}
	members = []*corev1.Pod{pod("a", in), pod("b", in), pod("c", in)}
	object := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "train"}}
	object.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	return members, snapshot.PodGroup{Namespace: "shop", Name: "train", Object: object, Members: members}
}

// kube-scheduler binds no pod of a gang before enough nodes are there: what is wrong is the number of the nodes, and none of them.
func TestNodesOfAGangThatIsShort(t *testing.T) {
	for _, tt := range []struct {
		name     string
		minCount int32
		nodes    int
		coming   bool
		now      int
		refused  int
		cause    refusal.Kind
	}{
		{"EC2 has no capacity for the third node", 3, 2, false, 200, 2, refusal.GangShort},
		{"another type may have some", 3, 2, false, 60, 0, ""},
		{"the third node is on its way", 3, 2, true, 200, 0, ""},
		{"all nodes are up", 3, 3, false, 200, 3, refusal.OnlySchedulers},
		{"enough of them are up", 2, 2, false, 200, 2, refusal.OnlySchedulers},
	} {
		t.Run(tt.name, func(t *testing.T) {
			members, group := gangOfThree(tt.minCount)
			s := &snapshot.Snapshot{Now: at(tt.now), Pods: members, PodGroups: []snapshot.PodGroup{group}}
			for i, p := range members[:tt.nodes] {
				s.Nodes = append(s.Nodes, node(string(rune('x'+i)), 0, p))
			}
			if tt.coming {
				last := node("last", 190, members[2])
				last.Initialized, last.SettledAt = false, time.Time{}
				s.Nodes = append(s.Nodes, last)
			}
			refused := 0
			for _, f := range (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Waiting()}).Find() {
				if f.Outcome != refusal.Refused {
					continue
				}
				if refused++; f.Cause != tt.cause {
					t.Errorf("node %s: cause %s, want %s: %s", f.Node, f.Cause, tt.cause, f.Why)
				}
			}
			if refused != tt.refused {
				t.Errorf("%d nodes are found to be launched in vain, want %d", refused, tt.refused)
			}
		})
	}
}

// Other pods come to a node of a gang while the gang waits for its last node: nothing reserves it. Another one is launched for what is
// missing, and neither it nor the nodes that are up count as launched in vain.
func TestNodesOfAGangOfWhichOthersTookOne(t *testing.T) {
	members, group := gangOfThree(3)
	s := &snapshot.Snapshot{Now: at(200), Pods: members, PodGroups: []snapshot.PodGroup{group}}
	for i, p := range members {
		s.Nodes = append(s.Nodes, node(string(rune('x'+i)), 0, p))
	}
	s.Nodes[2].TakenFrom = []types.UID{members[2].UID}
	again := node("again", 190, members[2])
	again.Initialized, again.SettledAt = false, time.Time{}
	s.Nodes = append(s.Nodes, again)
	for _, f := range (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Waiting()}).Find() {
		if f.Outcome == refusal.Refused {
			t.Errorf("node %s counts as launched in vain: %s", f.Node, f.Why)
		}
	}
}

// EC2 has capacity for two of three nodes, and the nodes that came up are removed as empty. Both are launched again after growing pauses,
// in the end once an hour, and that does not end: capacity comes back without a change of anything here.
func TestAGangThatIsShortIsTriedAgainWithGrowingPauses(t *testing.T) {
	members, group := gangOfThree(3)
	s := &snapshot.Snapshot{Pods: members, PodGroups: []snapshot.PodGroup{group}}
	histories := map[string]*refusal.History{"general": {}}
	var rounds []int
	for second := 0; second < 4*3600; second += 5 {
		s.Now = at(second)
		if len(s.Nodes) > 0 && !s.Now.Before(s.Nodes[0].SettledAt.Add(65*time.Second)) {
			s.Nodes = nil
		}
		found := (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Waiting()}).Find()
		histories["general"].Add(found, s.Now, refusal.FirstPause)
		v := refusal.NewJudge(histories, s).Of(refusal.ClassOf(members[0]))
		if v.State == refusal.Held {
			t.Fatalf("after %d s, the gang is held: %s", second, v.Message())
		}
		if v.State == refusal.Waiting || len(s.Nodes) > 0 {
			continue
		}
		rounds = append(rounds, second)
		for _, p := range members[:2] {
			s.Nodes = append(s.Nodes, node(fmt.Sprintf("%s-%d", p.Name, len(rounds)), second, p))
		}
	}
	if len(rounds) < 5 || len(rounds) > 7 || rounds[3]-rounds[2] < 3600 {
		t.Errorf("the gang was tried after %v s, want three times, and then once an hour", rounds)
	}
}
