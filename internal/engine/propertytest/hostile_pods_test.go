package propertytest_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// Whatever is drawn here, the API server admits: on creation, or as part of an object that it knew before it became
// stricter.

// oddQuantity is a valid amount that makes no sense.
func (d random) oddQuantity() resource.Quantity {
	return resource.MustParse(
		pick(
			d,
			"0",
			"1",
			"100m",
			"1m",
			"1n",
			"0.5",
			"1.5Gi",
			"2000",
			"64Gi",
			"9223372036854775807",
			"9223372036854775807m",
			"9223372036854775808",
			"9223372036854775",
			"18446744073709552",
			"10P",
			"100P",
			"1Ei",
			"7Ei",
			"8Ei",
			"1e18",
			"1e30",
			"1e400",
			"1e2147483647",
			"0e2147483647",
			strings.Repeat("9", 300),
			strings.Repeat("9", 40)+".000000001",
		),
	)
}

func (d random) oddAmounts() corev1.ResourceList {
	out := corev1.ResourceList{}
	for range d.from(1, 3) {
		name := pick(
			d,
			corev1.ResourceCPU,
			corev1.ResourceMemory,
			corev1.ResourceEphemeralStorage,
			corev1.ResourceName(gpus),
			"example.com/widget",
			"hugepages-2Mi",
			corev1.ResourceName("example.com/"+strings.Repeat("w", 63)),
			"attachable-volumes-csi-ebs.csi.aws.com",
		)
		if out[name] = d.oddQuantity(); d.maybe(40) {
			out[name] = d.amount()[corev1.ResourceCPU]
		}
	}
	return out
}

func (d random) oddResources() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: d.oddAmounts()}
	if d.maybe(40) {
		r.Limits = d.oddAmounts()
	}
	return r
}

func (d random) oddRequests(p *corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.Containers[0].Resources = d.oddResources()
	for i := range d.n(3) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("more-", i), Resources: d.oddResources()})
	}
	for i := range d.n(3) {
		c := corev1.Container{Name: fmt.Sprint("init-", i), Resources: d.oddResources()}
		if d.maybe(50) {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if d.maybe(30) {
		p.Spec.Overhead = d.oddAmounts()
	}
	if d.maybe(30) {
		r := d.oddResources()
		p.Spec.Resources = &r
	}
	if d.maybe(10) {
		r := d.oddResources()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: p.Spec.Containers[0].Name, Resources: &r, AllocatedResources: d.oddAmounts()},
		}
	}
}

func (d random) oddKey() string {
	return pick(
		d,
		"team",
		"size",
		"rack",
		Zone,
		Host,
		Arch,
		Capacity,
		cores,
		gpu,
		zoneID,
		corev1.LabelInstanceTypeStable,
		karpv1.LabelNodePool,
		karpv1.LabelRegistered,
		karpv1.LabelInitialized,
		corev1.LabelWindowsBuild,
		corev1.LabelTopologyRegion,
		"beta.kubernetes.io/arch",
		"failure-domain.beta.kubernetes.io/zone",
		"karpenter.sh/x",
		"sub.karpenter.sh/x",
		"kubernetes.io/x",
		"example.com/nodeclass",
		strings.Repeat(strings.Repeat("x", 62)+".", 4)+"y/"+strings.Repeat("z", 63),
		"UPPER",
		"a.b/C_d",
	)
}

// oddTopology is a key to spread over. What nodes have only once they are up is taken to be there from the start by
// the planner, and not by the oracle: neither minds pods of which somebody counts on it.
func (d random) oddTopology() string {
	if key := d.oddKey(); key != karpv1.LabelRegistered && key != karpv1.LabelInitialized {
		return key
	}
	return Zone
}

// labelValue is a value that a label may have.
func (d random) labelValue() string {
	return pick(
		d,
		"x",
		"",
		"z1",
		"amd64",
		"spot",
		"p0",
		"t0",
		"true",
		"0",
		"1",
		"4",
		"007",
		"9223372036854775807",
		"9223372036854775808",
		"1e3",
		"0x10",
		"A_b.c-9",
		strings.Repeat("v", 63),
	)
}

// oddValue is one that only preferred terms and old objects have.
func (d random) oddValue() string {
	return pick(
		d,
		d.labelValue(),
		"team a",
		"-5",
		"+5",
		"-9223372036854775808",
		"a/b",
		"ä",
		"x\n",
		"\x00",
		"$(reboot)",
		" ",
		"*",
		strings.Repeat("v", 64),
		strings.Repeat("long ", 30),
	)
}

func (d random) oddExpression(value func() string) corev1.NodeSelectorRequirement {
	e := corev1.NodeSelectorRequirement{Key: d.oddKey(), Operator: pick(d, in, notIn, exists, absent, gt, lt)}
	switch e.Operator {
	case gt, lt:
		e.Values = []string{value()}
	case in, notIn:
		for range d.from(1, 3) {
			e.Values = append(e.Values, value())
		}
		if d.maybe(5) {
			for i := range 300 {
				e.Values = append(e.Values, fmt.Sprint(i))
			}
		}
	}
	return e
}

func (d random) oddTerm(value func() string) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range d.n(4) {
		t.MatchExpressions = append(t.MatchExpressions, d.oddExpression(value))
	}
	if d.maybe(8) {
		t.MatchFields = []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: pick(d, in, notIn), Values: []string{pick(d, "n0", "gone")}},
		}
	}
	return t
}

