package cluster_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

func TestImagesTellTheFeaturesOfTheirKubelets(t *testing.T) {
	const feature = "RestartAllContainersOnContainerExits"
	for _, tt := range []struct {
		name   string
		images []string
		want   []string
	}{
		{"none", nil, nil},
		{"new enough", []string{"amazon-eks-node-al2023-x86_64-standard-1.36-v20261101"}, []string{feature}},
		{"Bottlerocket", []string{"bottlerocket-aws-k8s-1.37-x86_64-v1.60.0-abcd"}, []string{feature}},
		{"too old", []string{"amazon-eks-node-al2023-x86_64-standard-1.35-v20261101"}, nil},
		{"one of two is too old", []string{"amazon-eks-node-1.37-v1", "amazon-eks-arm64-node-1.35-v1"}, nil},
		{"no version in the name", []string{"golden-image-7"}, nil},
	} {
		class := &awsv1.EC2NodeClass{}
		for _, name := range tt.images {
			class.Status.AMIs = append(class.Status.AMIs, awsv1.AMI{Name: name})
		}
		if got := cluster.KubeletFeatures(class); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := cluster.KubeletFeatures(nil); got != nil {
		t.Errorf("without a class: got %v", got)
	}
}

// A Node's own list counts once it has joined, no matter who manages it.
func TestNodesHaveTheFeaturesThatTheirKubeletsDeclare(t *testing.T) {
	declares := func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"X"} }
	s := newTestCluster(t,
		nodeOf("foreign", "", declares), claimOf("ours", launched("i-1"), registered("ours")), nodeOf("ours", "i-1", joinedNode, declares),
	).snapshot(t)
	for _, n := range s.Nodes {
		if !slices.Equal(n.DeclaredFeatures, []string{"X"}) {
			t.Errorf("node %s declares %v", n.Name, n.DeclaredFeatures)
		}
	}
}
