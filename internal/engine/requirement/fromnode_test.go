package requirement_test

import (
	"fmt"
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
			"an alias alone", map[string]string{"beta.kubernetes.io/arch": "arm64", "b": "2", "a": "1"},
			requirement.FromExactLabels(map[string]string{corev1.LabelArchStable: "arm64", "a": "1", "b": "2"}),
		},
		{
			"an alias that contradicts", map[string]string{"beta.kubernetes.io/arch": "arm64", corev1.LabelArchStable: "amd64"},
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

func BenchmarkFromNode(b *testing.B) {
	labels, of := requirement.Labels{Vocabulary: v1.Vocabulary()}, nodeLabels()
	b.ReportAllocs()
	for b.Loop() {
		labels.FromNode(of)
	}
}
