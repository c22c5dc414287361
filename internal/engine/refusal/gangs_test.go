package refusal_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// kube-scheduler binds no pod of a gang before enough nodes are there: those that EC2 had capacity for are not the reason.
func TestNodesOfAGangThatIsShortSayNothing(t *testing.T) {
	in := func(p *corev1.Pod) {
		name := "train"
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	}
	members := []*corev1.Pod{pod("a", in), pod("b", in), pod("c", in)}
	for _, tt := range []struct {
		name     string
		minCount int32
		nodes    int
		refused  int
	}{
		{"EC2 has no capacity for the third node", 3, 2, 0},
		{"all nodes are up", 3, 3, 3},
		{"enough of them are up", 2, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "train"}}
			group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: tt.minCount}
			s := &snapshot.Snapshot{Now: at(200), Pods: members}
			s.PodGroups = []snapshot.PodGroup{{Namespace: "shop", Name: "train", Object: group, Members: members}}
			for i, p := range members[:tt.nodes] {
				s.Nodes = append(s.Nodes, node(string(rune('x'+i)), 0, p))
			}
			refused := 0
			for _, f := range (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Waiting()}).Find() {
				if f.Outcome == refusal.Refused {
					refused++
				}
			}
			if refused != tt.refused {
				t.Errorf("%d nodes are found to be launched in vain, want %d", refused, tt.refused)
			}
		})
	}
}
