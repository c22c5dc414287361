package disrupt_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// trainingOn is a snapshot with pods of group "train" on nodes, and a pod of no group on the last of them.
func trainingOn(group *schedulingv1beta1.PodGroup, edit func(*snapshot.Node), nodes ...string) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("general", Types())})
	for i, name := range nodes {
		pods := []*corev1.Pod{Bound(Pod("train-"+name, InGroup("train")), name)}
		if i == len(nodes)-1 {
			pods = append(pods, Bound(Pod("web"), name))
		}
		s.Nodes = append(s.Nodes, Node(name, "general", func(n *snapshot.Node) { n.Pods = pods }, edit))
	}
	return WithGroups(s, group)
}

// A PodGroup with disruptionMode all has one victim: its nodes go together or not at all.
func TestNodesOfAGroupThatIsDisruptedAsAWholeStay(t *testing.T) {
	all := func(g *schedulingv1beta1.PodGroup) {
		g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	plain := func(*snapshot.Node) {}
	bounded := func(n *snapshot.Node) { n.Bounded = true }
	for _, c := range []struct {
		name                         string
		s                            *snapshot.Snapshot
		candidates, blocked, bounded int
	}{
		{"on two nodes", trainingOn(Gang("train", 2, all), plain, "n1", "n2"), 0, 2, 0},
		{"on two nodes with a terminationGracePeriod", trainingOn(Gang("train", 2, all), bounded, "n1", "n2"), 0, 2, 2},
		{"on one node", trainingOn(Gang("train", 1, all), plain, "n1"), 1, 0, 0},
		{"each pod for itself", trainingOn(Gang("train", 2), plain, "n1", "n2"), 2, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := disrupt.NewView(c.s)
			if len(v.Candidates) != c.candidates || len(v.BlockedNodes) != c.blocked || len(v.BoundedDrain) != c.bounded {
				t.Errorf("%d candidates, %d blocked, %d bounded", len(v.Candidates), len(v.BlockedNodes), len(v.BoundedDrain))
			}
			for _, b := range v.BlockedNodes {
				if b.Reason != disrupt.PodGroupTogether {
					t.Errorf("%s: %+v", b.Node.Name, b.Why)
				}
			}
		})
	}
}

// A pod of a gang costs as much as the whole gang, which waits until it is back.
func TestANodeOfAGangCostsAsMuchAsTheGang(t *testing.T) {
	var got []float64
	for _, c := range disrupt.NewView(trainingOn(Gang("train", 3), func(*snapshot.Node) {}, "n1", "n2", "n3")).Candidates {
		got = append(got, c.Cost)
	}
	if len(got) != 3 || got[0] != 4 || got[1] != 4 || got[2] != 5 {
		t.Errorf("costs %v, want 1 for each node, 3 for the gang, and 1 for the pod of no group", got)
	}
}
