package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

type edit = func(*corev1.Pod)

// family is pods as a controller would create them, sometimes of two revisions.
func (d random) family(name string, most int) []*corev1.Pod {
	edits := d.edits(name)
	namespace := ""
	if d.maybe(15) {
		namespace = "other"
	}
	second := edit(func(*corev1.Pod) {})
	if d.maybe(25) {
		second = Labeled("rev", "2")
	}
	pods := Pods(d.from(1, most), name, append([]edit{Labeled("app", name), Labeled("rev", "1")}, edits...)...)
	for i, p := range pods {
		if namespace != "" {
			p.Namespace = namespace
		}
		if i%2 == 1 {
			second(p)
		}
	}
	return pods
}

func (d random) edits(name string) []edit {
	out := []edit{d.requests()}
	add := func(percent int, e func() edit) {
		if d.maybe(percent) {
			out = append(out, e())
		}
	}
	other := func() string { return pick(d, name, "a", "b", "c", "d") }
	key := func() string { return pick(d, Zone, Host, Zone, Host, "rack", Capacity, Arch, "team", zoneID) }
	add(15, d.selector)
	add(25, d.nodeAffinity)
	add(20, func() edit { return d.preference() })
	add(8, func() edit { return d.preference() })
	add(30, d.toleration)
	for range 2 {
		add(20, func() edit { return d.spread(key(), other()) })
	}
	add(12, func() edit { return d.affinityTerm(Near(pick(d, Zone, Host, "rack", Capacity), other()), nearTerms) })
	add(14, func() edit { return d.affinityTerm(Apart(pick(d, Zone, Host, "rack", Arch), other()), apartTerms) })
	add(10, func() edit { return PreferNear(int32(d.from(1, 9)), pick(d, Zone, Host), other()) })
	add(10, func() edit { return PreferApart(int32(d.from(1, 9)), pick(d, Zone, Host), other()) })
	add(20, d.volume)
	add(6, d.volume)
	add(12, func() edit {
		return HostPort(
			pick(d, "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::"),
			int32(pick(d, 80, 81)),
			pick(d, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
		)
	})
	add(10, func() edit {
		n := int32(d.n(3))
		return func(p *corev1.Pod) { p.Spec.Priority = &n }
	})
	add(1, func() edit {
		return func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device"}} }
	})
	return out
}

func (d random) amount() corev1.ResourceList {
	return Resources("cpu", fmt.Sprintf("%dm", 50*d.from(1, 60)), "memory", fmt.Sprintf("%dMi", 64*d.from(1, 90)))
}

func (d random) requests() edit {
	main := d.amount()
	if d.maybe(8) {
		main[gpus] = Resources(gpus, "1")[gpus]
	}
	if d.maybe(3) {
		main["example.com/none"] = Resources("x", fmt.Sprint(d.n(2)))["x"]
	}
	var starting []corev1.Container
	if d.maybe(20) {
		for i := range d.from(1, 3) {
			c := corev1.Container{Name: fmt.Sprintf("init-%d", i), Resources: corev1.ResourceRequirements{Requests: d.amount()}}
			if d.maybe(50) {
				always := corev1.ContainerRestartPolicyAlways
				c.RestartPolicy = &always
				if d.maybe(20) {
					c.Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}
				}
			}
			starting = append(starting, c)
		}
	}
	var whole *corev1.ResourceRequirements
	if d.maybe(8) {
		whole = &corev1.ResourceRequirements{Requests: d.amount()}
	}
	var overhead corev1.ResourceList
	if d.maybe(10) {
		overhead = Resources("cpu", "250m", "memory", "120Mi")
	}
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = main
		p.Spec.InitContainers, p.Spec.Resources, p.Spec.Overhead = starting, whole, overhead
	}
}

func (d random) selector() edit {
	switch d.n(9) {
	case 8:
		return Selects(corev1.LabelOSStable, pick(d, "linux", "windows"))
	case 0:
		return Selects(Zone, pick(d, Zones()...))
	case 1:
		return Selects(pick(d, Arch, "beta.kubernetes.io/arch"), pick(d, "amd64", "arm64"))
	case 2:
		return Selects("rack", pick(d, "r1", "r2"))
	case 3:
		return Selects("team", pick(d, "x", "y"))
	case 4:
		return Selects(karpv1.LabelNodePool, pick(d, "p0", "p1", "p2"))
	case 5:
		return Selects(corev1.LabelInstanceTypeStable, pick(d, "t0", "t1", "t2"))
	case 6:
		return Selects(cores, pick(d, "2", "4"))
	default:
		return Selects(Capacity, pick(d, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand))
	}
}

