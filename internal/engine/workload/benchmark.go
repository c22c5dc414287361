package workload

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// Benchmark names a workload of docs/performance.md: pending pods and NodePools, as manifests. Equal benchmarks make
// equal manifests. The distributions are those of the workloads that planners of this field are compared with.
type Benchmark struct {
	// Kind is diverse, replicas, batch, prefs, volumes or multipool.
	Kind string
	Pods int
	// Pool is open (every instance type), general (recent types of the categories c, m and r), or ondemand (the same,
	// without spot). A benchmark of kind multipool has pools of its own, and needs an empty one.
	Pool string
	Seed uint64
}

// List is a v1.List of manifests.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []any `json:"items"`
}

// BenchmarkZones are the zones that benchmarks name.
func BenchmarkZones() []string { return []string{"zone-a", "zone-b", "zone-c"} }

// Manifests returns the NodePools and pods of a benchmark. The error names what does not exist.
func (r Benchmark) Manifests() (*List, error) {
	b := &benchmarkBuilder{source: source(r.Seed), Benchmark: r}
	makes, known := map[string]func(){
		"diverse": b.diverse, "replicas": b.replicas, "batch": b.batch, "prefs": b.prefs, "volumes": b.volumes, "multipool": b.multipool,
	}[r.Kind]
	if !known {
		return nil, fmt.Errorf("no benchmark has the name %q", r.Kind)
	}
	pools, err := r.pools()
	if err != nil {
		return nil, err
	}
	makes()
	return &List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: append(pools, b.pods...)}, nil
}

// benchmarkBuilder makes the pods of one benchmark.
type benchmarkBuilder struct {
	Benchmark
	source
	pods []any
}

// pod adds a pending pod; edit changes it.
func (b *benchmarkBuilder) pod(app string, size func(*corev1.Pod), edit ...func(*corev1.Pod)) {
	i := len(b.pods)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%06d", app, i), Labels: map[string]string{"app": app},
			UID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", b.Seed, i)),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/" + app}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	size(p)
	for _, e := range edit {
		e(p)
	}
	b.pods = append(b.pods, p)
}

func (b *benchmarkBuilder) small() func(*corev1.Pod) { return small(&b.source) }

// letter draws one of seven labels.
func (b *benchmarkBuilder) letter() string { return pick(&b.source, "a", "b", "c", "d", "e", "f", "g") }

// spreadOver adds a spread constraint over the pods with a label.
func spreadOver(topology, label, value string, when corev1.UnsatisfiableConstraintAction) func(*corev1.Pod) {
	return enginetest.Spread(topology, 1, "", func(c *corev1.TopologySpreadConstraint) {
		c.WhenUnsatisfiable, c.LabelSelector = when, &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
	})
}

// diverse has a fifth each of pods without constraints, pods spread over zones, pods spread over hosts, pods with
// affinity in a zone, and pods with anti-affinity on hosts. The labels that spread rules count are not those of the
// pods that have the rules.
func (b *benchmarkBuilder) diverse() {
	fifth := b.Pods / 5
	plain := func(n int) {
		for range n {
			b.pod("generic", b.small(), enginetest.Labeled("mix", b.letter()))
		}
	}
	plain(fifth)
	for _, topology := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		for range fifth {
			b.pod("spread", b.small(), enginetest.Labeled("mix", b.letter()),
				spreadOver(topology, "mix", b.letter(), corev1.DoNotSchedule))
		}
	}
	for range fifth {
		group := b.letter()
		b.pod("together", b.small(), enginetest.Labeled("group", group), enginetest.Near(corev1.LabelTopologyZone, ""),
			func(p *corev1.Pod) {
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{
					"group": group,
				}
			})
	}
	for range fifth {
		b.pod("apart", b.small(), enginetest.Apart(corev1.LabelHostname, "apart"))
	}
	plain(b.Pods - len(b.pods))
}

