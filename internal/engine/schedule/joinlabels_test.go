package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	checksum  = "k8s.io/cloud-provider-aws"
	layer     = "topology.k8s.aws/network-node-layer-1"
	nodeClass = "example.com/machine"
)

// onCloud has a cloud controller manager that labels nodes: each with a checksum, some with the network node above them. The
// pools have a node class.
func onCloud(s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Labels.SetOnJoin, s.Labels.MaySetOnJoin = []string{checksum}, []string{layer}
	s.Labels.RestrictedDomains = append(s.Labels.RestrictedDomains, "example.com")
	for i := range s.Pools {
		s.Pools[i].NodeClassLabel = [2]string{nodeClass, "default"}
	}
	return s
}

// named requires a name of the Node, by field.
func named(op corev1.NodeSelectorOperator, name string, exprs ...corev1.NodeSelectorRequirement) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		Needs(exprs...)(p)
		terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		terms[len(terms)-1].MatchFields = []corev1.NodeSelectorRequirement{Expr("metadata.name", op, name)}
	}
}

func labeled(key, value string) func(*snapshot.Node) {
	return func(n *snapshot.Node) { n.Labels[key] = value }
}

func joining(n *snapshot.Node) {
	n.Registered, n.Initialized, n.Name = false, false, n.Claim
	for _, key := range []string{Host, karpv1.LabelRegistered, karpv1.LabelInitialized} {
		delete(n.Labels, key)
	}
}

// TestNewNodesHaveRoomForDaemonsThatRequireALabelOfEachNode, no matter who sets it: kubelet, registration, or the cloud controller
// manager. A daemon that may come has its room; one that surely does not come has none.
func TestNewNodesHaveRoomForDaemonsThatRequireALabelOfEachNode(t *testing.T) {
	app := Pod("a", Requests("cpu", "1", "memory", "1Gi"))
	daemon := func(edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod("d", append(edit, Requests("cpu", "2", "memory", "2Gi"))...)
	}
	runs, doesNot := []string{"general m.large: a"}, []string{"general m.small: a"}
	on := func(d *corev1.Pod, edit ...func(*snapshot.Node)) *snapshot.Snapshot {
		return daemons(onCloud(withNodes(world(app), Node("old", "general", append(edit, full)...))), d)
	}
	fresh := func(d *corev1.Pod) *snapshot.Snapshot { return daemons(onCloud(world(app)), d) }
	checkPlans(t, []planCase{
		{"a name", fresh(daemon(Needs(Expr(Host, exists)))), runs},
		{"not the name of a node with a fault", fresh(daemon(Needs(Expr(Host, notIn, "old")))), runs},
		{"not the node with a fault, by field", fresh(daemon(named(notIn, "old"))), runs},
		{"the name of another node", on(daemon(Needs(Expr(Host, in, "old")))), doesNot},
		{"the name of another node, by field", on(daemon(named(in, "old"))), doesNot},
		{"the name of another node, or the zone", on(daemon(named(in, "old"), Needs(Expr(Zone, exists)))), runs},
		{"no name", fresh(daemon(Needs(Expr(Host, absent)))), doesNot},
		{"a number as name", fresh(daemon(Needs(Expr(Host, corev1.NodeSelectorOpGt, "3")))), doesNot},
		{"the earlier name of the architecture", fresh(daemon(Selects("beta.kubernetes.io/arch", "amd64"))), runs},
		{"the earlier name of the system", fresh(daemon(Selects("beta.kubernetes.io/os", "linux"))), runs},
		{"the earlier name of the type", fresh(daemon(Needs(Expr("beta.kubernetes.io/instance-type", exists)))), runs},
		{"the earlier name of the zone", fresh(daemon(Needs(Expr("failure-domain.beta.kubernetes.io/zone", exists)))), runs},
		{"a registered node", fresh(daemon(Selects(karpv1.LabelRegistered, "true"))), runs},
		{"an initialized node", fresh(daemon(Needs(Expr(karpv1.LabelInitialized, exists)))), runs},
		{"a node before it is initialized, which it leaves then", fresh(daemon(Needs(Expr(karpv1.LabelInitialized, absent)))), doesNot},
		{"a node that is not registered", fresh(daemon(Needs(Expr(karpv1.LabelRegistered, notIn, "true")))), doesNot},
		{"the node class", fresh(daemon(Selects(nodeClass, "default"))), runs},
		{"another node class", fresh(daemon(Selects(nodeClass, "gpu"))), doesNot},
		{"any pool", fresh(daemon(Needs(Expr(karpv1.LabelNodePool, exists)))), runs},
		{"no pool", fresh(daemon(Needs(Expr(karpv1.LabelNodePool, absent)))), doesNot},
		{"what the cloud controller manager sets", fresh(daemon(Needs(Expr(checksum, exists)))), runs},
		{"a value of it that no node shows yet", fresh(daemon(Selects(checksum, "abc"))), runs},
		{"the value of it that nodes show", on(daemon(Selects(checksum, "abc")), labeled(checksum, "abc")), runs},
		{"another value than nodes show", on(daemon(Selects(checksum, "def")), labeled(checksum, "abc")), doesNot},
		{"no such label", fresh(daemon(Needs(Expr(checksum, absent)))), doesNot},
		{"what it sets on some nodes", fresh(daemon(Needs(Expr(layer, exists)))), runs},
		{"what it does not set on some nodes", fresh(daemon(Needs(Expr(layer, absent)))), runs},
		{"a label that nobody sets", fresh(daemon(Needs(Expr("team", exists)))), doesNot},
		{"nodes that lack a label that nobody sets", fresh(daemon(Needs(Expr("team", notIn, "x")))), runs},
	})
}

