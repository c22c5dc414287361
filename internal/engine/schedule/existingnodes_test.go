package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func daemons(s *snapshot.Snapshot, pods ...*corev1.Pod) *snapshot.Snapshot {
	for _, p := range pods {
		s.DaemonSets = append(s.DaemonSets, snapshot.DaemonSet{Namespace: p.Namespace, Name: p.Name, Pod: p})
	}
	return s
}

func TestDaemonSets(t *testing.T) {
	limitsOnly := Pod("d", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = Resources("cpu", "2") })
	app := Pod("a", Requests("cpu", "1", "memory", "1Gi"))
	largeOnly := Needs(Expr(corev1.LabelInstanceTypeStable, in, "m.large", "m.xlarge"))
	checkPlans(t, []planCase{
		{"make room", daemons(world(app), Pod("d", Requests("cpu", "2", "memory", "2Gi"))), []string{"general m.large: a"}},
		{
			"its host port",
			daemons(world(Pod("a", HostPort("", 8080, "TCP"))), Pod("d", HostPort("", 8080, "TCP"))),
			[]string{"unschedulable (HostPort): a"},
		},
		{
			"but it does not run on small types",
			daemons(
				world(Pod("a", HostPort("", 8080, "TCP"), Selects(corev1.LabelInstanceTypeStable, "m.small"))),
				Pod("d", HostPort("", 8080, "TCP"), largeOnly),
			),
			[]string{"general m.small: a"},
		},
		{
			"startup taints do not keep it off",
			daemons(
				World(pool(func(p *np) { p.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "boot", Effect: noPlace}} }), app),
				Pod("d", Requests("cpu", "2")),
			),
			[]string{"general m.large: a"},
		},
		{
			"taints do",
			daemons(World(pool(PoolTaint("hard", noPlace)), Pod("a", Requests("cpu", "1"), Tolerates("hard"))), Pod("d", Requests("cpu", "2"))),
			[]string{"general m.small: a"},
		},
		{
			"soft taints do not",
			daemons(World(pool(PoolTaint("soft", prefer)), app), Pod("d", Requests("cpu", "2"))),
			[]string{"general m.large: a"},
		},
		{"nothing left", daemons(world(app), Pod("d", Requests("cpu", "10k"))), []string{"unschedulable (Resources): a"}},
		{"limits act as requests", daemons(world(app), limitsOnly), []string{"general m.large: a"}},
		{
			"its init container",
			daemons(world(app), Pod("d", Requests("cpu", "1"), initContainer(false, "cpu", "2"))),
			[]string{"general m.large: a"},
		},
		{
			"selects what no node has",
			daemons(
				world(app),
				Pod("d", Requests("cpu", "2"), Selects("team", "x")),
				Pod("e", Requests("cpu", "2"), Selects(corev1.LabelInstanceTypeStable, "none")),
			),
			[]string{"general m.small: a"},
		},
		{
			"selects the pool's label",
			daemons(World(pool(TemplateLabel("team", "x")), app), Pod("d", Requests("cpu", "2"), Selects("team", "x"))),
			[]string{"general m.large: a"},
		},
		{
			"NotIn on an undefined key",
			daemons(world(app), Pod("d", Requests("cpu", "2"), Needs(Expr("team", notIn, "x")))),
			[]string{"general m.large: a"},
		},
		{
			"the second required term matches",
			daemons(world(app), Pod("d", Requests("cpu", "2"), Needs(Expr("team", in, "x")), Needs(Expr(Arch, in, "amd64")))),
			[]string{"general m.large: a"},
		},
		{
			"an impossible preference",
			daemons(world(app), Pod("d", Requests("cpu", "2"), Prefers(1, Expr("team", in, "x")))),
			[]string{"general m.large: a"},
		},
		{
			"overhead per group of types",
			daemons(
				world(app),
				Pod("d", Requests("cpu", "7"), largeOnly),
				Pod("e", Requests("cpu", "500m"), Needs(Expr(corev1.LabelInstanceTypeStable, in, "m.small", "m.medium"))),
			),
			[]string{"general m.medium: a"},
		},
		{
			"waits for initialization",
			daemons(world(app), Pod("d", Requests("cpu", "2"), Selects(karpv1.LabelInitialized, "true"))),
			[]string{"general m.large: a"},
		},
		{
			"runs on the node already",
			daemons(withNodes(world(Pod("a", Requests("cpu", "2"))), Node("n", "general", func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("d-1", Requests("cpu", "2"), OwnedBy("apps/v1", "DaemonSet")), "n")}
			})), Pod("d", Requests("cpu", "2"))),
			[]string{"on n: a"},
		},
		{
			"not running yet, its room is kept",
			daemons(withNodes(world(Pod("a", Requests("cpu", "3"))), Node("n", "general")), Pod("d", Requests("cpu", "2"))),
			[]string{"general m.xlarge: a"},
		},
		{
			"an unexpected daemon pod does not make room",
			daemons(withNodes(world(Pod("a", Requests("cpu", "3.5"))), Node("n", "general", func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("d-1", Requests("cpu", "1"), OwnedBy("apps/v1", "DaemonSet")), "n")}
			})), Pod("d", Requests("cpu", "1"), Selects("late", "label"))),
			[]string{"general m.large: a"},
		},
		{
			"needs a label that the node lacks",
			daemons(
				withNodes(world(Pod("a", Requests("cpu", "3"))), Node("n", "general", func(n *snapshot.Node) { delete(n.Labels, Zone) })),
				Pod("d", Requests("cpu", "2"), Needs(Expr(Zone, exists))),
			),
			[]string{"on n: a"},
		},
	})
	p := schedule.Solve(daemons(world(Pods(2, "a", Requests("cpu", "1"))...), Pod("d", Requests("cpu", "1"))), schedule.Budget{})
	if cpu := p.Launches[0].Requests[corev1.ResourceCPU]; len(p.Launches) != 1 || cpu.String() != "3" {
		t.Errorf("the claim requests %s cpu, want 3:\n%s", cpu.String(), describe(p))
	}
}

