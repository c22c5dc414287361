package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const widgets = "example.com/widget"

// wideWorld is a world with rarer things besides: capacity reservations, offerings that hold more or less than their type,
// topology over pools and types, limits of any resource, taints with values, static pools, claims in flight that are
// half known, pods with several containers and ports.
func (d random) wideWorld() *snapshot.Snapshot {
	s := d.anyWorld()
	s.Labels.ReservationID = ReservationID
	s.Labels.WellKnown[ReservationID] = true
	d.reserve(s, pick(d, 0, 0, 50))
	if d.maybe(35) {
		d.overlay(s)
	}
	for i := range s.Pools {
		d.widenPool(s.Pools[i].NodePool)
	}
	for i := range s.Nodes {
		d.widenNode(&s.Nodes[i])
	}
	rare := map[string][]edit{}
	for _, app := range []string{"a", "b", "c", "d"} {
		rare[app] = d.rareEdits(app)
	}
	for _, p := range s.Pods {
		all(rare[p.Labels["app"]]...)(p)
	}
	for i := range s.DaemonSets {
		d.widenDaemon(s.DaemonSets[i].Pod)
	}
	s.NoteLacking()
	return s
}

// replaceTypes replaces instance types in all pools that have them.
func replaceTypes(s *snapshot.Snapshot, with func(*catalog.InstanceType) *catalog.InstanceType) {
	known := map[*catalog.InstanceType]*catalog.InstanceType{}
	for i := range s.Pools {
		list := s.Pools[i].InstanceTypes
		s.Pools[i].InstanceTypes = nil
		for _, it := range list {
			if known[it] == nil {
				known[it] = with(it)
			}
			s.Pools[i].InstanceTypes = append(s.Pools[i].InstanceTypes, known[it])
		}
	}
}

// reserve gives a share of the types an offering in a capacity reservation. The others have no such label.
func (d random) reserve(s *snapshot.Snapshot, percent int) {
	left := map[string]int{"r-1": d.n(3), "r-2": d.n(3)} // a reservation has the same instances left wherever it is listed
	replaceTypes(s, func(it *catalog.InstanceType) *catalog.InstanceType {
		if !d.maybe(percent) {
			return WithLabel(it, ReservationID)
		}
		id := pick(d, "r-1", "r-2")
		return nameZones(WithReservation(it, id, left[id]))
	})
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" && !n.Launched && d.maybe(percent) {
			n.Requirements = append(n.Requirements,
				karpv1.Requirement{Key: ReservationID, Operator: in, Values: []string{pick(d, "r-1", "r-2")}},
				karpv1.Requirement{Key: Capacity, Operator: in, Values: []string{karpv1.CapacityTypeReserved}})
		}
	}
}

// overlay lets some offerings hold other amounts than their type.
func (d random) overlay(s *snapshot.Snapshot) {
	replaceTypes(s, func(it *catalog.InstanceType) *catalog.InstanceType {
		if !d.maybe(50) {
			return it
		}
		out := *it
		out.Offerings = append([]catalog.Offering{}, it.Offerings...)
		known := map[catalog.OfferingKey]corev1.ResourceList{}
		for i := range out.Offerings {
			o := &out.Offerings[i]
			if same, ok := known[o.Key(it.Name)]; ok || !d.maybe(50) {
				o.Capacity, o.Allocatable = same, same
				known[o.Key(it.Name)] = same
				continue
			}
			more := Resources(widgets, fmt.Sprint(d.from(1, 3)))
			if d.maybe(30) {
				more["memory"] = Resources("memory", fmt.Sprintf("%dGi", d.from(1, 40)))["memory"]
			}
			o.Capacity, o.Allocatable = more, more
			known[o.Key(it.Name)] = more
		}
		return &out
	})
}