func (d random) oddNodeAffinity(p *corev1.Pod) {
	a := &corev1.NodeAffinity{}
	if d.maybe(50) {
		value := d.labelValue
		if d.maybe(20) {
			value = d.oddValue
		}
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range d.from(1, 3) {
			terms := &a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			*terms = append(*terms, d.oddTerm(value))
		}
	}
	for range d.n(4) {
		t := corev1.PreferredSchedulingTerm{Weight: int32(pick(d, 1, 50, 100)), Preference: d.oddTerm(d.oddValue)}
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, t)
	}
	oddAffinity(p).NodeAffinity = a
	for range d.n(3) {
		Selects(d.oddKey(), d.labelValue())(p)
	}
}

func oddAffinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func (d random) oddSelector() *metav1.LabelSelector {
	return pick(
		d,
		nil,
		&metav1.LabelSelector{},
		App(pick(d, "a", "b", "hostile")),
		d.labelSelector(),
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"team a", "a"}},
		}},
		&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}},
		},
	)
}

func (d random) oddPodTerm() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: d.oddTopology(), LabelSelector: d.oddSelector()}
	if d.maybe(30) {
		t.Namespaces = []string{pick(d, "default", "other", "gone")}
	}
	if d.maybe(30) {
		t.NamespaceSelector = d.oddSelector()
	}
	if d.maybe(20) && t.LabelSelector != nil {
		t.MatchLabelKeys = []string{pick(d, "app", "rev", "none")}
	} else if d.maybe(20) && t.LabelSelector != nil {
		t.MismatchLabelKeys = []string{pick(d, "app", "rev", "none")}
	}
	return t
}

func (d random) oddPodAffinity(p *corev1.Pod) {
	preferred := func() (out []corev1.WeightedPodAffinityTerm) {
		for range d.n(4) {
			out = append(out, corev1.WeightedPodAffinityTerm{Weight: int32(pick(d, 1, 50, 100)), PodAffinityTerm: d.oddPodTerm()})
		}
		return out
	}
	required := func() (out []corev1.PodAffinityTerm) {
		for range d.n(3) {
			out = append(out, d.oddPodTerm())
		}
		return out
	}
	if a := oddAffinity(p); d.maybe(50) {
		a.PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  required(),
			PreferredDuringSchedulingIgnoredDuringExecution: preferred(),
		}
	} else {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred()}
	}
}

func (d random) oddSpread(p *corev1.Pod) {
	seen := map[string]bool{}
	for range d.from(1, 4) {
		policy := func() *corev1.NodeInclusionPolicy {
			return pick(d, nil, ptr(corev1.NodeInclusionPolicyHonor), ptr(corev1.NodeInclusionPolicyIgnore))
		}
		c := corev1.TopologySpreadConstraint{
			MaxSkew: pick[int32](
				d,
				1,
				2,
				math.MaxInt32,
			), TopologyKey: d.oddTopology(), WhenUnsatisfiable: pick(d, corev1.DoNotSchedule, corev1.ScheduleAnyway),
			LabelSelector: d.oddSelector(), NodeAffinityPolicy: policy(), NodeTaintsPolicy: policy(),
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.maybe(40) {
			c.MinDomains = ptr(pick[int32](d, 1, 3, math.MaxInt32))
		}
		if d.maybe(30) && c.LabelSelector != nil {
			c.MatchLabelKeys = []string{pick(d, "rev", "none")}
		}
		if id := c.TopologyKey + string(c.WhenUnsatisfiable); !seen[id] {
			seen[id] = true
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
}

func (d random) oddRest(p *corev1.Pod) {
	for range d.n(3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: pick(
				d,
				"",
				"hard",
				"soft",
			), Operator: pick(d, corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpGt, corev1.TolerationOpLt),
			Value: pick(d, "", "5", "9223372036854775807", "x"), Effect: pick(d, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
			TolerationSeconds: pick(d, nil, ptr[int64](-1), ptr[int64](math.MaxInt64)),
		})
	}
	for range d.n(3) {
		HostPort(
			pick(d, "", "::", "0.0.0.0", "fe80::1%eth0", "nonsense"),
			pick[int32](d, 1, 80, 65535),
			pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		)(
			p,
		)
	}
	for range d.n(4) {
		d.volume()(p)
	}
	if d.maybe(40) {
		p.Spec.Priority = ptr(pick[int32](d, math.MinInt32, -1, 1_000_000_000, math.MaxInt32))
	}
	if d.maybe(10) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device"}}
	}
	if d.maybe(10) {
		OwnedBy(pick(d, "apps/v1", "v1"), pick(d, "DaemonSet", "Node", "StatefulSet"))(p)
	}
	p.Annotations = map[string]string{
		karpv1.AnnotationDoNotDisrupt: pick(d, "", "true", "-1s", "9223372036s", "1e400h", "10m"),
		corev1.PodDeletionCost:        pick(d, "", "-2147483648", "1e308", "NaN", "Inf", "x"),
	}
	if d.maybe(10) {
		p.Annotations[karpv1.AnnotationCapacityBufferFakePod] = "true" // any user may set this
	}
	p.CreationTimestamp = pick(d, metav1.Time{}, metav1.Time{Time: time.Unix(math.MaxInt32, 0)})
}

// hostile is pods of one owner with bad intentions or mistakes. What the names of the others are built of does
// not occur in theirs.
func (d random) hostile() []*corev1.Pod {
	one := Pod("hostile", Labeled("app", pick(d, "a", "hostile")), d.requests())
	for _, edit := range []edit{d.oddRequests, d.oddNodeAffinity, d.oddPodAffinity, d.oddSpread, d.oddRest} {
		if d.maybe(45) {
			edit(one)
		}
	}
	var out []*corev1.Pod
	for i := range d.from(1, 3) {
		p := one.DeepCopy()
		p.Name = fmt.Sprint("hostile-", i)
		p.UID = types.UID(p.Name)
		out = append(out, p)
	}
	return out
}