// TestJoiningNodesReserveRoomForDaemonsThatRequireALabelOfEachNode, which the node has as soon as it is initialized.
func TestJoiningNodesReserveRoomForDaemonsThatRequireALabelOfEachNode(t *testing.T) {
	app := Pod("a", Requests("cpu", "3", "memory", "1Gi")) // the node has 4
	on := func(d func(*corev1.Pod), edit ...func(*snapshot.Node)) *snapshot.Snapshot {
		return daemons(onCloud(withNodes(world(app), Node("n", "general", edit...))), Pod("d", Requests("cpu", "2"), d))
	}
	elsewhere, there := []string{"general m.xlarge: a"}, []string{"on n-claim: a"}
	initialized := Needs(Expr(karpv1.LabelInitialized, exists))
	checkPlans(t, []planCase{
		{"initialized", on(initialized, joining), elsewhere},
		{"name", on(Needs(Expr(Host, exists)), joining), elsewhere},
		{"checksum", on(Needs(Expr(checksum, exists)), joining), elsewhere},
		{"network node", on(Needs(Expr(layer, exists)), joining), elsewhere},
		{"the name of another node, by field", on(named(in, "other"), joining), there},
		{"an initialized node without it", on(Needs(Expr(layer, exists))), []string{"on n: a"}},
		{"an initialized node without a checksum", on(Needs(Expr(checksum, exists))), []string{"on n: a"}},
		{"an initialized node of the name, by field", on(named(in, "n")), []string{"general m.large: a"}},
	})
}

