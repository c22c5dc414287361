package hostilepods

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

func (d dice) key() string {
	return pick(d, "team", "size", "rack", enginetest.Zone, enginetest.Host, enginetest.Arch,
		enginetest.Capacity, "example.com/cores", "example.com/gpu", "example.com/zone-id",
		corev1.LabelInstanceTypeStable, karpv1.LabelNodePool, karpv1.LabelRegistered, karpv1.LabelInitialized, corev1.LabelWindowsBuild,
		corev1.LabelTopologyRegion, "beta.kubernetes.io/arch", "failure-domain.beta.kubernetes.io/zone", "karpenter.sh/x",
		"sub.karpenter.sh/x", "kubernetes.io/x", "example.com/nodeclass",
		strings.Repeat(strings.Repeat("x", 62)+".", 4)+"y/"+strings.Repeat("z", 63), "UPPER", "a.b/C_d")
}

// topology is a key to spread over. What nodes have only once they are up is taken to be there from the start by
// the planner, and not by the oracle: neither minds pods of which somebody counts on it.
func (d dice) topology() string {
	if key := d.key(); key != karpv1.LabelRegistered && key != karpv1.LabelInitialized {
		return key
	}
	return enginetest.Zone
}

// labelValue is a value that a label may have.
func (d dice) labelValue() string {
	return pick(d, "x", "", "z1", "amd64", "spot", "p0", "t0", "true", "0", "1", "4", "007", "9223372036854775807", "9223372036854775808",
		"1e3", "0x10", "A_b.c-9", strings.Repeat("v", 63))
}

// anyValue is one that preferred terms may have.
func (d dice) anyValue() string {
	return pick(d, d.labelValue(), "team a", "-5", "+5", "-9223372036854775808", "a/b", "ä", "x\n", "\x00", "$(reboot)", " ", "*",
		strings.Repeat("v", 64), strings.Repeat("long ", 30))
}

func (d dice) expression(value func() string) corev1.NodeSelectorRequirement {
	e := corev1.NodeSelectorRequirement{Key: d.key(), Operator: pick(d, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn,
		corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)}
	switch e.Operator {
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		e.Values = []string{value()}
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
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

func (d dice) term(value func() string) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range d.n(4) {
		t.MatchExpressions = append(t.MatchExpressions, d.expression(value))
	}
	if d.maybe(8) {
		t.MatchFields = []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: pick(d, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(d, "n0", "gone")},
		}}
	}
	return t
}

func (d dice) nodeAffinity(p *corev1.Pod) {
	a := &corev1.NodeAffinity{}
	if d.maybe(50) {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range d.from(1, 3) {
			terms := &a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			*terms = append(*terms, d.term(d.labelValue))
		}
	}
	for range d.n(4) {
		t := corev1.PreferredSchedulingTerm{Weight: int32(pick(d, 1, 50, 100)), Preference: d.term(d.anyValue)}
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, t)
	}
	affinity(p).NodeAffinity = a
	for range d.n(3) {
		enginetest.Selects(d.key(), d.labelValue())(p)
	}
}

func (d dice) selector() *metav1.LabelSelector {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	return pick(d, nil, &metav1.LabelSelector{}, enginetest.App(pick(d, "a", "b", "hostile")),
		expression("app", metav1.LabelSelectorOpIn, "a", "b"),
		expression("rev", metav1.LabelSelectorOpNotIn, "2"),
		expression("app", metav1.LabelSelectorOpIn, "a", ""),
		expression("app", metav1.LabelSelectorOpDoesNotExist))
}

// labelKeys are keys of labels by which pods are distinguished, if the selector has none of them.
func (d dice) labelKeys(s *metav1.LabelSelector) []string {
	key := pick(d, "app", "rev", "none")
	if s == nil || s.MatchLabels[key] != "" ||
		slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }) {
		return nil
	}
	return []string{key}
}

func (d dice) podTerm() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: d.topology(), LabelSelector: d.selector()}
	if d.maybe(30) {
		t.Namespaces = []string{pick(d, "default", "other", "gone")}
	}
	if d.maybe(30) {
		t.NamespaceSelector = d.selector()
	}
	if d.maybe(20) {
		t.MatchLabelKeys = d.labelKeys(t.LabelSelector)
	} else if d.maybe(20) {
		t.MismatchLabelKeys = d.labelKeys(t.LabelSelector)
	}
	return t
}

