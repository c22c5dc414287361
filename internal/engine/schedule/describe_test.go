package schedule_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

const instanceType = corev1.LabelInstanceTypeStable

// unavailableIn are the common types without available offerings in some zones.
func unavailableIn(zones ...string) []catalogType {
	types := Types()
	for _, it := range types {
		for i := range it.Offerings {
			it.Offerings[i].Available = !strings.Contains(strings.Join(zones, " "), it.Offerings[i].Zone)
		}
	}
	return types
}

// withoutPrices are types without a price: in z1 none is known, and other zones do not offer them.
func withoutPrices(types []catalogType) []catalogType {
	for _, it := range types {
		for i := range it.Offerings {
			o := &it.Offerings[i]
			o.Available, o.UnavailableReason = false, catalog.ReasonNotOffered
			if o.Zone == "z1" {
				o.UnavailableReason = catalog.ReasonNoPrice
			}
		}
	}
	return types
}

// mostlyUnpriced are types without known prices, except small ones, which are unavailable.
func mostlyUnpriced() []catalogType {
	types := append(withoutPrices(Types()[1:]), unavailableIn(Zones()...)[:1]...)
	return types
}

type catalogType = *catalog.InstanceType

func labelled(name string) func(*corev1.Pod) { return Labeled("app", name) }

