package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// schedulerWorld is a small cluster in which topology rules and node selection depend on each other. What the rules of
// Cluster do not have, as volumes and init containers, it has not either.
func (d random) schedulerWorld() *snapshot.Snapshot {
	s := World(nil)
	s.Namespaces = map[string]map[string]string{"default": {"tier": "front"}, "other": {"tier": "back"}}
	var sold []*catalog.InstanceType
	for i := range d.from(2, 4) {
		sold = append(sold, d.schedulerType(i))
	}
	for i := range d.from(1, 3) {
		s.Pools = append(s.Pools, d.schedulerPool(fmt.Sprintf("p%d", i), sold))
	}
	for i := range d.n(3) {
		s.DaemonSets = append(s.DaemonSets, d.schedulerDaemon(fmt.Sprintf("agent-%d", i)))
	}
	families := [][]edit{d.schedulerEdits("a"), d.schedulerEdits("b"), d.schedulerEdits("c")}
	for i := range d.n(5) {
		s.Nodes = append(s.Nodes, d.schedulerNode(s, fmt.Sprintf("n%d", i), families))
	}
	for i, edits := range families[:d.from(1, 3)] {
		s.Pods = append(s.Pods, Pods(d.from(1, 5), string(rune('a'+i)), edits...)...)
	}
	return s
}

// fullHostsWorld is a schedulerWorld with one more app, which spreads over hosts. Most nodes have a few of its pods, and no room for more.
func (d random) fullHostsWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	edits := append(d.schedulerEdits("w"), Labeled("app", "w"), Spread(Host, int32(d.from(1, 2)), "w", d.spreadEdits()))
	s.Pods = append(s.Pods, Pods(d.from(1, 6), "w", edits...)...)
	for i := len(s.Nodes); i < d.from(1, 3); i++ {
		s.Nodes = append(s.Nodes, d.schedulerNode(s, fmt.Sprintf("n%d", i), nil))
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := &ClusterNode{Name: n.Name, Labels: n.Labels, Taints: n.Taints}
		c := Cluster{Nodes: []*ClusterNode{at}}
		for k := range d.n(4) {
			if p := Pod(fmt.Sprintf("w-%s-%d", n.Name, k), edits...); c.nodeAffinity(p, at) == "" && c.taints(p, at) == "" {
				n.Pods = append(n.Pods, Bound(p, n.Name))
			}
		}
		if d.maybe(75) {
			full := resource.Quantity{}
			for _, p := range n.Pods {
				full.Add(*p.Spec.Containers[0].Resources.Requests.Cpu())
			}
			n.Allocatable = Resources("cpu", full.String(), "memory", "32Gi", "pods", "110")
			n.Capacity = n.Allocatable
		}
	}
	return s
}

func (d random) schedulerType(i int) *catalog.InstanceType {
	cpu := pick(d, 2, 4, 8)
	it := Type(fmt.Sprintf("t%d", i), 0.05*float64(cpu)+float64(d.n(8))/1000, "cpu", fmt.Sprint(cpu), "memory", "32Gi", "pods", "110")
	it = WithLabel(it, Arch, pick(d, "amd64", "amd64", "arm64"))
	var offered []catalog.Offering
	for _, zone := range some(d, 3, Zones()...) {
		for _, kind := range some(d, 2, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot) {
			o := Offering(zone, kind, 0.05*float64(cpu)+float64(d.n(16))/1000)
			o.Available = !d.maybe(12)
			offered = append(offered, o)
		}
	}
	return WithOfferings(it, offered...)
}

func (d random) schedulerPool(name string, sold []*catalog.InstanceType) snapshot.Pool {
	var edits []func(*karpv1.NodePool)
	add := func(percent int, e func(*karpv1.NodePool)) {
		if d.maybe(percent) {
			edits = append(edits, e)
		}
	}
	add(20, Require(Zone, in, some(d, 2, Zones()...)...))
	add(20, Require(Arch, in, pick(d, "amd64", "arm64")))
	add(25, Require(Capacity, in, pick(d, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)))
	add(30, TemplateLabel("rack", pick(d, "r1", "r2")))
	add(25, PoolTaint("dedicated", corev1.TaintEffectNoSchedule))
	add(30, Weight(int32(d.from(1, 3))))
	add(15, Limit("nodes", fmt.Sprint(d.n(4))))
	return Pool(name, sold, edits...)
}

func (d random) schedulerDaemon(name string) snapshot.DaemonSet {
	edits := []edit{Requests("cpu", "200m"), Labeled("app", pick(d, name, "a", "b"))}
	add := func(percent int, e edit) {
		if d.maybe(percent) {
			edits = append(edits, e)
		}
	}
	add(50, Tolerates("dedicated"))
	add(20, Selects(Arch, pick(d, "amd64", "arm64")))
	add(15, Selects("rack", pick(d, "r1", "r2")))
	add(25, Needs(Expr(Host, exists)))
	add(10, HostPort("", 80, corev1.ProtocolTCP))
	return snapshot.DaemonSet{Namespace: "default", Name: name, Pod: Pod(name, edits...)}
}

