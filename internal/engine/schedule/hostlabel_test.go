package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestNodesWithoutAHostLabelAreNoHosts: pods that spread over hosts, or follow others on theirs, do not fit there. Those that keep apart do.
func TestNodesWithoutAHostLabelAreNoHosts(t *testing.T) {
	unlabeled := func() snapshot.Node {
		return Node("n", "", func(n *snapshot.Node) {
			n.Claim, n.Labels = "", map[string]string{Zone: "z1", Arch: "amd64", corev1.LabelOSStable: "linux"}
			n.Pods = []*corev1.Pod{Bound(Pod("r", Labeled("app", "web")), "n")}
		})
	}
	with := func(edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		return withNodes(world(Pod("a", append(edit, Requests("cpu", "500m"))...)), unlabeled())
	}
	checkPlans(t, []planCase{
		{"no rule", with(), []string{"on n: a"}},
		{"a spread", with(Labeled("app", "web"), Spread(Host, 5, "web")), []string{"general m.small: a"}},
		{"affinity", with(Near(Host, "web")), []string{"unschedulable (Topology): a"}},
		{"anti-affinity", with(Apart(Host, "web")), []string{"on n: a"}},
	})
}