func (d dice) podAffinity(p *corev1.Pod) {
	preferred := func() (out []corev1.WeightedPodAffinityTerm) {
		for range d.n(4) {
			out = append(out, corev1.WeightedPodAffinityTerm{Weight: int32(pick(d, 1, 50, 100)), PodAffinityTerm: d.podTerm()})
		}
		return out
	}
	required := func() (out []corev1.PodAffinityTerm) {
		for range d.n(3) {
			out = append(out, d.podTerm())
		}
		return out
	}
	if a := affinity(p); d.maybe(50) {
		a.PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred(),
		}
	} else {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred(),
		}
	}
}

func (d dice) spread(p *corev1.Pod) {
	seen := map[string]bool{}
	policy := func() *corev1.NodeInclusionPolicy {
		return pick(d, nil, ptr(corev1.NodeInclusionPolicyHonor), ptr(corev1.NodeInclusionPolicyIgnore))
	}
	for range d.from(1, 4) {
		c := corev1.TopologySpreadConstraint{
			MaxSkew: pick[int32](d, 1, 2, math.MaxInt32), TopologyKey: d.topology(),
			WhenUnsatisfiable: pick(d, corev1.DoNotSchedule, corev1.ScheduleAnyway),
			LabelSelector:     d.selector(), NodeAffinityPolicy: policy(), NodeTaintsPolicy: policy(),
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.maybe(40) {
			c.MinDomains = ptr(pick[int32](d, 1, 3, math.MaxInt32))
		}
		if d.maybe(30) {
			c.MatchLabelKeys = d.labelKeys(c.LabelSelector)
		}
		if id := c.TopologyKey + string(c.WhenUnsatisfiable); !seen[id] {
			seen[id] = true
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
}

func (d dice) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key: pick(d, "hard", "soft", ""), Operator: corev1.TolerationOpExists, Effect: pick(d, "", corev1.TaintEffectNoSchedule),
	}
	if t.Key != "" && d.maybe(60) {
		t.Operator, t.Value = corev1.TolerationOpEqual, d.labelValue()
	}
	if d.maybe(30) {
		t.Effect, t.TolerationSeconds = corev1.TaintEffectNoExecute, pick(d, nil, ptr[int64](-1), ptr[int64](math.MaxInt64))
	}
	return t
}

func (d dice) ports(p *corev1.Pod) {
	seen := map[string]bool{}
	c := &p.Spec.Containers[0]
	for range d.n(3) {
		port := corev1.ContainerPort{
			HostIP: pick(d, "", "::", "0.0.0.0", "fe80::1", "127.0.0.1"), HostPort: pick[int32](d, 1, 80, 65535),
			Protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		}
		port.ContainerPort = port.HostPort
		if id := fmt.Sprint(port); !seen[id] {
			seen[id] = true
			c.Ports = append(c.Ports, port)
		}
	}
}

func (d dice) volumes(p *corev1.Pod) {
	for i := range d.n(4) {
		v := corev1.Volume{Name: fmt.Sprint("volume-", i)}
		if d.maybe(15) {
			v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse(pick(d, "1Gi", "8Ei", "1n", "1e30")),
					}},
				},
			}}
		} else {
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pick(d, "disk-z1", "disk-z2", "disk-z1-or-z3",
				"disk-anywhere", "disk-local", "disk-host", "disk-new", "disk-new-z2", "disk-intree", "disk-soon", "disk-lost", "disk-missing",
				"disk-once", "disk-once-z1")}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
}

func (d dice) rest(p *corev1.Pod) {
	for range d.n(3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, d.toleration())
	}
	d.ports(p)
	d.volumes(p)
	if d.maybe(40) {
		p.Spec.PriorityClassName = pick(d, slices.Sorted(maps.Keys(priorities()))...)
		p.Spec.Priority = ptr(priorities()[p.Spec.PriorityClassName])
	}
	if d.maybe(10) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr("gone")}}
	}
	if d.maybe(10) {
		enginetest.OwnedBy(pick(d, "apps/v1", "v1"), pick(d, "DaemonSet", "Node", "StatefulSet"))(p)
		p.OwnerReferences[0].UID = "7"
	}
	p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: pick(d, "", "true", "-1s", "9223372036s", "1e400h", "10m")}
	if d.maybe(80) {
		p.Annotations[corev1.PodDeletionCost] = pick(d, "0", "-2147483648", "2147483647", "7")
	}
	if d.maybe(10) {
		p.Annotations[karpv1.AnnotationCapacityBufferFakePod] = "true" // any user may set this
	}
}