// schedulerEdits returns what the pods of an app have in common.
func (d random) schedulerEdits(name string) []edit {
	app := pick(d, name, name, name, "a")
	edits := []edit{Labeled("app", app), Labeled("rev", pick(d, "1", "2")), Requests("cpu", fmt.Sprintf("%dm", 250*d.from(1, 9)))}
	add := func(percent int, e edit) {
		if d.maybe(percent) {
			edits = append(edits, e)
		}
	}
	key := func() string { return pick(d, Zone, Zone, Host, Capacity, "rack", Arch) }
	other := func() string { return pick(d, app, app, "a", "b") }
	add(15, Selects(Zone, pick(d, Zones()...)))
	add(12, Selects(Arch, pick(d, "amd64", "arm64")))
	add(12, Selects(Capacity, pick(d, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)))
	add(8, Selects("rack", pick(d, "r1", "r2")))
	add(12, Selects(corev1.LabelInstanceTypeStable, pick(d, "t0", "t1", "t2")))
	add(15, Needs(Expr(Zone, notIn, pick(d, Zones()...))))
	add(10, Needs(Expr(Host, notIn, pick(d, "n0", "n1"))))
	add(8, Needs(Expr("rack", absent)))
	add(40, Tolerates("dedicated"))
	add(45, Spread(key(), int32(d.from(1, 2)), other(), d.spreadEdits()))
	add(20, Spread(key(), int32(d.from(1, 3)), other(), d.spreadEdits()))
	add(20, Near(key(), other()))
	add(8, Near(key(), other()))
	add(18, Apart(key(), other()))
	add(8, Apart(key(), other()))
	add(6, HostPort("", 80, corev1.ProtocolTCP))
	if d.maybe(10) {
		edits = append(edits, func(p *corev1.Pod) { p.Namespace = "other" })
	}
	if d.maybe(10) {
		edits = append(edits, func(p *corev1.Pod) {
			for _, terms := range [][]corev1.PodAffinityTerm{antiTerms(p), nearOf(p)} {
				for i := range terms {
					terms[i].NamespaceSelector = &metav1.LabelSelector{}
				}
			}
		})
	}
	return edits
}

func (d random) spreadEdits() func(*corev1.TopologySpreadConstraint) {
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	policy := func() *corev1.NodeInclusionPolicy { return pick(d, nil, nil, &honor, &ignore) }
	affinity, taints, fewest := policy(), policy(), int32(d.from(2, 3))
	domains, empty, revisions := d.maybe(12), d.maybe(6), d.maybe(12)
	return func(t *corev1.TopologySpreadConstraint) {
		t.NodeAffinityPolicy, t.NodeTaintsPolicy = affinity, taints
		if domains {
			t.MinDomains = &fewest
		}
		if empty {
			t.LabelSelector = &metav1.LabelSelector{}
		}
		if revisions {
			t.MatchLabelKeys = []string{"rev"}
		}
	}
}

// schedulerNode is an initialized node of a pool, with running pods, some of them terminating, and its daemons.
func (d random) schedulerNode(s *snapshot.Snapshot, name string, families [][]edit) snapshot.Node {
	n := Node(name, pick(d, "p0", "p1"), func(n *snapshot.Node) {
		n.Labels[Zone], n.Labels[Arch] = pick(d, Zones()...), pick(d, "amd64", "amd64", "arm64")
		n.Labels[Capacity] = pick(d, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
		n.Labels[corev1.LabelInstanceTypeStable] = pick(d, "t0", "t1", "t2")
		if d.maybe(30) {
			n.Labels["rack"] = pick(d, "r1", "r2", "r3")
		}
		if d.maybe(20) {
			n.Taints = []corev1.Taint{{Key: pick(d, "dedicated", "broken"), Effect: corev1.TaintEffectNoSchedule}}
		}
		cpu := pick(d, "2", "4", "8")
		n.Allocatable = Resources("cpu", cpu, "memory", "32Gi", "pods", "110")
		n.Capacity = n.Allocatable
	})
	onNode := ClusterNode{Name: name, Labels: n.Labels, Taints: n.Taints, Allocatable: n.Allocatable}
	run := func(p *corev1.Pod) {
		c := Cluster{Nodes: []*ClusterNode{&onNode}}
		if c.nodeAffinity(p, &onNode) == "" && c.taints(p, &onNode) == "" && c.resources(p, &onNode) == "" && c.hostPorts(p, &onNode) == "" {
			p.Spec.NodeName = name
			onNode.Pods = append(onNode.Pods, Bound(p, name))
		}
	}
	for i := range s.DaemonSets {
		run(DaemonPod(&s.DaemonSets[i], name))
	}
	for k, edits := range families {
		for i := range d.n(3) {
			p := Pod(fmt.Sprintf("%c-%s-%d", 'a'+k, name, i), edits...)
			if d.maybe(12) {
				p.DeletionTimestamp = &metav1.Time{Time: Now()}
			}
			run(p)
		}
	}
	n.Pods = onNode.Pods
	return n
}

// DaemonPod is the set's pod on a node.
func DaemonPod(set *snapshot.DaemonSet, node string) *corev1.Pod {
	p := set.Pod.DeepCopy()
	OwnedBy("apps/v1", "DaemonSet")(p)
	p.OwnerReferences[0].Name = set.Name
	p.Name, p.UID = set.Name+"-"+node, types.UID(set.Name+"-"+node)
	return p
}

func nearOf(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}