func TestExistingNodes(t *testing.T) {
	inFlight := func(n *snapshot.Node) { n.Registered, n.Initialized, n.Name = false, false, n.Claim }
	unmanaged := func(n *snapshot.Node) {
		*n = snapshot.Node{
			Name:        n.Name,
			Labels:      map[string]string{Host: n.Name},
			Allocatable: n.Allocatable,
			Initialized: true,
			Registered:  true,
			Ready:       true,
		}
	}
	tainted := func(key string, effect corev1.TaintEffect, initialized bool) func(*snapshot.Node) {
		return func(n *snapshot.Node) {
			n.Initialized = initialized
			n.Taints = snapshot.SchedulingTaints(
				[]corev1.Taint{{Key: key, Effect: effect}},
				[]corev1.Taint{{Key: "boot", Effect: noPlace}},
				initialized,
			)
		}
	}
	oneNode := func(edit ...func(*snapshot.Node)) *snapshot.Snapshot {
		return withNodes(world(Pod("a")), Node("n", "general", edit...))
	}
	holds := func(p *corev1.Pod) func(*snapshot.Node) {
		return func(n *snapshot.Node) { n.Pods = append(n.Pods, Bound(p, n.Name)) }
	}
	checkPlans(t, []planCase{
		{"a launched claim with room", oneNode(inFlight), []string{"on n-claim: a"}},
		{"too big for it", withNodes(world(Pod("a", Requests("cpu", "5"))), Node("n", "general", inFlight)), []string{"general m.xlarge: a"}},
		{
			"in another zone",
			withNodes(world(Pod("a", Selects(Zone, "z2"))), Node("n", "general", inFlight)),
			[]string{"general m.small z2: a"},
		},
		{"a terminating node takes no pods", oneNode(func(n *snapshot.Node) { n.Deleting = true }), []string{"general m.small: a"}},
		{"not ready yet", oneNode(tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, false)), []string{"on n: a"}},
		{"not ready any more", oneNode(tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, true)), []string{"general m.small: a"}},
		{"startup taint", oneNode(tainted("boot", noPlace, false)), []string{"on n: a"}},
		{"startup taint is back", oneNode(tainted("boot", noPlace, true)), []string{"general m.small: a"}},
		{"unknown taint", oneNode(tainted("custom", noPlace, true)), []string{"general m.small: a"}},
		{"readiness taint", oneNode(tainted("readiness.k8s.io/x", noPlace, false)), []string{"on n: a"}},
		{
			"taints of nodes that are not ours",
			oneNode(unmanaged, tainted(corev1.TaintNodeNotReady, noPlace, true)),
			[]string{"general m.small: a"},
		},
		{
			"nodes that are up come first",
			withNodes(world(Pod("a")), onlyNode57Takes(100, inFlight)...),
			[]string{"on n057: a"},
		},
		{"one host port, two nodes", world(Pods(2, "a", HostPort("", 80, "TCP"))...), []string{"general m.small: a", "general m.small: a"}},
		{
			"an address is part of any address",
			withNodes(
				world(Pod("a", HostPort("127.0.0.1", 80, "TCP")), Pod("b", HostPort("", 80, "UDP"))),
				Node("n", "general", holds(Pod("c", HostPort("", 80, "TCP")))),
			),
			[]string{"on n: b", "general m.small: a"},
		},
		{
			"a node without a NodeClaim has room",
			withNodes(world(Pods(100, "a", Requests("cpu", "10m"))...), Node("n", "general", unmanaged)),
			[]string{"on n: a x100"},
		},
		{
			"it has no zone label",
			withNodes(world(Pod("a", Selects(Zone, "z1"))), Node("n", "general", unmanaged)),
			[]string{"general m.small z1: a"},
		},
		{
			"pods of a node that goes, with those that wait",
			withNodes(
				world(join(Pods(2, "new"), bind(Pods(3, "old"), "n"))...),
				Node("n", "general", func(n *snapshot.Node) { n.Deleting = true }),
			),
			[]string{"general m.small: new x2, old x3"},
		},
		{
			"an overcommitted node takes nothing that requests more",
			withNodes(world(Pod("a", Requests("cpu", "1m"))), Node("n", "general", holds(Pod("c", Requests("cpu", "5"))))),
			[]string{"general m.small: a"},
		},
		{
			"an overcommitted node takes pods that request nothing of that",
			withNodes(world(Pod("a", Requests("memory", "100Mi"))), Node("n", "general", holds(Pod("c", Requests("cpu", "5"))))),
			[]string{"on n: a"},
		},
		{
			"finished pods use nothing",
			withNodes(world(Pod("a", Requests("cpu", "4"))), Node("n", "general", func(n *snapshot.Node) {
				done := Bound(Pod("c", Requests("cpu", "4")), "n")
				done.Status.Phase = corev1.PodSucceeded
				n.Pods = []*corev1.Pod{done}
			})),
			[]string{"on n: a"},
		},
	})
}