// The exact messages that operators read. In each case, the last pod by name is unschedulable.
func TestReasonMessages(t *testing.T) {
	inZ1 := func(edit ...func(*np)) []snapshot.Pool { return pool(append(edit, Require(Zone, in, "z1"))...) }
	running := func(zone, app string) snapshot.Node {
		return Node("n-"+zone, "other", inZone(zone), func(n *snapshot.Node) {
			n.Allocatable = Resources("cpu", "1", "memory", "1Gi", "pods", "1")
			n.Pods = []*corev1.Pod{Bound(Pod("old-"+zone, labelled(app)), n.Name)}
		})
	}
	for _, c := range []struct {
		name  string
		world *snapshot.Snapshot
		want  []string
	}{
		{"a zone that the pool does not allow", World(inZ1(), Pod("a", Selects(Zone, "z2"))), []string{
			"Requirements: fits m.small in z2, but the pod requires topology.kubernetes.io/zone=z2; the pool allows only z1",
		}},
		{"a zone that no pool has", world(Pod("a", Selects(Zone, "moon"))), []string{
			"Requirements: fits m.small in z1, but the pod requires topology.kubernetes.io/zone=moon, which no instance type has (there is only z1, z2, z3)",
		}},
		{"a zone that is spelled wrong", world(Pod("a", Selects(Zone, "z11"))), []string{
			`Requirements: fits m.small in z1, but the pod requires topology.kubernetes.io/zone=z11, which no instance type has (did you mean "z1"?)`,
		}},
		{"an instance type that is spelled wrong", world(Pod("a", Needs(Expr(instanceType, in, "m.xlagre")))), []string{
			`Requirements: fits m.small in z1, but the pod requires node.kubernetes.io/instance-type=m.xlagre, which no instance type has (did you mean "m.xlarge"?)`,
		}},
		{"an instance type that the pool does not allow", World(pool(Require(instanceType, in, "m.small", "m.medium")), Pod("a",
			Selects(instanceType, "m.large"))), []string{
			"Requirements: fits m.large in z1, but the pod requires node.kubernetes.io/instance-type=m.large; the pool allows only m.medium, m.small",
		}},
		{"a label without its domain", world(Pod("a", Selects("zone", "z1"))), []string{
			`Requirements: fits m.small in z1, but the pod requires zone=z1, a label that neither the pool nor its instance types have (did you mean "topology.kubernetes.io/zone"?)`,
		}},
		{"a label that is spelled wrong", world(Pod("a", Selects("topology.kubernets.io/zone", "z1"))), []string{
			`Requirements: fits m.small in z1, but the pod requires topology.kubernets.io/zone=z1, a label that neither the pool nor its instance types have (did you mean "topology.kubernetes.io/zone"?)`,
		}},
		{"a label that is like no other", world(Pod("a", Selects("team", "data"))), []string{
			"Requirements: fits m.small in z1, but the pod requires team=data, a label that neither the pool nor its instance types have",
		}},
		{"a value of the pool's own label", World(pool(Require("team", in, "x", "y")), Pod("a", Selects("team", "z"))), []string{
			"Requirements: fits m.small in z1, but the pod requires team=z; the pool allows only x, y",
		}},
		{"a label of the pool's template", World(pool(TemplateLabel("team", "x")), Pod("a", Selects("team", "z"))), []string{
			"Requirements: fits m.small in z1, but the pod requires team=z; the pool allows only x",
		}},
		{"a value that the pool excludes", World(pool(Require(Arch, notIn, "amd64", "s390x")), Pod("a", Selects(Arch, "amd64"))), []string{
			"Requirements: its own requirements filtered out all instance types: none has kubernetes.io/arch not in (amd64, s390x) (there is only amd64)",
		}},
		{"another pool", world(Pod("a", Selects(karpv1.LabelNodePool, "generall"))), []string{
			`Requirements: fits m.small in z1, but the pod requires karpenter.sh/nodepool=generall (did you mean "general"?)`,
		}},
		{"a certain node", world(Pod("a", Needs(Expr(Host, in, "n1")))), []string{
			"Requirements: fits m.small in z1, but the pod requires kubernetes.io/hostname=n1, and a new node has a name of its own",
		}},
		{"a contradiction within the pod", world(Pod("a", Selects(Zone, "z1"), Needs(Expr(Zone, in, "z2", "z3")))), []string{
			"Requirements: the pod contradicts itself: nothing can be both topology.kubernetes.io/zone=z1 and topology.kubernetes.io/zone in (z2, z3)",
		}},
		{"a contradiction with the pod's volume", storage(world(Pod("a", Selects(Zone, "z1"), Claims("data"))), disk{
			name:   "data",
			volume: volumeIn(zoned("z2")),
		}), []string{
			"Volume: the pod requires topology.kubernetes.io/zone=z1, but its volumes can only be used in topology.kubernetes.io/zone=z2: nothing can be both",
		}},
		{"the first alternative is nearer", World(inZ1(), Pod("a", Needs(Expr(Zone, in, "z2")), Needs(Expr("team", in, "x"), Expr(Zone, in,
			"z3")))), []string{
			"Requirements: fits m.small in z2, but the pod requires topology.kubernetes.io/zone=z2; the pool allows only z1",
		}},
		{"a taint", World(pool(PoolTaint("hard", noPlace)), Pod("a")), []string{
			"Taints: fits m.small in z1, but the pod does not tolerate taint hard:NoSchedule",
		}},
		{
			"taints, and a zone besides", World(inZ1(PoolTaint("hard", noPlace), PoolTaint("harder", noPlace)), Pod("a", Selects(Zone, "z2"))),
			[]string{
				"Taints: the pod does not tolerate taints hard:NoSchedule, harder:NoSchedule",
				"Requirements: the pod requires topology.kubernetes.io/zone=z2; the pool allows only z1; but for these 2 reasons it fits m.small in z2",
			},
		},
		{"too large", world(Pod("a", Requests("cpu", "9", "memory", "1Gi"))), []string{
			"Resources: the pod needs 9 cpu: no instance type is that large; m.xlarge, the largest type that suits it, has 8 for pods",
		}},
		{"too large beside daemons", daemons(world(Pod("a", Requests("cpu", "8"))), Pod("agent", Requests("cpu", "300m"))), []string{
			"Resources: the pod needs 8 cpu, and m.xlarge, the largest type that suits it, has 7700m for pods after 300m for daemons",
		}},
		{"too large in two ways", world(Pod("a", Requests("cpu", "9", "memory", "64Gi"))), []string{
			"Resources: the pod needs 9 cpu: no instance type is that large; m.xlarge, the largest type that suits it, has 8 for pods; and 64Gi memory: no instance type is that large; m.xlarge, the largest type that suits it, has 32Gi for pods",
		}},
		{"too large for all together", World(singlePool(Type("c", 1, "cpu", "8", "memory", "2Gi"), Type("r", 1, "cpu", "2", "memory", "32Gi")),
			Pod("a", Requests("cpu", "4", "memory", "16Gi"))), []string{
			"Resources: no single instance type has enough of everything that the pod needs: 4 cpu, 16Gi memory",
		}},
		{"larger types are kept away by the pool", World(pool(Require(instanceType, in, "m.small", "m.medium")), Pod("a", Requests("cpu",
			"3"))), []string{
			"Resources: fits m.large in z1, but the pod needs 3 cpu, and m.medium, the largest type that suits it, has 2 for pods; the pool allows only node.kubernetes.io/instance-type in (m.medium, m.small)",
		}},
		{"larger types are kept away by the pod", world(Pod("a", Requests("cpu", "3"), Selects(instanceType, "m.small"))), []string{
			"Resources: fits m.large in z1, but the pod requires node.kubernetes.io/instance-type=m.small: the pod needs 3 cpu, and m.small, the largest type that suits it, has 1 for pods",
		}},
		{"a resource that is spelled wrong", World(singlePool(Type("g", 1, "cpu", "8", "memory", "32Gi", "nvidia.com/gpu", "1")), Pod("a",
			Requests("nvidia.com/gpus", "1"))), []string{
			`Resources: the pod needs 1 nvidia.com/gpus, which no instance type has (did you mean "nvidia.com/gpu"?)`,
		}},
		{"a resource that only others have", World([]snapshot.Pool{Pool("gpu", []catalogType{Type("g", 1, "cpu", "8", "memory", "32Gi",
			"nvidia.com/gpu", "1")}, PoolTaint("gpu", noPlace)), Pool("plain", Types())}, Pod("a", Requests("nvidia.com/gpu", "1"))), []string{
			"plain: Resources: the pod needs nvidia.com/gpu, and no instance type that suits it otherwise has any",
			"gpu: Taints: fits g in z1, but the pod does not tolerate taint gpu:NoSchedule",
		}},
		{"a limit", World(pool(Limit("cpu", "4")), Pod("a", Requests("cpu", "3")), Pod("b", Requests("cpu", "3"))), []string{
			"Limits: fits m.large in z1, but the pool's limit of 4 cpu leaves 0 (0 in use, 4 planned), and the smallest suitable type, m.large, adds 4",
		}},
		{"a limit on nodes", World(pool(Limit("nodes", "1")), Pod("a", Requests("cpu", "5")), Pod("b", Requests("cpu", "5"))), []string{
			"Limits: fits m.xlarge in z1, but the pool's limit of 1 nodes leaves 0 (0 in use, 1 planned), and the smallest suitable type, m.xlarge, adds 1",
		}},
		{"nothing to be had", World([]snapshot.Pool{Pool("general", unavailableIn("z1"), Require(Zone, in, "z1"))}, Pod("a", Requests("cpu",
			"3"))), []string{
			"NoOffering: fits m.large in z1, but none of the 2 instance types that fit is available at the moment in z1",
		}},
		{"one type is all, and not to be had", World([]snapshot.Pool{Pool("general", unavailableIn("z1"))}, Pod("a", Requests("cpu", "5"),
			Selects(Zone, "z1"), Selects(Capacity, "spot"))), []string{
			"NoOffering: fits m.xlarge in z1, but m.xlarge, the only instance type that fits, is not available at the moment as spot in z1",
		}},
		{"no price is known", World([]snapshot.Pool{Pool("general", withoutPrices(Types()))}, Pod("a", Requests("cpu", "3"))), []string{
			"NoOffering: fits m.large in z1, but no price is known of any of the 2 instance types that suit, and nothing is launched at an unknown price: a NodeOverlay can give it one (feature gate NodeOverlay)",
		}},
		{
			"no price is known of the only type", World([]snapshot.Pool{Pool("general", withoutPrices(Types()))}, Pod("a", Requests("cpu", "5"))),
			[]string{
				"NoOffering: fits m.xlarge in z1, but no price is known of m.xlarge, the only instance type that suits, and nothing is launched at an unknown price: a NodeOverlay can give it one (feature gate NodeOverlay)",
			},
		},
		{"no price is known of some, and others are sold out", World([]snapshot.Pool{Pool("general", mostlyUnpriced())}, Pod("a",
			Requests("cpu", "1"))), []string{
			"NoOffering: fits m.small in z1, but none of the 4 instance types that fit is available at the moment",
		}},
		{"too little to choose from", World(pool(Require(instanceType, exists), MinValues(3)), Pod("a", Requests("cpu", "3"))), []string{
			"MinValues: fits m.large in z1, but too few instance types are left to choose from: 2 values of node.kubernetes.io/instance-type instead of at least 3",
		}},
		{"a daemon's host port", daemons(world(Pod("a", HostPort("", 80, "TCP"))), Pod("agent", HostPort("", 80, "TCP"))), []string{
			"HostPort: fits m.small in z1, but a DaemonSet takes the pod's host port (80/TCP) on every node that would suit",
		}},
		{"spread over zones that the pool has not", withNodes(World(inZ1(), Pod("a", labelled("web"), Spread(Zone, 1, "web"))), running("z1",
			"web"), running("z2", "other")), []string{
			"Topology: fits m.small in z2, but topology spread over topology.kubernetes.io/zone with maxSkew 1 (pods now: z1 (1), z2 (0)) allows only z2; the pool allows only topology.kubernetes.io/zone=z1",
		}},
		{"spread over too few zones", World(inZ1(), Pods(2, "a", labelled("web"), Spread(Zone, 1, "web", minDomains(2)))...), []string{
			"Topology: fits m.small in z2, but topology spread over topology.kubernetes.io/zone with maxSkew 1 (pods now: z1 (1)) allows no more: minDomains is 2, and the pod can use only 1; the pool allows only topology.kubernetes.io/zone=z1",
		}},
		{"affinity to pods that do not exist", world(Pod("a", Near(Zone, "db"))), []string{
			"Topology: fits m.small in z1, but pod affinity over topology.kubernetes.io/zone to pods with app=db: there are none; a node of this pool for it can only be in z1, z2, z3",
		}},
		{"affinity to pods in a zone that the pool has not", withNodes(World(inZ1(), Pod("a", Near(Zone, "db"))), running("z2", "db")), []string{
			"Topology: fits m.small in z2, but pod affinity over topology.kubernetes.io/zone to pods with app=db, which are in z2 (1): default/old-z2 runs on node n-z2; the pool allows only topology.kubernetes.io/zone=z1",
		}},
		{"affinity to pods on a full node", withNodes(world(Pod("a", Requests("cpu", "1"), Near(Host, "db"))), running("z2", "db")), []string{
			"Topology: fits m.small in z1, but pod affinity over kubernetes.io/hostname to pods with app=db: a new node has none, and the nodes that have some do not take the pod",
		}},
		{"anti-affinity, everywhere", withNodes(world(Pod("a", Apart(Zone, "db"))), running("z1", "db"), running("z2", "db"), running("z3",
			"db")), []string{
			"Topology: fits m.small in z1, but pod anti-affinity over topology.kubernetes.io/zone to pods with app=db, which are or may come up in z1 (1), z2 (1), z3 (1): default/old-z1 runs on node n-z1; a node of this pool for it can only be in z1, z2, z3",
		}},
		{"another pod's anti-affinity", withNodes(World(inZ1(), Pod("a", labelled("web"))), Node("n", "other", full, func(n *snapshot.Node) {
			n.Pods = []*corev1.Pod{Bound(Pod("old", Apart(Zone, "web")), "n")}
		})), []string{
			"Topology: fits m.small in z2, but another pod's anti-affinity over topology.kubernetes.io/zone, which is or may come up in z1 (1): default/old runs on node n; the pool allows only topology.kubernetes.io/zone=z1",
		}},
		{
			"a volume in another zone", storage(World(inZ1(), Pod("a", Claims("data"))), disk{name: "data", volume: volumeIn(zoned("z2"))}),
			[]string{
				`Volume: fits m.small in z2, but volume claim "data" can only be used in topology.kubernetes.io/zone=z2; the pool allows only z1`,
			},
		},
		{
			"a volume in a zone that no pool has", storage(world(Pod("a", Claims("data"))), disk{name: "data", volume: volumeIn(zoned("z9"))}),
			[]string{
				`Volume: fits m.small in z1, but volume claim "data" can only be used in topology.kubernetes.io/zone=z9, which no instance type has (there is only z1, z2, z3)`,
			},
		},
		{"no volume", world(Pod("a", Claims("data"))), []string{
			`Volume: volume claim "data" does not exist`,
		}},
		{"no pool", World(nil, Pod("a")), []string{
			"NoNodePools: no NodePool can launch nodes, and no existing node has room",
		}},
		{"a pool that excludes itself", World(pool(Require(instanceType, in, "m.smal")), Pod("a")), []string{
			`Requirements: its own requirements filtered out all instance types: none has node.kubernetes.io/instance-type=m.smal (did you mean "m.small"?)`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.world, schedule.Budget{})
			if len(p.Rejected) == 0 {
				t.Fatalf("every pod has a place:\n%s", describe(p))
			}
			var got []string
			for _, r := range p.Rejected[len(p.Rejected)-1].Reasons {
				line := string(r.Code) + ": " + wording.Reason(r)
				if len(c.world.Pools) > 1 {
					line = r.NodePool + ": " + line
				}
				got = append(got, line)
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Reasons are complete: without them, the pod goes where they state that it fits.
func TestNearestFitIsTrue(t *testing.T) {
	said := map[schedule.Code]int{}
	for seed := range uint64(4 * worlds) {
		s := randomWorld(seed)
		s.Pods = s.Pods[:1]
		for i := range s.Nodes { // none of which takes the pod
			s.Nodes[i].Allocatable, s.Nodes[i].Nominated = Resources("pods", "0"), nil
		}
		p := schedule.Solve(s, schedule.Budget{})
		if len(p.Rejected) == 0 {
			continue
		}
		byPool := map[string][]schedule.Reason{}
		for _, r := range p.Rejected[0].Reasons {
			byPool[r.NodePool] = append(byPool[r.NodePool], r)
			said[r.Code]++
		}
		for pool, reasons := range byPool {
			near := reasons[0].Nearest
			if near == nil {
				continue
			}
			said["nearest"]++
			p := schedule.Solve(withoutReasons(s, pool, reasons), schedule.Budget{})
			if len(p.Launches) != 1 || p.Launches[0].InstanceTypes[0].Name != near.InstanceType || p.Launches[0].Offering.Zone != near.Zone ||
				p.Launches[0].Offering.CapacityType != near.CapacityType {
				t.Fatalf("seed %d: pool %s says %+v\nbut without that the plan is\n%s\n%+v", seed, pool, reasons, describe(p), firstReasons(p))
			}
		}
	}
	for _, code := range []schedule.Code{schedule.Requirement, schedule.Taint, schedule.Limits, schedule.Topology, schedule.Volume, schedule.MinValues, schedule.Resources, schedule.Offering, "nearest"} {
		if said[code] < 5 {
			t.Errorf("%d reasons of %s are too few to prove anything", said[code], code)
		}
	}
}

// firstReasons are the reasons of the first unschedulable pod.
func firstReasons(p schedule.Plan) []schedule.Reason {
	if len(p.Rejected) == 0 {
		return nil
	}
	return p.Rejected[0].Reasons
}

// withoutReasons is the snapshot without the obstacles that the reasons name, where only one pool can launch.
func withoutReasons(s *snapshot.Snapshot, pool string, reasons []schedule.Reason) *snapshot.Snapshot {
	out := *s
	pod := s.Pods[0].DeepCopy()
	out.Pods, out.Pools, out.Nodes = []*corev1.Pod{pod}, nil, nil
	var mine *snapshot.Pool
	for _, p := range s.Pools {
		p.NodePool = p.NodePool.DeepCopy()
		out.Pools = append(out.Pools, p)
		if p.NodePool.Name == pool {
			mine = &out.Pools[len(out.Pools)-1]
		} else { // still there for the eye of topology
			PoolTaint("closed", noPlace)(p.NodePool)
		}
	}
	for i := range out.Pools {
		if out.Pools[i].NodePool.Name == pool {
			mine = &out.Pools[i]
		}
	}
	out.Nodes = append(out.Nodes, s.Nodes...)
	out.Settings.PreferencePolicy = "Ignore" // a preference may lead elsewhere
	for _, r := range reasons {
		removeReason(&out, mine, pod, r)
	}
	return &out
}

// removeReason removes the obstacle of one reason.
func removeReason(s *snapshot.Snapshot, pool *snapshot.Pool, pod *corev1.Pod, r schedule.Reason) {
	byPool, keys := obstacleLabels(r.Rule)
	for _, key := range keys {
		if byPool && key != "team" && key != "rack" { // which only the pod can do without
			spec := &pool.NodePool.Spec.Template
			spec.Spec.Requirements = slices.DeleteFunc(spec.Spec.Requirements, func(r karpv1.Requirement) bool { return r.Key == key })
			delete(spec.Labels, key)
		} else if r.Code == schedule.Requirement || r.Code == schedule.Resources {
			dropLabel(pod, key)
		}
	}
	switch r.Code {
	case schedule.Taint:
		Tolerates("hard")(pod)
	case schedule.Limits:
		pool.NodePool.Spec.Limits = nil
	case schedule.MinValues:
		for i := range pool.NodePool.Spec.Template.Spec.Requirements {
			pool.NodePool.Spec.Template.Spec.Requirements[i].MinValues = nil
		}
	case schedule.HostPort:
		pod.Spec.Containers[0].Ports = nil
	case schedule.Offering:
		var types []catalogType
		for _, it := range pool.InstanceTypes {
			full := *it
			full.Offerings = slices.Clone(it.Offerings)
			for i := range full.Offerings {
				full.Offerings[i].Available = true
			}
			types = append(types, &full)
		}
		pool.InstanceTypes = types
	case schedule.Volume:
		if !byPool {
			pod.Spec.Volumes = nil
		}
	case schedule.Topology:
		if !byPool {
			dropConstraint(s, pod, r.Rule.Domains.Constraints[0])
		}
	}
}

// obstacleLabels are the labels on which pod and pool conflict by the rule, and whether the pool could do without its requirement.
func obstacleLabels(rule *rejection.Rule) (byPool bool, keys []string) {
	if rule == nil {
		return false, nil
	}
	var labels []rejection.Label
	pool := func(l *rejection.Label) {
		if byPool = byPool || l != nil; l != nil {
			labels = append(labels, *l)
		}
	}
	switch {
	case rule.Labels != nil:
		pool(rule.Labels.Allowed)
		labels = slices.Concat(labels, rule.Labels.Required, rule.Labels.With)
	case rule.Sizes != nil:
		pool(rule.Sizes.Pool)
		if rule.Sizes.Pod != nil {
			labels = append(labels, *rule.Sizes.Pod)
		}
	case rule.Domains != nil:
		pool(rule.Domains.Pool)
	}
	for _, l := range labels {
		keys = append(keys, l.Key)
	}
	return byPool, keys
}

// dropConstraint drops the topology constraint that is named first.
func dropConstraint(s *snapshot.Snapshot, pod *corev1.Pod, c rejection.Constraint) {
	named := func(kind rejection.ConstraintKind, key string) bool { return c.Kind == kind && c.Key == key }
	if c.Claim != "" {
		pod.Spec.Volumes = nil
	}
	pod.Spec.TopologySpreadConstraints = slices.DeleteFunc(
		pod.Spec.TopologySpreadConstraints,
		func(c corev1.TopologySpreadConstraint) bool { return named(rejection.KindSpread, c.TopologyKey) },
	)
	drop := func(kind rejection.ConstraintKind, terms *[]corev1.PodAffinityTerm) {
		*terms = slices.DeleteFunc(*terms, func(t corev1.PodAffinityTerm) bool { return named(kind, t.TopologyKey) })
	}
	affinity := func(p *corev1.Pod) *corev1.Affinity {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		if p.Spec.Affinity.PodAffinity == nil {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
		}
		if p.Spec.Affinity.PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		return p.Spec.Affinity
	}
	drop(rejection.KindAffinity, &affinity(pod).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	drop(rejection.KindApart, &affinity(pod).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	for i := range s.Nodes {
		s.Nodes[i].Pods = slices.Clone(s.Nodes[i].Pods)
		for k, p := range s.Nodes[i].Pods {
			p = p.DeepCopy()
			drop(rejection.KindInverse, &affinity(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			s.Nodes[i].Pods[k] = p
		}
	}
}

// dropLabel drops what a pod requires of a label.
func dropLabel(pod *corev1.Pod, key string) {
	delete(pod.Spec.NodeSelector, key)
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		for i := range terms {
			terms[i].MatchExpressions = slices.DeleteFunc(
				terms[i].MatchExpressions,
				func(x corev1.NodeSelectorRequirement) bool { return x.Key == key },
			)
		}
		if slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions) == 0 }) {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil // an alternative that requires nothing
		}
	}
}
