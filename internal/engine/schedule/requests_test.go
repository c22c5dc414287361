package schedule

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// What a launch requests is the sum of quantities, in the format of the first, however they are added up.
func TestRequestsAddUpAsQuantities(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	amounts := map[corev1.ResourceName][]string{
		corev1.ResourceCPU:                   {"100m", "2", "1500m", "0.25", "1k", "100u", "0"},
		corev1.ResourceMemory:                {"1Gi", "512Mi", "1000000", "1e9", "3G", "0", "1500m"},
		corev1.ResourcePods:                  {"1"},
		"example.com/gpu":                    {"1", "2"},
		corev1.ResourceEphemeralStorage:      {"10Gi", "1G", "9223372036854775807", "10E"},
		corev1.ResourceName("hugepages-2Mi"): {"2Mi"},
	}
	random := func() corev1.ResourceList {
		out, plain := corev1.ResourceList{}, rng.IntN(3) > 0 // mostly without what needs the slow way
		for name, list := range amounts {
			if rng.IntN(3) > 0 {
				if plain {
					list = list[:max(1, len(list)-2)]
				}
				out[name] = resource.MustParse(list[rng.IntN(len(list))])
			}
		}
		return out
	}
	fast := 0
	for range 500 {
		b := &bin{}
		for range 1 + rng.IntN(4) {
			b.contents = append(b.contents, classCount{&class{resourceList: random()}, 1 + rng.IntN(9)})
		}
		axes := resources.NewAxes(b.contents[0].class.resourceList, random(), random(), random())
		listed := true
		for _, h := range b.contents {
			h.class.requests = axes.Vec(h.class.resourceList)
			h.class.listed = listedAxes(axes, h.class.resourceList, h.class.requests)
			listed = listed && h.class.listed != 0
		}
		overhead := random()
		got, want := maps.Clone(overhead), maps.Clone(overhead)
		b.addRequests(got, axes)
		b.addQuantities(want)
		text := func(list corev1.ResourceList) string {
			out, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		if text(got) != text(want) {
			t.Fatalf("%v requests %s, want %s", b.contents, text(got), text(want))
		}
		if listed {
			fast++
		}
	}
	if fast < 50 {
		t.Errorf("only %d bins have plain amounts", fast)
	}
}
