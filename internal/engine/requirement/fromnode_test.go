package requirement_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// nodeLabels are about as many labels as nodes of EC2 have, with two aliases.
func nodeLabels() map[string]string {
	out := map[string]string{
		"beta.kubernetes.io/arch": "amd64", corev1.LabelArchStable: "amd64", "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
		corev1.LabelTopologyZone: "us-east-1a", corev1.LabelHostname: "ip-10-0-0-1",
	}
	for i := range 30 {
		out[fmt.Sprintf("karpenter.k8s.aws/instance-%d", i)] = fmt.Sprint(i)
	}
	return out
}

func TestLabelsOfNodesWithAliases(t *testing.T) {
	labels := requirement.Labels{Vocabulary: v1.Vocabulary()}
	for _, tt := range []struct {
		name   string
		labels map[string]string
		want   requirement.Set
	}{
		{"none", nil, requirement.Set{}},
		{
			"an alias alone",
			map[string]string{"beta.kubernetes.io/arch": "arm64", "b": "2", "a": "1"},
			requirement.FromExactLabels(map[string]string{corev1.LabelArchStable: "arm64", "a": "1", "b": "2"}),
		},
		{
			"an alias that contradicts",
			map[string]string{"beta.kubernetes.io/arch": "arm64", corev1.LabelArchStable: "amd64"},
			requirement.FromExactLabels(map[string]string{corev1.LabelArchStable: "amd64"}),
		},
	} {
		if got := labels.FromNode(tt.labels); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got, want := labels.FromNode(nodeLabels()).Len(), len(nodeLabels())-2; got != want {
		t.Errorf("%d labels, want %d", got, want)
	}
}

// Whatever labels a node has, each canonical key has one value: its own, else that of the last of its aliases by name.
func TestRandomLabelsOfNodes(t *testing.T) {
	labels := requirement.Labels{Vocabulary: v1.Vocabulary()}
	keys := []string{
		"beta.kubernetes.io/arch", corev1.LabelArchStable, "failure-domain.beta.kubernetes.io/zone", corev1.LabelTopologyZone,
		"topology.ebs.csi.aws.com/zone", "beta.kubernetes.io/instance-type", corev1.LabelInstanceTypeStable, "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", corev1.LabelTopologyRegion, "a", "b", "z.example/x",
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		of := map[string]string{}
		for _, key := range keys {
			if r.IntN(2) == 0 {
				of[key] = fmt.Sprint(r.IntN(3))
			}
		}
		canonical := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(of)) {
			key := labels.Normalize(name)
			if _, own := of[key]; !own || key == name {
				canonical[key] = of[name]
			}
		}
		want := make([]requirement.Requirement, 0, len(canonical))
		for _, key := range slices.Sorted(maps.Keys(canonical)) {
			want = append(want, requirement.In(key, canonical[key]))
		}
		got := labels.FromNode(of)
		if !slices.EqualFunc(got.All(), want, requirement.Requirement.Equal) {
			t.Fatalf("seed %d: %v are %v, want %v", seed, of, got, want)
		}
		// A set is not changed by sets that are made of it.
		before := got.String()
		_ = got.With(requirement.In("a", "0", "1"), requirement.NotIn("b", "0"))
		if after := got.String(); after != before {
			t.Fatalf("seed %d: %s became %s", seed, before, after)
		}
	}
}

func BenchmarkFromNode(b *testing.B) {
	labels, of := requirement.Labels{Vocabulary: v1.Vocabulary()}, nodeLabels()
	b.ReportAllocs()
	for b.Loop() {
		labels.FromNode(of)
	}
}
