// Package workload makes snapshots of any size for benchmarks and cost tests: pods like those of real clusters, and
// catalogs as large as a region's. Equal seeds make equal snapshots.
package workload

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// source is a random number generator that depends only on its seed (SplitMix64: Steele, Lea and Flood 2014).
type source uint64

func (s *source) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *source) intn(n int) int { return int(s.next() % uint64(n)) }

// unit is in [0, 1).
func (s *source) unit() float64 { return float64(s.next()>>11) / (1 << 53) }

func pick[T any](s *source, list ...T) T { return list[s.intn(len(list))] }

// requests sets requests without parsing text, which would take longer than planning them.
func requests(milliCPU, mebi int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(mebi<<20, resource.BinarySI),
		}
	}
}

// small draws one of the sizes of diverse pods.
func small(s *source) func(*corev1.Pod) {
	return requests(pick[int64](s, 100, 250, 500, 1000, 1500), pick[int64](s, 100, 256, 512, 1024, 2048, 4096))
}

// Diverse has one fifth each of pods without constraints, pods spread over zones, pods spread over hosts, pods with
// affinity in a zone, and pods with anti-affinity on hosts. Each sort has seven labels.
func Diverse(n int, seed uint64) []*corev1.Pod {
	s := source(seed)
	out := make([]*corev1.Pod, n)
	for i := range out {
		app := fmt.Sprintf("%c%d", "gzhsa"[i%5], s.intn(7))
		edit := []func(*corev1.Pod){enginetest.Labeled("app", app), small(&s)}
		switch i % 5 {
		case 1:
			edit = append(edit, enginetest.Spread(enginetest.Zone, 1, app))
		case 2:
			edit = append(edit, enginetest.Spread(enginetest.Host, 1, app))
		case 3:
			edit = append(edit, enginetest.Near(enginetest.Zone, app))
		case 4:
			edit = append(edit, enginetest.Apart(enginetest.Host, app))
		}
		out[i] = enginetest.Pod(fmt.Sprintf("%s-%06d", app, i), edit...)
	}
	return out
}

// Replicas has 50 deployments with sizes that fall off as 1/k.
func Replicas(n int, seed uint64) []*corev1.Pod {
	const deployments = 50
	s := source(seed)
	harmonic := 0.0
	for k := range deployments {
		harmonic += 1 / float64(k+1)
	}
	var out []*corev1.Pod
	for k := range deployments {
		count := int(math.Ceil(float64(n) / harmonic / float64(k+1)))
		cpu := pick[int64](&s, 100, 200, 250, 500, 750, 1000, 1500, 2000, 3000, 4000)
		edit := requests(cpu, cpu*pick[int64](&s, 1, 2, 3, 4, 6, 8)*1024/1000)
		app := fmt.Sprintf("app-%02d", k)
		for i := 0; i < count && len(out) < n; i++ {
			out = append(out, enginetest.Pod(fmt.Sprintf("%s-%06d", app, i), enginetest.Labeled("app", app), edit))
		}
	}
	return out
}

// Batch has jobs, each with its own size; a few are very large.
func Batch(n int, seed uint64) []*corev1.Pod {
	s := source(seed)
	out := make([]*corev1.Pod, n)
	for i := range out {
		cpu := int64(100 * math.Pow(1-s.unit(), -0.9)) // Pareto
		cpu = min(cpu, 16000)
		perCore := 1 + 7*s.unit()
		out[i] = enginetest.Pod(fmt.Sprintf("job-%06d", i), requests(cpu, int64(float64(cpu)*perCore*1024/1000)))
	}
	return out
}

// Preferences has pods with preferences only: node affinity, pod affinity and anti-affinity, and soft spreads.
func Preferences(n int, seed uint64) []*corev1.Pod {
	s := source(seed)
	out := make([]*corev1.Pod, n)
	for i := range out {
		app := fmt.Sprintf("app-%d", s.intn(20))
		edit := []func(*corev1.Pod){enginetest.Labeled("app", app), small(&s)}
		switch i % 4 {
		case 0:
			edit = append(
				edit,
				enginetest.Prefers(10, enginetest.Expr(enginetest.Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot)),
				enginetest.Prefers(1, enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpIn, "nowhere")),
			)
		case 1:
			edit = append(edit, enginetest.PreferApart(10, enginetest.Zone, app))
		case 2:
			edit = append(edit, enginetest.PreferNear(10, enginetest.Zone, app))
		case 3:
			edit = append(
				edit,
				enginetest.Spread(
					enginetest.Zone,
					1,
					app,
					func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway },
				),
			)
		}
		out[i] = enginetest.Pod(fmt.Sprintf("%s-%06d", app, i), edit...)
	}
	return out
}

