package hostilepods

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// dice draws from bytes: random ones, or those of a fuzzer.
type dice struct{ next func() byte }

// n returns a number below n, at most 256.
func (d dice) n(n int) int { return int(d.next()) % n }

// from returns a number from lo to hi.
func (d dice) from(lo, hi int) int { return lo + d.n(hi-lo+1) }

// maybe is true so often; zeros make it false.
func (d dice) maybe(percent int) bool { return int(d.next()) >= 256-256*percent/100 }

func pick[T any](d dice, list ...T) T { return list[d.n(len(list))] }

func ptr[T any](v T) *T { return &v }

// Draw returns pods of one owner, drawn from bytes. What the names of a world's other pods are built of does not occur in theirs. They need
// the objects of Classes.
func Draw(next func() byte) []*corev1.Pod {
	d := dice{next}
	one := d.pod()
	for _, edit := range []func(*corev1.Pod){d.resources, d.nodeAffinity, d.podAffinity, d.spread, d.rest} {
		if d.maybe(45) {
			edit(one)
		}
	}
	return copies(one, d.from(1, 3))
}

// DrawPreferring returns pods of one owner that prefer nodes and pods by up to hundreds of terms over as many keys.
func DrawPreferring(next func() byte) []*corev1.Pod {
	d := dice{next}
	one := d.pod()
	a := affinity(one)
	a.NodeAffinity, a.PodAffinity, a.PodAntiAffinity = &corev1.NodeAffinity{}, &corev1.PodAffinity{}, &corev1.PodAntiAffinity{}
	for i := range d.many() {
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(1 + i%100), Preference: d.termOfMany(i)})
	}
	for i := range d.many() {
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: int32(1 + i%100), PodAffinityTerm: d.podTermOfMany(i)})
	}
	for i := range d.many() {
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: int32(1 + i%100), PodAffinityTerm: d.podTermOfMany(i)})
	}
	for i := range d.many() {
		one.Spec.TopologySpreadConstraints = append(one.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: fmt.Sprint("example.com/spread-", i), WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: d.selectorOfMany(i),
		})
	}
	return copies(one, d.from(1, 20))
}

// DrawRequiring returns pods of one owner that require nodes and pods by up to hundreds of terms over as many keys.
func DrawRequiring(next func() byte) []*corev1.Pod {
	d := dice{next}
	one := d.pod()
	a := affinity(one)
	if d.maybe(70) {
		required := &corev1.NodeSelector{}
		for i := range 1 + d.many() {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, d.termOfMany(i))
		}
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if d.maybe(50) {
		a.PodAffinity = &corev1.PodAffinity{}
		for i := range d.many() {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
				a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.podTermOfMany(i))
		}
	}
	if d.maybe(70) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		for i := range d.many() {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
				a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.podTermOfMany(i))
		}
	}
	for i := range d.many() / 2 {
		one.Spec.TopologySpreadConstraints = append(one.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: pick(d, enginetest.Zone, enginetest.Host, fmt.Sprint("example.com/spread-", i)),
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     d.selectorOfMany(i),
		})
	}
	seen := map[string]bool{}
	one.Spec.TopologySpreadConstraints = slices.DeleteFunc(one.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		before := seen[c.TopologyKey]
		seen[c.TopologyKey] = true
		return before
	})
	return copies(one, d.from(1, 20))
}

// many is a number of terms: none, some, or hundreds.
func (d dice) many() int { return pick(d, 0, 1+d.n(8), 2*d.n(256)) }

// termOfMany is a term over its own keys, which some nodes have or none.
func (d dice) termOfMany(i int) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for k := range d.from(1, 5) {
		own := fmt.Sprintf("example.com/key-%d-%d", i, k)
		t.MatchExpressions = append(t.MatchExpressions, pick(d,
			enginetest.Expr(own, corev1.NodeSelectorOpNotIn, "x", fmt.Sprint(i)),
			enginetest.Expr(own, corev1.NodeSelectorOpDoesNotExist),
			enginetest.Expr(own, corev1.NodeSelectorOpIn, fmt.Sprint(i), fmt.Sprint(i+1)),
			enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpNotIn, fmt.Sprint("z", i)),
			enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpIn, enginetest.Zones()[i%3], fmt.Sprint("z", i)),
			enginetest.Expr(enginetest.Arch, corev1.NodeSelectorOpNotIn, fmt.Sprint("arch", i)),
		))
	}
	return t
}

// podTermOfMany is a term with a selector of its own, of pods that exist or not, per zone, host, or a key of its own.
func (d dice) podTermOfMany(i int) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{
		TopologyKey: pick(d, enginetest.Zone, enginetest.Host, enginetest.Arch,
			fmt.Sprint("example.com/topology-", i)), LabelSelector: d.selectorOfMany(i),
	}
	if d.maybe(10) {
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

// selectorOfMany selects itself, nobody, or everybody, each in words of its own.
func (d dice) selectorOfMany(i int) *metav1.LabelSelector {
	own := fmt.Sprint("example.com/label-", i)
	return pick(d,
		enginetest.App(fmt.Sprint("nobody-", i)),
		enginetest.App("hostile"),
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: own, Operator: metav1.LabelSelectorOpDoesNotExist}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x", fmt.Sprint(i)}},
			{Key: own, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
		}},
	)
}

// pod is one without anything special.
func (d dice) pod() *corev1.Pod {
	p := enginetest.Pod("hostile", enginetest.Labeled("app", pick(d, "a", "hostile")))
	p.Namespace = metav1.NamespaceDefault
	c := &p.Spec.Containers[0]
	c.Name, c.Image = "main", "x"
	c.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    *milli(int64(50 * d.from(1, 60))),
		corev1.ResourceMemory: *mebi(int64(64 * d.from(1, 90))),
	}}
	return p
}

// copies are replicas of a pod.
func copies(one *corev1.Pod, n int) (out []*corev1.Pod) {
	for i := range n {
		p := one.DeepCopy()
		p.Name = fmt.Sprint("hostile-", i)
		p.UID = types.UID(p.Name)
		out = append(out, p)
	}
	return out
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}