// replicas has 50 deployments with sizes that fall off as 1/k. Of ten, two are spread over zones, one prefers to be,
// one needs amd64, and of the smaller ones one keeps its pods on separate nodes.
func (b *benchmarkBuilder) replicas() {
	const deployments = 50
	total, sum := 0.0, 0.0
	for k := range deployments {
		total += 1 / float64(k+1)
	}
	for k := range deployments {
		sum += 1 / float64(k+1)
		app := fmt.Sprintf("web-%02d", k)
		cpu := pick[int64](&b.source, 50, 100, 200, 250, 500, 500, 1000, 2000, 4000)
		size := requests(cpu, cpu*pick[int64](&b.source, 1, 2, 2, 4, 4, 8)*1024/1000)
		var edit []func(*corev1.Pod)
		switch {
		case k%10 == 5 || k%10 == 6:
			edit = append(edit, enginetest.Spread(corev1.LabelTopologyZone, 1, app))
		case k%10 == 7:
			edit = append(edit, spreadOver(corev1.LabelTopologyZone, "app", app, corev1.ScheduleAnyway))
		case k%10 == 8 && k >= 28:
			edit = append(edit, enginetest.Apart(corev1.LabelHostname, app))
		case k%10 == 9:
			edit = append(edit, enginetest.Selects(corev1.LabelArchStable, "amd64"))
		}
		for len(b.pods) < int(math.Round(float64(b.Pods)*sum/total)) {
			b.pod(app, size, edit...)
		}
	}
}

// batch has jobs, each with its own size: Pareto CPU from a quarter of a core to 48, and memory around 2.8 GiB per
// core, mostly within a factor of two.
func (b *benchmarkBuilder) batch() {
	for range b.Pods {
		cpu := min(0.25*math.Pow(1-b.unit(), -1/1.2), 48)
		memory := min(cpu*math.Exp2(1.5+b.normal()), 384)
		b.pod("job", requests(int64(cpu*1000), max(64, int64(memory*1024))))
	}
}

// normal draws from the standard normal distribution (Box and Muller 1958).
func (s *source) normal() float64 {
	return math.Sqrt(-2*math.Log(1-s.unit())) * math.Cos(2*math.Pi*s.unit())
}

// prefs has 20 deployments that only prefer: the first zone, zones of their own, which are soon used up, and nodes of
// their own.
func (b *benchmarkBuilder) prefs() {
	const deployments = 20
	for k := range deployments {
		app := fmt.Sprintf("pref-%02d", k)
		size := b.small()
		for len(b.pods) < b.Pods*(k+1)/deployments {
			b.pod(app, size,
				enginetest.Prefers(1, enginetest.Expr(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, BenchmarkZones()[0])),
				enginetest.PreferApart(10, corev1.LabelTopologyZone, app), enginetest.PreferApart(1, corev1.LabelHostname, app))
		}
	}
}

// inZone requires a zone, as a bound zonal volume does.
func inZone(zone string) func(*corev1.Pod) {
	return enginetest.Needs(enginetest.Expr(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone))
}

// volumes has three pods in five that are bound to a zone, half of them to the first.
func (b *benchmarkBuilder) volumes() {
	zones := BenchmarkZones()
	for range b.Pods {
		var edit []func(*corev1.Pod)
		if b.unit() < 0.6 {
			edit = append(edit, inZone(zones[pick(&b.source, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2)]))
		}
		b.pod("store", b.small(), edit...)
	}
}

// multipool has pods for each of the pools of multiPools.
func (b *benchmarkBuilder) multipool() {
	for range b.Pods {
		switch r := b.unit(); {
		case r < 0.30:
			b.pod("stateless", b.small())
		case r < 0.50:
			b.pod("amd-only", b.small(), enginetest.Selects(corev1.LabelArchStable, "amd64"))
		case r < 0.65:
			b.pod("no-spot", b.small(), enginetest.Selects(karpv1.LabelCapacityType, karpv1.CapacityTypeOnDemand))
		case r < 0.75:
			cpu := pick[int64](&b.source, 1000, 2000, 4000)
			b.pod("db", requests(cpu, cpu*8*1024/1000), enginetest.Tolerates("dedicated"), enginetest.Selects(karpv1.LabelNodePool, "db"),
				enginetest.Spread(corev1.LabelTopologyZone, 1, "db"))
		case r < 0.80:
			b.pod("train", requests(3000, 12<<10), enginetest.Tolerates("nvidia.com/gpu"), oneGPU)
		case r < 0.90:
			b.pod("either", b.small(),
				enginetest.Needs(enginetest.Expr(corev1.LabelArchStable, corev1.NodeSelectorOpIn, "arm64")),
				enginetest.Needs(enginetest.Expr(awsv1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "m")))
		default:
			app := "spread-" + b.letter()
			b.pod(app, b.small(), enginetest.Spread(corev1.LabelTopologyZone, 1, app))
		}
	}
}

func oneGPU(p *corev1.Pod) {
	r := &p.Spec.Containers[0].Resources
	r.Requests["nvidia.com/gpu"] = *resource.NewQuantity(1, resource.DecimalSI)
	r.Limits = corev1.ResourceList{"nvidia.com/gpu": r.Requests["nvidia.com/gpu"]}
}