// Volumes has pods with one volume each, bound in one of the zones.
func Volumes(n int, seed uint64, zones []string) ([]*corev1.Pod, snapshot.Volumes) {
	s := source(seed)
	out := make([]*corev1.Pod, n)
	v := snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{},
	}
	for i := range out {
		name := fmt.Sprintf("disk-%06d", i)
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpIn, pick(&s, zones...))},
		}}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
		}}
		claim.Spec.VolumeName, claim.Status.Phase = name, corev1.ClaimBound
		v.Volumes[name], v.Claims[types.NamespacedName{Namespace: "default", Name: name}] = pv, claim
		out[i] = enginetest.Pod(
			fmt.Sprintf("db-%06d", i),
			enginetest.Labeled("app", fmt.Sprintf("db-%02d", i%40)),
			small(&s),
			enginetest.Claims(name),
		)
	}
	return out, v
}

// MultiPool has four pools (general; Arm and cheaper; tainted and heavier; on-demand only) with pods for each of them.
func MultiPool(n int, seed uint64, instanceTypes []*catalog.InstanceType) ([]snapshot.Pool, []*corev1.Pod) {
	s := source(seed)
	pools := []snapshot.Pool{
		GeneralPool("general", instanceTypes, enginetest.Require(enginetest.Arch, corev1.NodeSelectorOpIn, "amd64"), enginetest.Weight(10)),
		GeneralPool("arm", instanceTypes, enginetest.Require(enginetest.Arch, corev1.NodeSelectorOpIn, "arm64"), enginetest.Weight(5)),
		GeneralPool(
			"team",
			instanceTypes,
			enginetest.PoolTaint("team", corev1.TaintEffectNoSchedule),
			enginetest.TemplateLabel("team", "blue"),
			enginetest.Weight(50),
		),
		GeneralPool(
			"steady",
			instanceTypes,
			enginetest.Require(enginetest.Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand),
			enginetest.Require(enginetest.Arch, corev1.NodeSelectorOpIn, "amd64"),
		),
	}
	out := make([]*corev1.Pod, n)
	for i := range out {
		edit := []func(*corev1.Pod){enginetest.Labeled("app", fmt.Sprintf("app-%02d", s.intn(30))), small(&s)}
		switch i % 5 {
		case 1:
			edit = append(edit, enginetest.Selects(enginetest.Arch, "arm64"))
		case 2:
			edit = append(edit, enginetest.Tolerates("team"), enginetest.Selects("team", "blue"))
		case 3:
			edit = append(
				edit,
				enginetest.Selects(enginetest.Capacity, karpv1.CapacityTypeOnDemand),
				enginetest.Selects(enginetest.Arch, "amd64"),
			)
		case 4:
			edit = append(edit, enginetest.Selects(enginetest.Arch, "amd64"))
		}
		out[i] = enginetest.Pod(fmt.Sprintf("pod-%06d", i), edit...)
	}
	return pools, out
}

// GeneralPool is a pool over the types of categories c, m and r from generation 3 on.
func GeneralPool(name string, instanceTypes []*catalog.InstanceType, edit ...func(*karpv1.NodePool)) snapshot.Pool {
	return enginetest.Pool(name, instanceTypes, append([]func(*karpv1.NodePool){
		enginetest.Require(awsv1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "c", "m", "r"),
		enginetest.Require(awsv1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, "2"),
	}, edit...)...)
}

// Snapshot is a snapshot on AWS with these pools and pods. With daemons, each node runs agents of 300m CPU and 500 MiB.
func Snapshot(pools []snapshot.Pool, pods []*corev1.Pod, daemons bool) *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Now: enginetest.Now(), Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Pools: pools, Pods: pods,
		Namespaces: map[string]map[string]string{"default": nil},
	}
	if daemons {
		everywhere := func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}
		s.DaemonSets = []snapshot.DaemonSet{
			{Namespace: "kube-system", Name: "agent", Pod: enginetest.Pod("agent", requests(200, 300), everywhere)},
			{Namespace: "kube-system", Name: "cni", Pod: enginetest.Pod("cni", requests(100, 200), everywhere)},
		}
	}
	return s
}

// Spec names a workload. Equal specs make equal snapshots.
type Spec struct {
	Kind    string
	Pods    int
	Seed    uint64
	Types   []*catalog.InstanceType
	Daemons bool // with DaemonSets
}

// Named returns a snapshot with the pods of a workload, pending, over a catalog. The error names a kind that does not exist.
func Named(spec Spec) (*snapshot.Snapshot, error) {
	kind, n, seed, instanceTypes, daemons := spec.Kind, spec.Pods, spec.Seed, spec.Types, spec.Daemons
	pools := []snapshot.Pool{GeneralPool("general", instanceTypes)}
	var pods []*corev1.Pod
	var volumes snapshot.Volumes
	switch kind {
	case "diverse":
		pods = Diverse(n, seed)
	case "replicas":
		pods = Replicas(n, seed)
	case "batch":
		pods = Batch(n, seed)
	case "prefs":
		pods = Preferences(n, seed)
	case "volumes":
		pods, volumes = Volumes(n, seed, ZonesOf(instanceTypes))
	case "multi-pool":
		pools, pods = MultiPool(n, seed, instanceTypes)
	default:
		return nil, fmt.Errorf("no workload has the name %q", kind)
	}
	s := Snapshot(pools, pods, daemons)
	s.Volumes = volumes
	return s, nil
}
