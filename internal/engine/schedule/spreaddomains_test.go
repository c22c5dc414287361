package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// fullNodeIn is a full node of another architecture.
func fullNodeIn(zone string) snapshot.Node {
	return Node("n-"+zone, "general", func(n *snapshot.Node) {
		n.Labels[Zone], n.Labels[Arch] = zone, "arm64"
		n.Allocatable = Resources("cpu", "1", "memory", "1Gi", "pods", "1")
		n.Pods = []*corev1.Pod{Bound(Pod("full-"+zone, Requests("cpu", "1")), n.Name)}
	})
}

// Four pods spread over zones with a skew of one; nodes come up in z1 and z2. How many of them get one depends on what
// else kube-scheduler counts as a domain.
func TestPodsSpreadOverTheDomainsThatKubeSchedulerKnows(t *testing.T) {
	amd64 := Selects(Arch, "amd64")
	policy := func(affinity, taints corev1.NodeInclusionPolicy) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy, c.NodeTaintsPolicy = &affinity, &taints
		}
	}
	const honor, ignore = corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	tainted := fullNodeIn("z3")
	tainted.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
	claim := fullNodeIn("z3")
	claim.Registered, claim.Initialized, claim.Deleting = false, false, true
	for _, c := range []struct {
		name   string
		nodes  []snapshot.Node
		edit   []func(*corev1.Pod)
		rule   func(*corev1.TopologySpreadConstraint)
		placed int
	}{
		{"a node of another architecture is no domain", []snapshot.Node{fullNodeIn("z3")}, []func(*corev1.Pod){amd64}, policy(honor, ignore), 4},
		{"it is one if the selection does not count", []snapshot.Node{fullNodeIn("z3")}, []func(*corev1.Pod){amd64}, policy(ignore, ignore), 2},
		{"it is one for pods without a selection", []snapshot.Node{fullNodeIn("z3")}, nil, policy(honor, ignore), 2},
		{"a node with a taint is a domain", []snapshot.Node{tainted}, nil, policy(honor, ignore), 2},
		{"it is none if taints count", []snapshot.Node{tainted}, nil, policy(honor, honor), 4},
		{"a node being deleted is a domain until it is gone", []snapshot.Node{claim}, nil, policy(honor, ignore), 2},
		{
			"an empty selector counts no pods",
			[]snapshot.Node{fullNodeIn("z3")},
			nil,
			func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} }, 4,
		},
		{
			"it is not empty with matchLabelKeys",
			[]snapshot.Node{fullNodeIn("z3")},
			nil,
			func(c *corev1.TopologySpreadConstraint) {
				c.LabelSelector, c.MatchLabelKeys = &metav1.LabelSelector{}, []string{"app"}
			}, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			edit := append([]func(*corev1.Pod){Labeled("app", "web"), Requests("cpu", "900m"), Spread(Zone, 1, "web", c.rule)}, c.edit...)
			s := World([]snapshot.Pool{Pool("general", Types(), Require(Zone, corev1.NodeSelectorOpIn, "z1", "z2"))}, Pods(4, "web", edit...)...)
			s.Nodes = c.nodes
			p := schedule.Solve(s, schedule.Budget{})
			if err := validate.Plan(s, p); err != nil {
				t.Fatal(err)
			}
			if got := len(s.Pods) - len(p.Rejected); got != c.placed {
				t.Errorf("%d pods get a node, want %d; rejected: %v", got, c.placed, p.Rejected)
			}
		})
	}
}

// A zone without capacity is no domain while no node that counts is there. It is one again once its capacity returns.
func TestZonesWithoutCapacityAreDomainsOnlyWithNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		nodes  []snapshot.Node
		lost   string
		placed int
	}{
		{"capacity in all zones", nil, "", 4},
		{"no capacity in z3", nil, "z3", 4},
		{"no capacity in z3, where a node is", []snapshot.Node{fullNodeIn("z3")}, "z3", 2},
		{"capacity is back where a node is", []snapshot.Node{fullNodeIn("z3")}, "", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			types := Types()
			for _, it := range types {
				for i := range it.Offerings {
					it.Offerings[i].Available = it.Offerings[i].Zone != c.lost
				}
			}
			pods := Pods(4, "web", Labeled("app", "web"), Requests("cpu", "900m"), Spread(Zone, 1, "web"))
			s := World([]snapshot.Pool{Pool("general", types)}, pods...)
			s.Nodes = c.nodes
			p := solveValid(t, s)
			zones := map[string]bool{}
			for i := range p.Launches {
				zone, _ := p.Launches[i].Requirements.Get(Zone).Single()
				zones[zone] = true
			}
			if got := len(s.Pods) - len(p.Rejected); got != c.placed || zones["z3"] != (c.lost == "") {
				t.Errorf("%d pods get a node, in %v, want %d; rejected: %v", got, zones, c.placed, p.Rejected)
			}
		})
	}
}

// TestNodesWithoutALabelCountForPodsThatExcludeAValueOfIt: nodes for b come up in z2 or z3, and never in a capacity reservation, which they
// therefore have no label of. They count for pods that exclude the reservation: so z2 or z3 will be a domain without pods, and z1 must not
// have two more.
func TestNodesWithoutALabelCountForPodsThatExcludeAValueOfIt(t *testing.T) {
	small := Type("small", 0.1, "cpu", "2", "memory", "8Gi", "pods", "110")
	large := Type("large", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110")
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{
		WithReservation(WithOfferings(small, Offering("z2", "on-demand", 0.1), Offering("z3", "spot", 0.1)), "r-1", 0),
		WithReservation(WithOfferings(large, Offering("z1", "spot", 0.2)), "r-1", 0),
	})}, append(Pods(3, "a", Labeled("app", "a"), Requests("cpu", "3"), Spread(Zone, 1, "a"), Needs(Expr(ReservationID, notIn, "r-1"))),
		Pods(2, "b", Requests("cpu", "1500m"), Needs(Expr(Zone, notIn, "z1")))...)...)
	checkPlans(t, []planCase{{"one in z1, not in r-1", s, []string{
		"general small: b", "general small: b", "general large z1 in r-1: a", "unschedulable (Resources): a x2",
	}}})
}
