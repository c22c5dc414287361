package workload_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/catalogfile"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// podsOf returns the pods of a benchmark's manifests, and all of the manifests as JSON.
func podsOf(t *testing.T, r workload.Benchmark) (pods []*corev1.Pod, text string) {
	t.Helper()
	list, err := r.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if pod, ok := item.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return pods, string(data)
}

func TestEqualBenchmarksMakeEqualManifests(t *testing.T) {
	for _, kind := range []string{"diverse", "replicas", "batch", "prefs", "volumes", "multipool"} {
		t.Run(kind, func(t *testing.T) {
			r := workload.Benchmark{Kind: kind, Pods: 503, Pool: "general", Seed: 7}
			if kind == "multipool" {
				r.Pool = ""
			}
			pods, text := podsOf(t, r)
			if _, again := podsOf(t, r); again != text {
				t.Error("equal benchmarks make different manifests")
			}
			if len(pods) != r.Pods {
				t.Errorf("%d pods, want %d", len(pods), r.Pods)
			}
			r.Seed++
			if _, other := podsOf(t, r); other == text {
				t.Error("another seed makes the same manifests")
			}
		})
	}
}

// share returns how many of the pods satisfy a condition, of 1.
func share(pods []*corev1.Pod, condition func(*corev1.Pod) bool) float64 {
	n := 0
	for _, p := range pods {
		if condition(p) {
			n++
		}
	}
	return float64(n) / float64(len(pods))
}

// milliCPU returns what each pod requests, sorted.
func milliCPU(pods []*corev1.Pod) []int64 {
	out := make([]int64, len(pods))
	for i, p := range pods {
		out[i] = p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	slices.Sort(out)
	return out
}

// The distributions are those that docs/performance.md describes.
func TestBenchmarksHaveTheirDistributions(t *testing.T) {
	const n = 20_000
	about := func(what string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f, want %.3f", what, got, want)
		}
	}
	of := func(kind string) []*corev1.Pod {
		pods, _ := podsOf(t, workload.Benchmark{Kind: kind, Pods: n, Pool: "open", Seed: 1})
		return pods
	}
	diverse := of("diverse")
	spreadOver := func(key string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			c := p.Spec.TopologySpreadConstraints
			return len(c) > 0 && c[0].TopologyKey == key
		}
	}
	about("spread over zones", share(diverse, spreadOver(corev1.LabelTopologyZone)), 0.2, 0)
	about("spread over hosts", share(diverse, spreadOver(corev1.LabelHostname)), 0.2, 0)
	about("with affinity", share(diverse, func(p *corev1.Pod) bool { return p.Spec.Affinity != nil && p.Spec.Affinity.PodAffinity != nil }), 0.2, 0)
	about("spread by another label", share(diverse, func(p *corev1.Pod) bool {
		c := p.Spec.TopologySpreadConstraints
		return len(c) > 0 && c[0].LabelSelector.MatchLabels["mix"] != p.Labels["mix"]
	}), 0.4*6/7, 0.01)
	about("mean CPU", meanOf(milliCPU(diverse)), 670, 10)

	replicas := of("replicas")
	about("of the largest deployment", share(replicas, func(p *corev1.Pod) bool { return p.Labels["app"] == "web-00" }), 1/4.499, 0.001)

	batch := milliCPU(of("batch"))
	about("median CPU of batch", float64(batch[n/2]), 250*math.Pow(2, 1/1.2), 15)
	about("least CPU of batch", float64(batch[0]), 250, 1)
	about("most CPU of batch", float64(batch[n-1]), 48_000, 0)

	volumes := of("volumes")
	about("bound to the first zone", share(volumes, func(p *corev1.Pod) bool {
		return p.Spec.Affinity != nil &&
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] == "zone-a"
	}), 0.3, 0.02)
	about("with preferences", share(of("prefs"), func(p *corev1.Pod) bool {
		return len(p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 2
	}), 1, 0)
}

func meanOf(list []int64) float64 {
	sum := int64(0)
	for _, x := range list {
		sum += x
	}
	return float64(sum) / float64(len(list))
}

func TestUnknownBenchmarksAreErrors(t *testing.T) {
	for _, tt := range []struct {
		benchmark workload.Benchmark
		want      string
	}{
		{workload.Benchmark{Kind: "varied", Pool: "open"}, `no benchmark has the name "varied"`},
		{workload.Benchmark{Kind: "batch", Pool: "large"}, `no pool has the name "large"`},
		{workload.Benchmark{Kind: "multipool", Pool: "open"}, "pools of its own"},
	} {
		if _, err := tt.benchmark.Manifests(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.benchmark, err, tt.want)
		}
	}
}

func TestTheLinearCatalogIsACatalog(t *testing.T) {
	data, err := json.Marshal(workload.LinearCatalog(400))
	if err != nil {
		t.Fatal(err)
	}
	types, err := catalogfile.Decode(data, requirement.CoreLabels())
	if err != nil {
		t.Fatal(err)
	}
	if last := types[len(types)-1]; len(types) != 400 || last.Name != "fake-400" || len(last.Offerings) != 5 || last.Capacity.Cpu().Value() != 400 {
		t.Errorf("%d types, the last is %v", len(types), last)
	}
}