func (d random) widenPool(np *karpv1.NodePool) {
	spec := &np.Spec.Template.Spec
	if d.maybe(10) {
		spec.Taints = append(spec.Taints, corev1.Taint{
			Key: "dedicated", Value: pick(d, "x", "y"), Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
	}
	switch d.n(12) {
	case 0:
		Limit(pick(d, widgets, "pods", "ephemeral-storage"), fmt.Sprint(d.n(40)), "cpu", fmt.Sprint(d.n(64)))(np)
	case 2:
		Require("team", exists)(np)
	case 3:
		Require(zoneID, notIn, pick(d, "z1-id", "z2-id"))(np)
	case 4:
		Require(Capacity, notIn, pick(d, karpv1.CapacityTypeSpot, karpv1.CapacityTypeReserved))(np)
	case 5:
		TemplateLabel("size", fmt.Sprint(d.n(4)))(np)
	}
	if d.maybe(4) {
		n := int64(d.n(3))
		np.Spec.Replicas = &n
	}
}

func (d random) widenNode(n *snapshot.Node) {
	switch d.n(10) {
	case 0:
		n.Taints = append(n.Taints, corev1.Taint{Key: "dedicated", Value: pick(d, "x", "y"), Effect: corev1.TaintEffectNoSchedule})
	case 1:
		if pick(d, "amd64", "arm64") != n.Labels[Arch] {
			delete(n.Labels, EarlierNames[Arch])
		}
	case 2:
		n.Labels["size"] = fmt.Sprint(d.n(4))
	case 3:
		n.Allocatable = nil // its kubelet has not reported yet
	case 4:
		if n.Launched && n.Allocatable != nil {
			n.Allocatable = n.Allocatable.DeepCopy()
			n.Allocatable[widgets] = Resources(widgets, "2")[widgets]
		}
	case 5:
		if n.Claim != "" && !n.Launched {
			n.Requirements = append(n.Requirements,
				karpv1.Requirement{Key: pick(d, Arch, "team", Zone), Operator: pick(d, exists, notIn), Values: nil})
			if r := &n.Requirements[len(n.Requirements)-1]; r.Operator == notIn {
				r.Values = []string{pick(d, "amd64", "x", "z1")}
			}
		}
	}
}

// rareEdits returns what the pods of an app have besides.
func (d random) rareEdits(name string) []edit {
	var out []edit
	add := func(percent int, e func() edit) {
		if d.maybe(percent) {
			out = append(out, e())
		}
	}
	// Labels for which a claim makes up a value are no domains that the engine counts on.
	key := func() string {
		return pick(d, karpv1.LabelNodePool, corev1.LabelInstanceTypeStable, Capacity, cores, Zone, zoneID)
	}
	other := func() string { return pick(d, name, "a", "b", "c", "d") }
	add(12, func() edit { return d.spread(key(), other()) })
	add(8, func() edit { return d.affinityTerm(Apart(key(), other()), apartTerms) })
	add(8, func() edit { return d.affinityTerm(Near(key(), other()), nearTerms) })
	add(10, func() edit { return Needs(d.rareExpression()) })
	add(6, func() edit { return Prefers(int32(d.from(1, 9)), d.rareExpression()) })
	add(15, d.rareToleration)
	add(12, d.secondContainer)
	add(12, func() edit {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Requests.DeepCopy()
			p.Spec.Containers[0].Resources.Requests[widgets] = Resources(widgets, "1")[widgets]
		}
	})
	return out
}

func (d random) rareExpression() corev1.NodeSelectorRequirement {
	switch d.n(10) {
	case 0:
		return Expr(Zone, pick(d, exists, absent))
	case 1:
		return Expr(ReservationID, pick(d, exists, absent))
	case 2:
		return Expr(ReservationID, pick(d, in, notIn), pick(d, "r-1", "r-2"))
	case 3:
		return Expr(Capacity, pick(d, in, notIn), karpv1.CapacityTypeReserved)
	case 4:
		return Expr(Host, notIn, pick(d, "n0", "n1"))
	case 5:
		return Expr(zoneID, notIn, some(d, 2, "z1-id", "z2-id", "z3-id")...)
	case 6:
		return Expr("team", pick(d, gt, lt), "3")
	case 7:
		return Expr("size", in, fmt.Sprint(d.n(4)))
	case 8:
		return Expr(corev1.LabelInstanceTypeStable, in, some(d, 3, "t0", "t1", "t2", "t3")...)
	default:
		return Expr(karpv1.LabelNodePool, exists)
	}
}

func (d random) rareToleration() edit {
	t := pick(d, corev1.Toleration{Operator: corev1.TolerationOpExists},
		corev1.Toleration{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule},
		corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists},
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule})
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

// secondContainer has requests, limits only, or nothing but host ports.
func (d random) secondContainer() edit {
	c := corev1.Container{Name: "second"}
	if d.maybe(50) {
		c.Resources.Requests = d.amount()
	} else {
		c.Resources.Limits = d.amount()
	}
	for range d.n(3) {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			HostPort: int32(pick(d, 80, 81, 82)), HostIP: pick(d, "", "127.0.0.1", "10.0.0.1", "10.0.0.2"),
			Protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, ""),
		})
	}
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, c) }
}

func (d random) widenDaemon(p *corev1.Pod) {
	switch d.n(10) {
	case 0:
		d.rareToleration()(p)
	case 1:
		d.secondContainer()(p)
	case 2:
		Needs(d.rareExpression())(p)
	case 3:
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: d.amount()}}}
	case 4:
		Prefers(5, d.rareExpression())(p)
	}
}