// onlyNode57Takes returns nodes of which only number 57 is not as change makes it.
func onlyNode57Takes(n int, change func(*snapshot.Node)) []snapshot.Node {
	out := make([]snapshot.Node, n)
	for i := range out {
		if i == 57 {
			out[i] = Node(fmt.Sprintf("n%03d", i), "general")
		} else {
			out[i] = Node(fmt.Sprintf("n%03d", i), "general", change)
		}
	}
	return out
}

func TestNominations(t *testing.T) {
	claim := func(name string, edit func(*snapshot.Node), pods ...string) snapshot.Node {
		return Node(name, "general", func(n *snapshot.Node) {
			n.Name, n.Registered, n.Initialized, n.Launched, n.Allocatable = n.Claim, false, false, false, nil
			for _, p := range pods {
				n.Nominated = append(n.Nominated, types.UID("uid-"+p))
			}
			if edit != nil {
				edit(n)
			}
		})
	}
	up := func(n *snapshot.Node) {
		n.Launched, n.Registered, n.Initialized, n.Allocatable = true, true, true, Resources("cpu", "4", "memory", "16Gi", "pods", "110")
	}
	checkPlans(t, []planCase{
		{"the pod waits for its claim", withNodes(world(Pod("a", Requests("cpu", "8"))), claim("n", nil, "a")), []string{"on n-claim: a"}},
		{
			"an unlaunched claim takes no others",
			withNodes(world(Pod("a"), Pod("b")), claim("n", nil, "a")),
			[]string{"on n-claim: a", "general m.small: b"},
		},
		{
			"a launched one does, beside its own",
			withNodes(world(Pod("a", Requests("cpu", "3")), Pod("b"), Pod("c", Requests("cpu", "2"))), claim("n", up, "a")),
			[]string{"on n-claim: a, b", "general m.medium: c"},
		},
		{
			"a terminating claim keeps no pods",
			withNodes(world(Pod("a")), claim("n", func(n *snapshot.Node) { n.Deleting = true }, "a")),
			[]string{"general m.small: a"},
		},
		{"promised twice, placed once", withNodes(world(Pod("a")), claim("n1", nil, "a"), claim("n2", nil, "a")), []string{"on n1-claim: a"}},
		{"a node that is up, but refuses its pod", withNodes(world(Pod("a")), claim("n", func(n *snapshot.Node) {
			up(n)
			n.Taints = []corev1.Taint{{Key: "custom", Effect: noPlace}}
		}, "a")), []string{"general m.small: a"}},
		{
			"its zone counts as soon as the claim is pinned to it",
			withNodes(world(Pods(3, "web", app("web", Spread(Zone, 1, "web"))...)...), claim("n", pinnedTo("z1"), "web-000")),
			[]string{"on n-claim: web", "general m.small z2: web", "general m.small z3: web"},
		},
		{
			"pods that keep apart from it avoid all zones that it may be in",
			withNodes(world(Pods(2, "web", app("web", Apart(Zone, "web"))...)...), claim("n", pinnedTo("z1", "z2"), "web-000")),
			[]string{"on n-claim: web", "general m.small z3: web"},
		},
		{"a promise to a pod that is gone", withNodes(world(Pod("b")), claim("n", nil, "a")), []string{"general m.small: b"}},
	})
}

// pinnedTo makes a claim that may come up in these zones.
func pinnedTo(zones ...string) func(*snapshot.Node) {
	return func(n *snapshot.Node) {
		delete(n.Labels, Zone)
		n.Requirements = []karpv1.Requirement{{Key: Zone, Operator: in, Values: zones}}
	}
}
