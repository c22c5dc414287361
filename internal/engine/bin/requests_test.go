package bin

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// classRequesting is a class of pods that request what the list states, and a place for a pod.
func classRequesting(t *testing.T, axes resources.Axes, list corev1.ResourceList) *podclass.Class {
	t.Helper()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}}}
	c, err := podclass.NewClassifier(false, &snapshot.Settings{}).ClassOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	c.Measure(axes, volume.NewLimits(&snapshot.Snapshot{}, nil), make(resources.Vec, axes.Len()))
	return c
}

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
		lists := make([]corev1.ResourceList, 1+rng.IntN(4))
		for i := range lists {
			lists[i] = random()
		}
		axes := resources.NewAxes(lists[0], random(), random(), random())
		b, listed := &Bin{}, true
		for _, list := range lists {
			c := classRequesting(t, axes, list)
			b.contents = append(b.contents, classCount{c, 1 + rng.IntN(9)})
			listed = listed && c.Listed() != 0
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
