package validate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// world has a rule of each kind in play: what it leads to is valid, and each test breaks one thing in it.
func world() *snapshot.Snapshot {
	s := World(
		[]snapshot.Pool{Pool("general", Types(), Limit("cpu", "20"))},
		slices.Concat(
			Pods(2, "web", Requests("cpu", "500m"), Labeled("app", "web"), Spread(Zone, 1, "web")),
			Pods(1, "near", Requests("cpu", "100m"), Near(Zone, "web")),
			Pods(2, "port", Requests("cpu", "500m"), HostPort("", 80, "TCP")),
			Pods(1, "hard", Requests("cpu", "500m"), Tolerates("hard"), Selects("kind", "hard")),
			Pods(1, "apart", Requests("cpu", "500m"), Labeled("app", "apart"), Apart(Host, "apart")),
		)...,
	)
	s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
		n.Taints = []corev1.Taint{{Key: "hard", Effect: corev1.TaintEffectNoSchedule}}
		n.Labels["kind"] = "hard"
		n.Pods = []*corev1.Pod{Bound(Pod("old", Requests("cpu", "3"), Labeled("app", "apart")), "n1")}
	})}
	return s
}

func find(p *schedule.Plan, prefix string) *schedule.Launch {
	for i := range p.Launches {
		if slices.ContainsFunc(p.Launches[i].Pods, func(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Name, prefix) }) {
			return &p.Launches[i]
		}
	}
	return &schedule.Launch{}
}

func pod(s *snapshot.Snapshot, name string) *corev1.Pod {
	return s.Pods[slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return p.Name == name })]
}

// move takes a pod from wherever it is to another launch.
func move(s *snapshot.Snapshot, p *schedule.Plan, name, to string) {
	target := pod(s, name)
	is := func(o *corev1.Pod) bool { return o == target }
	for i := range p.Launches {
		p.Launches[i].Pods = slices.DeleteFunc(slices.Clone(p.Launches[i].Pods), is)
	}
	for i := range p.Placements {
		p.Placements[i].Pods = slices.DeleteFunc(slices.Clone(p.Placements[i].Pods), is)
	}
	p.Launches = slices.DeleteFunc(p.Launches, func(l schedule.Launch) bool { return len(l.Pods) == 0 })
	if to == "n1" {
		p.Placements = append(p.Placements, schedule.Placement{Node: "n1", Claim: "n1-claim", Pods: []*corev1.Pod{target}})
		return
	}
	l := find(p, to)
	l.Pods = append(l.Pods, target)
}

func TestPlanFindsViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*snapshot.Snapshot, *schedule.Plan)
		want string
	}{
		{"nothing", func(*snapshot.Snapshot, *schedule.Plan) {}, ""},
		{"a pod forgotten", func(_ *snapshot.Snapshot, p *schedule.Plan) { p.Launches = p.Launches[1:] }, "in the plan 0 times"},
		{
			"a pod placed twice", func(_ *snapshot.Snapshot, p *schedule.Plan) { p.Launches = append(p.Launches, p.Launches[0]) },
			"in the plan 2 times",
		},
		{"a rejection without a reason", func(s *snapshot.Snapshot, p *schedule.Plan) {
			s.Pods = append(s.Pods, Pod("x"))
			p.Rejected = append(p.Rejected, schedule.Rejection{Pod: s.Pods[len(s.Pods)-1]})
		}, "without a reason"},
		{"a taint not tolerated", func(s *snapshot.Snapshot, p *schedule.Plan) { move(s, p, "near-000", "n1") }, "does not tolerate"},
		{"a node overloaded", func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Allocatable = Resources("cpu", "3200m", "memory", "16Gi", "pods", "10")
		}, "requested"},
		{"a deleting node", func(s *snapshot.Snapshot, _ *schedule.Plan) { s.Nodes[0].Deleting = true }, "which is deleting"},
		{"a selector not satisfied", func(s *snapshot.Snapshot, p *schedule.Plan) { move(s, p, "hard-000", "web") }, "nodeSelector"},
		{"a type too small", func(_ *snapshot.Snapshot, p *schedule.Plan) {
			l := find(p, "web")
			l.InstanceTypes = append(slices.Clone(l.InstanceTypes), Type("m.tiny", 9, "cpu", "100m", "memory", "1Gi"))
		}, "m.tiny is not one of its pool's"},
		{"a type out of order", func(_ *snapshot.Snapshot, p *schedule.Plan) {
			l := find(p, "web")
			l.InstanceTypes = append(slices.Clone(l.InstanceTypes), Types()[0])
		}, "is cheaper than a type listed before it"},
		{
			"an offering that is not the cheapest", func(_ *snapshot.Snapshot, p *schedule.Plan) { find(p, "web").Offering.Price *= 2 },
			"the cheapest is",
		},
		{"one host port twice", func(s *snapshot.Snapshot, p *schedule.Plan) {
			l := find(p, "port")
			for _, other := range []string{"port-000", "port-001"} {
				if !slices.Contains(l.Pods, pod(s, other)) {
					move(s, p, other, l.Pods[0].Name)
					return
				}
			}
		}, "host port 80"},
		{"a volume of another zone", func(s *snapshot.Snapshot, p *schedule.Plan) {
			l := find(p, "web")
			Claims("data")(l.Pods[0])
			s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{
				{
					Namespace: "default",
					Name:      "data",
				}: {
					ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
					Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
				},
			}
			s.Volumes.Volumes = map[string]*corev1.PersistentVolume{"pv": {Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{Expr(Zone, corev1.NodeSelectorOpIn, "z9")}}}},
			}}}}
		}, "cannot be attached"},
		{"a limit exceeded", func(s *snapshot.Snapshot, _ *schedule.Plan) { s.Pools[0].Used = Resources("cpu", "19") }, "above the limit of"},
		{"neighbours that must not be", func(s *snapshot.Snapshot, p *schedule.Plan) {
			s.Nodes[0].Taints = nil
			move(s, p, "apart-000", "n1")
		}, "anti-affinity forbids"},
		{"a friend left alone", func(s *snapshot.Snapshot, p *schedule.Plan) {
			s.Nodes[0].Taints, s.Nodes[0].Labels[Zone] = nil, "z9"
			move(s, p, "near-000", "n1")
		}, "away from all pods"},
		{"two in a zone, none in another", func(s *snapshot.Snapshot, p *schedule.Plan) { move(s, p, "web-001", "web-000") }, "maxSkew"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := world()
			p := schedule.Solve(s, schedule.Budget{})
			c.edit(s, &p)
			switch err := validate.Plan(s, p); {
			case c.want == "" && err != nil:
				t.Errorf("a valid plan is refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Of two DaemonSets with one host port, the pod of one comes to a new node. A spread that counts both finds one there.
func TestDaemonsThatWantOneHostPortCountOnce(t *testing.T) {
	agent := func(name string) *corev1.Pod {
		return Pod(name, Labeled("app", "web"), HostPort("", 80, corev1.ProtocolTCP))
	}
	for _, c := range []struct {
		name  string
		agent *corev1.Pod
		valid bool
	}{
		{"one host port", agent("b"), true},
		{"no host port", Pod("b", Labeled("app", "web")), false},
	} {
		s := World([]snapshot.Pool{Pool("general", Types())}, Pod("w", Labeled("app", "web"), Spread(Host, 1, "web")))
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			n.Allocatable, n.Pods = Resources("pods", "1"), []*corev1.Pod{Bound(agent("a-n1"), "n1")}
		})}
		p := schedule.Solve(s, schedule.Budget{}) // without the DaemonSets
		for _, d := range []*corev1.Pod{agent("a"), c.agent} {
			s.DaemonSets = append(s.DaemonSets, snapshot.DaemonSet{Namespace: "default", Name: d.Name, Pod: d})
		}
		if err := validate.Plan(s, p); (err == nil) != c.valid {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