func (d random) expression() corev1.NodeSelectorRequirement {
	switch d.n(12) {
	case 0, 1:
		return Expr(Zone, in, some(d, 3, "z1", "z2", "z3")...)
	case 2:
		return Expr(Zone, notIn, pick(d, Zones()...))
	case 3:
		return Expr(Arch, in, some(d, 2, "amd64", "arm64")...)
	case 4:
		return Expr("team", in, some(d, 3, "x", "y", "z")...)
	case 5:
		return Expr("team", notIn, some(d, 2, "x", "y")...)
	case 6:
		return Expr(pick(d, "team", "rack", gpu, "size"), pick(d, exists, absent))
	case 7:
		return Expr(pick(d, cores, "size"), pick(d, gt, lt, gte, lte), fmt.Sprint(pick(d, 1, 2, 4)))
	case 8:
		return Expr(corev1.LabelInstanceTypeStable, notIn, some(d, 2, "t0", "t1", "t2")...)
	case 9:
		return Expr(karpv1.LabelNodePool, pick(d, in, notIn), pick(d, "p0", "p1"))
	case 10:
		return Expr(Capacity, in, some(d, 2, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand)...)
	default:
		return Expr(zoneID, in, some(d, 2, "z1-id", "z2-id", "z3-id")...)
	}
}

func (d random) expressions() []corev1.NodeSelectorRequirement {
	out := []corev1.NodeSelectorRequirement{d.expression()}
	if d.maybe(30) {
		out = append(out, d.expression())
	}
	return out
}

func (d random) nodeAffinity() edit {
	var terms []edit
	for range d.from(1, 3) {
		terms = append(terms, Needs(d.expressions()...))
	}
	return all(terms...)
}

func all(edits ...edit) edit {
	return func(p *corev1.Pod) {
		for _, e := range edits {
			e(p)
		}
	}
}

func (d random) preference() edit { return Prefers(int32(d.from(1, 9)), d.expressions()...) }

func (d random) toleration() edit {
	switch d.n(4) {
	case 0:
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "hard", Effect: corev1.TaintEffectNoSchedule})
		}
	case 1:
		return Tolerates("soft")
	default:
		return Tolerates("hard")
	}
}

func (d random) spread(key, app string) edit {
	var edits []func(*corev1.TopologySpreadConstraint)
	policy := func() *corev1.NodeInclusionPolicy {
		return pick(d, nil, ptr(corev1.NodeInclusionPolicyHonor), ptr(corev1.NodeInclusionPolicyIgnore))
	}
	if d.maybe(25) {
		edits = append(edits, func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway })
	} else if d.maybe(25) {
		n := int32(d.from(1, 4))
		edits = append(edits, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n })
	}
	if d.maybe(20) {
		edits = append(edits, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev", "none"} })
	}
	if d.maybe(35) {
		affinity, taints := policy(), policy()
		edits = append(edits, func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy, c.NodeTaintsPolicy = affinity, taints })
	}
	if d.maybe(10) {
		selector := d.labelSelector()
		edits = append(edits, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = selector })
	}
	return Spread(key, int32(d.from(1, 2)), app, edits...)
}

func ptr[T any](v T) *T { return &v }

// labelSelector is one that is not just an app's.
func (d random) labelSelector() *metav1.LabelSelector {
	return pick(d, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
	}}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "rev", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"2"}},
	}})
}

func nearTerms(p *corev1.Pod) []corev1.PodAffinityTerm {
	return p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func apartTerms(p *corev1.Pod) []corev1.PodAffinityTerm {
	return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// affinityTerm adds a term and then sometimes widens what it selects.
func (d random) affinityTerm(add edit, terms func(*corev1.Pod) []corev1.PodAffinityTerm) edit {
	namespaces := pick(d, nil, nil, nil, []string{"other"}, []string{"default", "other"})
	selector := pick(d, nil, nil, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "back"}})
	var match, mismatch []string
	if d.maybe(15) {
		match = []string{"rev"}
	} else if d.maybe(8) {
		mismatch = []string{"rev"}
	}
	var whom *metav1.LabelSelector
	replace := d.maybe(8)
	if replace {
		whom = d.labelSelector()
	}
	return func(p *corev1.Pod) {
		add(p)
		list := terms(p)
		t := &list[len(list)-1]
		t.Namespaces, t.NamespaceSelector, t.MatchLabelKeys, t.MismatchLabelKeys = namespaces, selector, match, mismatch
		if replace {
			t.LabelSelector = whom
		}
	}
}

func (d random) volume() edit {
	if d.maybe(15) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(
				p.Spec.Volumes,
				corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			)
		}
	}
	return Claims(
		pick(d, "disk-z1", "disk-z2", "disk-z1-or-z3", "disk-anywhere", "disk-local", "disk-host", "disk-new", "disk-new-z2", "disk-intree",
			"disk-soon", "disk-lost", "disk-missing", "disk-once", "disk-once", "disk-once-z1"),
	)
}