// TestPodsSelectLabelsOfEachNode: a new node has a name of its own, the class and the pool that it is launched for, and what
// registration and the cloud controller manager set.
func TestPodsSelectLabelsOfEachNode(t *testing.T) {
	small := Requests("cpu", "1")
	pod := func(edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		return onCloud(withNodes(world(Pod("a", append(edit, small)...)), Node("n", "general", full, labeled(checksum, "abc"))))
	}
	free := func(edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		return onCloud(withNodes(world(Pod("a", edit...)), Node("m", "general", inZone("z2")), Node("n", "general")))
	}
	need := func(key string, op corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
		return Needs(Expr(key, op, values...))
	}
	launched, none := []string{"general m.small: a"}, []string{"unschedulable (Requirements): a"}
	checkPlans(t, []planCase{
		{"not a node with a fault", pod(need(Host, notIn, "n")), launched},
		{"not a node with a fault, by its field", pod(named(notIn, "n")), launched},
		{"a name", pod(need(Host, exists)), launched},
		{"no name", pod(need(Host, absent)), none},
		{"a certain node", pod(Selects(Host, "gone")), none},
		{"a certain node, by its field", pod(named(in, "gone")), none},
		{"a certain node that is full", pod(need(Host, in, "n")), none},
		{"a certain node that is gone, or a zone", pod(named(in, "gone"), need(Zone, in, "z1")), []string{"general m.small z1: a"}},
		{"a zone, or a certain node that is gone", pod(need(Zone, in, "z1"), named(in, "gone")), []string{"general m.small z1: a"}},
		{"a certain node that is gone, and a zone", pod(named(in, "gone", Expr(Zone, in, "z1"))), none},
		{"a certain node with room", free(Selects(Host, "n")), []string{"on n: a"}},
		{"a certain node with room, by its field", free(named(in, "n")), []string{"on n: a"}},
		{"not the first node with room, by its field", free(named(notIn, "m")), []string{"on n: a"}},
		{"not the first node with room", free(need(Host, notIn, "m")), []string{"on n: a"}},
		{"a certain node in another zone", free(named(in, "n", Expr(Zone, in, "z2"))), none},
		{"the node class", pod(Selects(nodeClass, "default")), launched},
		{"any node class", pod(need(nodeClass, exists)), launched},
		{"not another node class", pod(need(nodeClass, notIn, "gpu")), launched},
		{"another node class", pod(Selects(nodeClass, "gpu")), none},
		{"no node class", pod(need(nodeClass, absent)), none},
		{"the pool", pod(Selects(karpv1.LabelNodePool, "general")), launched},
		{"not another pool", pod(need(karpv1.LabelNodePool, notIn, "gpu")), launched},
		{"not this pool", pod(need(karpv1.LabelNodePool, notIn, "general")), none},
		{"a registered node", pod(Selects(karpv1.LabelRegistered, "true")), launched},
		{"an initialized node", pod(need(karpv1.LabelInitialized, exists)), launched},
		{"not an initialized node", pod(need(karpv1.LabelInitialized, absent)), none},
		{"the checksum", pod(need(checksum, exists)), launched},
		{"its value", pod(Selects(checksum, "abc")), launched},
		{"not its value", pod(need(checksum, notIn, "abc")), none},
		{"a value that no node shows", onCloud(world(Pod("a", Selects(checksum, "abc")))), none},
		{"what some nodes get", pod(need(layer, exists)), none},
		{"not what some nodes get", pod(need(layer, notIn, "nn-1")), launched},
		{"nodes without a label of ours that nobody sets", pod(need("karpenter.sh/own", absent)), launched},
		{"an impossible value, or a zone", pod(need(Capacity, in, "cheap"), need(Zone, in, "z1")), []string{"general m.small z1: a"}},
		{"an impossible value", pod(need(Capacity, in, "cheap")), []string{"unschedulable (InvalidPod): a"}},
	})
}

// TestOnlyRequirementsOptOut: kube-scheduler gives up what a pod only prefers.
func TestOnlyRequirementsOptOut(t *testing.T) {
	unmanaged := func(n *snapshot.Node) {
		n.Claim, n.ClaimUID, n.Pool = "", "", ""
		delete(n.Labels, karpv1.LabelNodePool)
	}
	none, other := Expr(karpv1.LabelNodePool, absent), Expr(karpv1.LabelNodePool, notIn, "general")
	launched, optedOut := []string{"general m.small: a"}, []string{"unschedulable (OptedOut): a"}
	checkPlans(t, []planCase{
		{"preferred", world(Pod("a", Prefers(1, none))), launched},
		{"preferred most of all", world(Pod("a", Prefers(100, none), Prefers(1, Expr(Zone, in, "z1")))), []string{"general m.small z1: a"}},
		{"another pool preferred", world(Pod("a", Prefers(1, other))), launched},
		{
			"preferred, and an unmanaged node has room",
			withNodes(world(Pod("a", Prefers(1, none))), Node("n", "", unmanaged)),
			[]string{"on n: a"},
		},
		{"preferred, and the unmanaged node is full", withNodes(world(Pod("a", Requests("cpu", "1"), Prefers(1, none))), Node("n", "", unmanaged, full)), launched},
		{"required", world(Pod("a", Needs(none))), optedOut},
		{"required and preferred", world(Pod("a", Needs(none), Prefers(1, Expr(Zone, in, "z1")))), optedOut},
		{"required in each alternative", world(Pod("a", Needs(none), Needs(none, Expr(Zone, in, "z1")))), optedOut},
		{"required in one alternative", world(Pod("a", Needs(none), Needs(Expr(Zone, in, "z1")))), []string{"general m.small z1: a"}},
		{"required in the other", world(Pod("a", Needs(Expr(Zone, in, "z1")), Needs(none))), []string{"general m.small z1: a"}},
	})
}
