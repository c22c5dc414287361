package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestSelectorsOfPodAffinityAreAsTheAPIServerStoredThem: it has added the labels of matchLabelKeys when the pod was created. A label that is
// changed later does not matter to kube-scheduler.
func TestSelectorsOfPodAffinityAreAsTheAPIServerStoredThem(t *testing.T) {
	near := func(edit ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			Near(Zone, "web")(p)
			for _, e := range edit {
				e(&p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0])
			}
		}
	}
	byRevision := func(t *corev1.PodAffinityTerm) { t.MatchLabelKeys = []string{"rev"} }
	stored := func(t *corev1.PodAffinityTerm) {
		t.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "rev", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}}
	}
	running := Node("n", "general", inZone("z2"), func(n *snapshot.Node) {
		n.Allocatable = Resources("cpu", "0", "pods", "110")
		n.Pods = []*corev1.Pod{Bound(Pod("r", Labeled("app", "web"), Labeled("rev", "1")), "n")}
	})
	with := func(rev string, edit ...func(*corev1.PodAffinityTerm)) *snapshot.Snapshot {
		return withNodes(world(Pod("a", Requests("cpu", "500m"), Labeled("rev", rev), near(edit...))), running)
	}
	checkPlans(t, []planCase{
		{"a pod of the API server", with("1", byRevision, stored), []string{"general m.small z2: a"}},
		{"whose label is another now", with("2", byRevision, stored), []string{"general m.small z2: a"}},
		{"a pod of a template", with("1", byRevision), []string{"general m.small z2: a"}},
		{"a pod of a template with another label", with("2", byRevision), []string{"unschedulable (Topology): a"}},
	})
}
