package image

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// spell writes a parameter as "name: variant, variant".
func spell(p parameter) string {
	s := p.name + ":"
	for _, v := range p.variants {
		switch {
		case cmp.Equal(v, standard):
			s += " standard"
		case cmp.Equal(v, nvidia):
			s += " nvidia"
		case cmp.Equal(v, neuron):
			s += " neuron"
		default:
			for _, r := range v {
				s += " " + r.Key + "=" + r.Values[0]
			}
		}
	}
	if !p.mutable {
		s += " pinned"
	}
	return s
}

func TestAliasParameters(t *testing.T) {
	for _, tc := range []struct {
		alias, version string
		want           []string
	}{
		{"al2@latest", "1.32", []string{
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id: standard",
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/recommended/image_id: standard",
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id: neuron nvidia",
		}},
		{"al2@v20240807", "1.30", []string{
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2/amazon-eks-node-1.30-v20240807/image_id: standard pinned",
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/amazon-eks-arm64-node-1.30-v20240807/image_id: standard pinned",
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/amazon-eks-gpu-node-1.30-v20240807/image_id: neuron nvidia pinned",
		}},
		{"al2023@latest", "1.36", []string{
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id: standard",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id: nvidia",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/image_id: neuron",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id: standard",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/nvidia/recommended/image_id: nvidia",
		}},
		{"bottlerocket@v1.46.0", "1.33", []string{
			"/aws/service/bottlerocket/aws-k8s-1.33/x86_64/1.46.0/image_id: standard neuron pinned",
			"/aws/service/bottlerocket/aws-k8s-1.33/arm64/1.46.0/image_id: standard pinned",
			"/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/1.46.0/image_id: nvidia pinned",
			"/aws/service/bottlerocket/aws-k8s-1.33-nvidia/arm64/1.46.0/image_id: nvidia pinned",
		}},
		{"windows2025@latest", "1.35", []string{
			"/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.35/image_id: kubernetes.io/os=windows node.kubernetes.io/windows-build=10.0.26100",
		}},
	} {
		t.Run(tc.alias, func(t *testing.T) {
			parameters, err := aliasParameters(tc.alias, tc.version)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range parameters {
				got = append(got, spell(p))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnsupportedAlias(t *testing.T) {
	for _, tc := range []struct {
		alias, version string
		unsupported    bool
	}{
		{"al2@latest", "1.33", true},
		{"al2@latest", "1.32", false},
		{"al2@latest", "2.0", true},
		{"windows2025@latest", "1.34", true},
		{"windows2025@latest", "1.35", false},
		{"windows2022@latest", "1.30", false},
	} {
		_, err := aliasParameters(tc.alias, tc.version)
		var unsupported *UnsupportedAliasError
		if got := errors.As(err, &unsupported); got != tc.unsupported {
			t.Errorf("%s on %s: %v", tc.alias, tc.version, err)
		}
	}
}

func TestBest(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	amd := []corev1.NodeSelectorRequirement{equals("kubernetes.io/arch", "amd64")}
	arm := []corev1.NodeSelectorRequirement{equals("kubernetes.io/arch", "arm64")}
	for _, tc := range []struct {
		name   string
		images []Image
		want   []string
	}{
		{"a live image beats a newer deprecated one", []Image{{ID: "old", CreatedAt: day(1), Requirements: amd}, {
			ID: "new", CreatedAt: day(2),
			Deprecated: true, Requirements: amd,
		}}, []string{"old"}},
		{"of deprecated ones the newer", []Image{{ID: "old", CreatedAt: day(1), Deprecated: true, Requirements: amd}, {
			ID:        "new",
			CreatedAt: day(2), Deprecated: true, Requirements: amd,
		}}, []string{"new"}},
		{"of one day the greater name", []Image{{ID: "1", Name: "b", CreatedAt: day(1), Requirements: amd}, {
			ID: "2", Name: "a",
			CreatedAt: day(1), Requirements: amd,
		}}, []string{"1"}},
		{"each architecture has its own, newest first", []Image{{ID: "amd", CreatedAt: day(1), Requirements: amd}, {
			ID:        "arm",
			CreatedAt: day(2), Requirements: arm,
		}}, []string{"arm", "amd"}},
		{
			"of one date by ID",
			[]Image{{ID: "2", CreatedAt: day(1), Requirements: amd}, {ID: "1", CreatedAt: day(1), Requirements: arm}},
			[]string{"1", "2"},
		},
		{"without date last", []Image{{ID: "1", Requirements: amd}, {ID: "2", CreatedAt: day(1), Requirements: arm}}, []string{"2", "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, i := range Best(tc.images) {
				got = append(got, i.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFamily(t *testing.T) {
	alias := func(a, family string) *awsv1.EC2NodeClass {
		return &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{AMIFamily: family, AMISelectorTerms: []awsv1.AMISelectorTerm{{Alias: a}}}}
	}
	for _, tc := range []struct {
		class *awsv1.EC2NodeClass
		want  string
	}{
		{alias("al2@latest", ""), "AL2"},
		{alias("al2023@v1", ""), "AL2023"},
		{alias("bottlerocket@v1.2.3", ""), "Bottlerocket"},
		{alias("windows2022@latest", ""), "Windows2022"},
		{alias("al2023@latest", "Custom"), "Custom"},
		{alias("", "AL2"), "AL2"},
		{alias("", ""), "Custom"},
	} {
		if got := Family(tc.class); got != tc.want {
			t.Errorf("%+v: family %s, want %s", tc.class.Spec.AMISelectorTerms, got, tc.want)
		}
	}
}

func TestBottlerocketVersion(t *testing.T) {
	amis := []awsv1.AMI{
		{ID: "ami-1", Name: "bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-abc"},
		{ID: "ami-2", Name: "mine-v1.47.0-x"},
	}
	for _, tc := range []struct {
		name string
		term awsv1.AMISelectorTerm
		want string
	}{
		{"alias", awsv1.AMISelectorTerm{Alias: "bottlerocket@v1.46.0"}, "v1.46.0"},
		{"name", awsv1.AMISelectorTerm{Name: "bottlerocket-*-v1.44.0-*"}, "v1.44.0"},
		{"ID", awsv1.AMISelectorTerm{ID: "ami-2"}, "v1.47.0"},
		{"tags, so any found that is called Bottlerocket", awsv1.AMISelectorTerm{Tags: map[string]string{"a": "b"}}, "v1.45.0"},
	} {
		class := &awsv1.EC2NodeClass{
			Spec:   awsv1.EC2NodeClassSpec{AMISelectorTerms: []awsv1.AMISelectorTerm{tc.term}},
			Status: awsv1.EC2NodeClassStatus{AMIs: amis},
		}
		if got := BottlerocketVersion(class); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestImageOwnersByTerm(t *testing.T) {
	for _, tc := range []struct {
		name string
		term awsv1.AMISelectorTerm
		want []string
	}{
		{"a name without owner", awsv1.AMISelectorTerm{Name: "x"}, []string{"self", "amazon"}},
		{"a name with owner", awsv1.AMISelectorTerm{Name: "x", Owner: "111122223333"}, []string{"111122223333"}},
		{"tags only", awsv1.AMISelectorTerm{Tags: map[string]string{"a": "b"}}, nil},
		{"tags with owner", awsv1.AMISelectorTerm{Tags: map[string]string{"a": "b"}, Owner: "self"}, []string{"self"}},
	} {
		if diff := cmp.Diff(tc.want, byNameOrTags(tc.term).input.Owners); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
