package existing_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// fixture is the nodes of a world, with compiled pods. Pods without lists of their own share that of their class.
type fixture struct {
	*existing.Set
	t        *testing.T
	topology *topology.Registry
	pods     []*corev1.Pod
	classes  map[string]*podclass.Class // by pod
	lists    map[*podclass.Class]*existing.List
	steps    int
}

func newFixture(t *testing.T, s *snapshot.Snapshot) *fixture {
	t.Helper()
	f := &fixture{t: t, pods: s.Pods, classes: map[string]*podclass.Class{}, lists: map[*podclass.Class]*existing.List{}}
	axes, volumes := resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), volume.NewLimits(s, nil)
	pending := map[types.UID]bool{}
	for _, p := range s.Pods {
		pending[p.UID] = true
	}
	f.topology = topology.NewRegistry(s, pending)
	var daemons []*existing.Daemon
	for i := range s.DaemonSets {
		if d, ok := existing.NewDaemon(s, &s.DaemonSets[i]); ok {
			d.Amounts = axes.Vec(d.Requests)
			daemons = append(daemons, d)
		}
	}
	f.Set = existing.NewSet(existing.Config{
		Snapshot: s, Axes: axes, Topology: f.topology, Volumes: volumes, Devices: devices.New(s), Daemons: daemons, Pending: pending,
		Steps: &f.steps,
	})
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: axes, Slots: &reservation.Slots{}, Steps: &f.steps,
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	compiler, classifier := podclass.NewCompiler(podclass.Config{
		Snapshot: s, Topology: f.topology, Volumes: volumes, RespectPreferences: true, Steps: &f.steps, Pools: models,
	}), podclass.NewClassifier(false, &snapshot.Settings{})
	for _, pod := range s.Pods {
		c, err := classifier.ClassOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		f.classes[pod.Name] = c
		if c.Measure(axes, volumes, make(resources.Vec, axes.Len())); !c.IsRead() {
			compiler.Read(c.Constraints, pod)
			compiler.Compile(c.Constraints)
		}
	}
	f.topology.CountDeclared()
	f.topology.Index()
	for _, c := range f.classes {
		compiler.Find(c.Constraints)
	}
	return f
}

// fill puts all pods on nodes and states which are where: "n1: a b; n2: c".
func (f *fixture) fill() string {
	for _, pod := range f.pods {
		c := f.classes[pod.Name]
		if f.lists[c] == nil {
			f.lists[c] = &existing.List{}
		}
		f.Put(c, c.Levels()[0], pod, f.lists[c])
	}
	var out []string
	for _, n := range f.All() {
		if on := n.Placement(); len(on.Pods) > 0 {
			line := on.Node + ":"
			for _, pod := range on.Pods {
				line += " " + pod.Name
			}
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}

// undo stops the run.
func (f *fixture) undo() {
	f.Undo()
	f.topology.Undo()
	clear(f.lists)
}

// withNodes are pods and nodes of 4 CPUs.
func withNodes(pods []*corev1.Pod, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
	s.Nodes = nodes
	return s
}

func node(name string, edit ...func(*snapshot.Node)) snapshot.Node {
	return Node(name, "general", edit...)
}

func cpus(n int, name, amount string, edit ...func(*corev1.Pod)) []*corev1.Pod {
	return Pods(n, name, append(edit, Labeled("app", name), Requests("cpu", amount))...)
}

func TestPodsGoToTheFirstNodeThatTakesThem(t *testing.T) {
	inFlight := func(n *snapshot.Node) { n.Initialized = false }
	deleting := func(n *snapshot.Node) { n.Deleting = true }
	busy := func(n *snapshot.Node) { n.Pods = append(n.Pods, Bound(cpus(1, "busy", "3")[0], n.Name)) }
	taint := func(n *snapshot.Node) { n.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}} }
	for _, c := range []struct {
		name string
		s    *snapshot.Snapshot
		want string
	}{
		{"in order", withNodes(cpus(3, "a", "2"), node("n2"), node("n1")), "n1: a-000 a-001; n2: a-002"},
		{"ready nodes first", withNodes(cpus(3, "a", "2"), node("n1", inFlight), node("n2")), "n2: a-000 a-001; n1: a-002"},
		{"none on nodes that go", withNodes(cpus(1, "a", "2"), node("n1", deleting), node("n2")), "n2: a-000"},
		{"beside running pods", withNodes(cpus(2, "a", "1"), node("n1", busy), node("n2")), "n1: a-000; n2: a-001"},
		{"taints", withNodes(cpus(1, "a", "1"), node("n1", taint), node("n2")), "n2: a-000"},
		{"tolerated taints", withNodes(cpus(1, "a", "1", Tolerates("gpu")), node("n1", taint), node("n2")), "n1: a-000"},
		{"labels", withNodes(cpus(1, "a", "1", Selects("disk", "ssd")), node("n1"), node("n2", func(n *snapshot.Node) {
			n.Labels["disk"] = "ssd"
		})), "n2: a-000"},
		{"host ports", withNodes(cpus(2, "a", "1", HostPort("", 80, corev1.ProtocolTCP)), node("n1"), node("n2")), "n1: a-000; n2: a-001"},
		{"pods that keep apart", withNodes(cpus(3, "a", "1", Apart(Host, "a")), node("n1"), node("n2")), "n1: a-000; n2: a-001"},
		{"no room", withNodes(cpus(1, "a", "5"), node("n1")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newFixture(t, c.s).fill(); got != c.want {
				t.Errorf("pods are on %q, want %q", got, c.want)
			}
		})
	}
}

