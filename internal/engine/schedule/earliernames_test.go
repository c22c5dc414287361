package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// kube-scheduler looks labels up by the very names that pods state. A node that exists has a label under a name or not; a new one gets the
// earlier and the present name from its kubelet and the cloud controller manager.
func TestEarlierNamesOfLabels(t *testing.T) {
	const zone, arch = corev1.LabelFailureDomainBetaZone, "beta.kubernetes.io/arch"
	both := func(n *snapshot.Node) {
		for key, value := range map[string]string{zone: "z1", corev1.LabelFailureDomainBetaRegion: "r", arch: "amd64"} {
			n.Labels[key] = value
		}
	}
	unmanaged := func(n *snapshot.Node) { n.Claim, n.ClaimUID, n.Pool = "", "", "" }
	joins := func(n *snapshot.Node) { n.Initialized = false }
	web := Labeled("app", "web")
	client := func(p *corev1.Pod) {
		Labeled("app", "client")(p)
		Near(zone, "web")(p)
	}
	const onNode, onNew, nowhere = "node", "new node", "nowhere"
	for _, tt := range []struct {
		name string
		node func(*snapshot.Node)
		pod  func(*corev1.Pod)
		want string
	}{
		{"a selector", nil, Selects(zone, "z1"), onNew},
		{"a selector on a node with both names", both, Selects(zone, "z1"), onNode},
		{"a selector on a node that joins", joins, Selects(zone, "z1"), onNode},
		{"a selector on an unmanaged node", unmanaged, Selects(zone, "z1"), onNew},
		{"node affinity", nil, Needs(Expr(arch, corev1.NodeSelectorOpIn, "amd64")), onNew},
		{"node affinity on a node with both names", both, Needs(Expr(arch, corev1.NodeSelectorOpIn, "amd64")), onNode},
		{"a spread", nil, Spread(zone, 1, "web"), onNew},
		{"a spread on a node with both names", both, Spread(zone, 2, "web"), onNode},
		{"a spread that counts no pods there", nil, Spread(zone, 1, "other"), onNew},
		{"affinity to a pod without a domain", nil, client, nowhere},
		{"affinity to a pod with one", both, client, onNode},
		{"the first pod of a set, beside one without a domain", nil, Near(zone, "web"), onNew},
		{"anti-affinity", nil, Apart(zone, "web"), onNode},
		{"anti-affinity on a node with both names", both, Apart(zone, "web"), onNew},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())}, Pod("a", web, tt.pod))
			s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("b", web), "n1")}
				if tt.node != nil {
					tt.node(n)
				}
			})}
			s.NoteLacking()
			p := schedule.Solve(s, schedule.Budget{})
			if err := validate.Plan(s, p); err != nil {
				t.Error(err)
			}
			got := nowhere
			switch {
			case len(p.Placements) > 0:
				got = onNode
			case len(p.Launches) > 0:
				got = onNew
			}
			if got != tt.want {
				t.Errorf("on %s, want on %s", got, tt.want)
			}
		})
	}
}
