package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// daemonOf is a running pod of the DaemonSet.
func daemonOf(set, node string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := Bound(Pod(set+"-on-"+node, edit...), node)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set}}
	return p
}

// TestDaemonsThatAreMissingReserveHostPorts on nodes that exist or are in flight.
func TestDaemonsThatAreMissingReserveHostPorts(t *testing.T) {
	inFlight := func(n *snapshot.Node) { n.Registered, n.Initialized, n.Name = false, false, n.Claim }
	unmanaged := func(n *snapshot.Node) { n.Claim, n.ClaimUID, n.Pool = "", "", "" }
	inZ1 := Selects(Zone, "z1")
	port := func(n int32) func(*corev1.Pod) { return HostPort("", n, corev1.ProtocolTCP) }
	node := func(edit ...func(*snapshot.Node)) *snapshot.Snapshot {
		return daemons(withNodes(world(Pod("a", port(80))), Node("n", "general", edit...)), Pod("agent", port(80), inZ1))
	}
	running := func(p *corev1.Pod) func(*snapshot.Node) {
		return func(n *snapshot.Node) { n.Pods = append(n.Pods, p) }
	}
	done := daemonOf("agent", "n", port(80))
	done.Status.Phase = corev1.PodFailed
	checkPlans(t, []planCase{
		{"initialized", node(), []string{"general m.small z2: a"}},
		{"in flight", node(inFlight), []string{"general m.small z2: a"}},
		{"unmanaged", node(unmanaged), []string{"general m.small z2: a"}},
		{"in another zone, where the set has no pods", node(inZone("z2")), []string{"on n: a"}},
		{"its pod runs with the port", node(running(daemonOf("agent", "n", port(80)))), []string{"general m.small z2: a"}},
		{"its pod runs with another port", node(running(daemonOf("agent", "n", port(81)))), []string{"on n: a"}},
		{"the pod of another set runs", node(running(daemonOf("other", "n", port(81)))), []string{"general m.small z2: a"}},
		{"its pod has failed and comes again", node(running(done)), []string{"general m.small z2: a"}},
	})
}

// TestDaemonsAttachVolumes on new nodes, and on existing ones where they do not run yet.
func TestDaemonsAttachVolumes(t *testing.T) {
	class := "wait"
	scratch := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}},
		}}}}
	}
	disks := []disk{{name: "x", class: class}, {name: "y", class: class}, {name: "agent-on-n-scratch", class: class}}
	limited := func(limit int) []snapshot.Pool {
		small, large := Type("small", 0.1, "cpu", "2", "memory", "8Gi"), Type("large", 0.4, "cpu", "8", "memory", "32Gi")
		small.VolumeLimits = map[string]int{"ebs.csi.aws.com": limit}
		return singlePool(small, large)
	}
	node := Node("n", "general", func(n *snapshot.Node) { n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 1} })
	busy := Node("n", "general", func(n *snapshot.Node) {
		n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 2}
		n.Pods = []*corev1.Pod{daemonOf("agent", "n", scratch)}
	})
	full := busy
	full.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 1}
	pod := Pod("a", Claims("x"))
	checkPlans(t, []planCase{
		{
			"beside the daemon's on a new node",
			daemons(storage(World(limited(2), pod), disks...), Pod("agent", scratch)),
			[]string{"general small: a"},
		},
		{
			"no room beside the daemon's",
			daemons(storage(World(limited(1), pod), disks...), Pod("agent", scratch)),
			[]string{"general large: a"},
		},
		{
			"kept free on an existing node",
			daemons(storage(withNodes(World(limited(2), pod), node), disks...), Pod("agent", scratch)),
			[]string{"general small: a"},
		},
		{
			"counted once where the daemon runs",
			daemons(storage(withNodes(World(limited(2), pod), busy), disks...), Pod("agent", scratch)),
			[]string{"on n: a"},
		},
		{
			"attached already",
			daemons(storage(withNodes(World(limited(2), pod), full), disks...), Pod("agent", scratch)),
			[]string{"general small: a"},
		},
	})
}

// TestSoftTaintsKeepNoPodOff checks every place where a taint of effect PreferNoSchedule could count as a hard one.
func TestSoftTaintsKeepNoPodOff(t *testing.T) {
	honor := corev1.NodeInclusionPolicyHonor
	spread := func(key string) func(*corev1.Pod) {
		return Spread(key, 1, "web", func(c *constraint) { c.NodeTaintsPolicy = &honor })
	}
	soft := func(n *snapshot.Node) { n.Taints = []corev1.Taint{{Key: "soft", Effect: prefer}} }
	tainted := func() []snapshot.Pool { return pool(PoolTaint("soft", prefer)) }
	web := func(n int, key string) []*corev1.Pod {
		return Pods(n, "web", Labeled("app", "web"), Requests("cpu", "100m"), spread(key))
	}
	held := func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{Bound(Pod("old", Labeled("app", "web")), n.Name)}
	}
	checkPlans(t, []planCase{
		{
			"pods spread over hosts", World(tainted(), web(3, Host)...),
			[]string{"general m.small: web", "general m.small: web", "general m.small: web"},
		},
		{
			"pods spread over zones", World(tainted(), web(3, Zone)...),
			[]string{"general m.small z1: web", "general m.small z2: web", "general m.small z3: web"},
		},
		{
			"pods on a node with such a taint count", withNodes(World(pool(), web(2, Zone)...), Node("n", "general", soft, held)),
			[]string{"general m.small z2: web", "general m.small z3: web"},
		},
		{
			"an existing node is used before the pod waits",
			withNodes(World(pool(Limit("nodes", "0")), Pod("a")), Node("n", "general", soft)),
			[]string{"on n: a"},
		},
		{
			"a new node comes before a tainted one", withNodes(world(Pod("a")), Node("n", "general", soft)), []string{"general m.small: a"},
		},
	})
}