// A DaemonSet with a pod that does not run on a node yet has its room and its ports reserved there.
func TestDaemonsThatAreMissingKeepTheirPlace(t *testing.T) {
	agent := Pod("agent", Requests("cpu", "1"), HostPort("", 80, corev1.ProtocolTCP))
	s := withNodes(append(cpus(1, "large", "4"), cpus(1, "web", "1", HostPort("", 80, corev1.ProtocolTCP))...), node("n1"))
	s.DaemonSets = []snapshot.DaemonSet{{Namespace: "default", Name: "agent", Pod: agent}}
	f := newFixture(t, s)
	if got := f.fill(); got != "" {
		t.Errorf("pods take the daemon's place: %s", got)
	}
	if cpu := f.All()[0].Free()[0]; cpu != 3000 {
		t.Errorf("%d thousandths of a CPU are free, want 3000", cpu)
	}
}

func TestARunCanBeUndone(t *testing.T) {
	ports := cpus(1, "web", "1", HostPort("", 80, corev1.ProtocolTCP))
	f := newFixture(t, withNodes(append(cpus(2, "a", "1", Apart(Host, "a")), ports...), node("n1"), node("n2")))
	first := f.fill()
	if n := f.All()[0]; n.Free()[0] != 2000 || n.FreeBefore()[0] != 4000 {
		t.Errorf("%d thousandths of a CPU are free, before the run %d; want 2000 and 4000", n.Free()[0], n.FreeBefore()[0])
	}
	f.undo()
	if n := f.All()[0]; n.Free()[0] != 4000 || len(n.Placement().Pods) > 0 {
		t.Errorf("after the run %d thousandths of a CPU are free, with %v", n.Free()[0], n.Placement())
	}
	if again := f.fill(); again != first {
		t.Errorf("the second run is %q, the first was %q", again, first)
	}
}

func TestKeptChangesLastUntilTheyAreRestored(t *testing.T) {
	f := newFixture(t, withNodes(cpus(3, "a", "2"), node("n1"), node("n2")))
	f.fill()
	kept := f.Keep()
	f.undo() // changes nothing, since the run was kept
	if got := f.fill(); got != "n2: a-000" {
		t.Errorf("beside kept pods: %q", got)
	}
	f.undo()
	f.Restore(kept)
	if got := f.fill(); got != "n1: a-000 a-001; n2: a-002" {
		t.Errorf("after restoring: %q", got)
	}
}

func TestRemovedAndHiddenNodesTakeNothing(t *testing.T) {
	f := newFixture(t, withNodes(cpus(1, "a", "2"), node("n1"), node("n2")))
	all := f.All()
	all[0].Remove()
	if got := f.fill(); got != "n2: a-000" {
		t.Errorf("without n1: %q", got)
	}
	f.undo()
	end := f.Limit(all[:1])
	if got := f.fill(); got != "" || f.AnyOpen() {
		t.Errorf("with n1 alone, which is removed: %q", got)
	}
	f.undo()
	end()
	all[0].Return()
	if got := f.fill(); got != "n1: a-000" {
		t.Errorf("with n1 again: %q", got)
	}
}
