package nodeclass

import "testing"

func TestRestrictedTag(t *testing.T) {
	for key, restricted := range map[string]bool{
		"kubernetes.io/cluster/prod": true, "karpenter.sh/nodepool": true, "karpenter.sh/nodeclaim": true, "eks:eks-cluster-name": true,
		"karpenter.k8s.aws/ec2nodeclass": true, "dovetail.sh/cluster-uid": true, "dovetail.sh/nodeclaim-uid": true,
		"Name": false, "team": false, "kubernetes.io/cluster": false,
	} {
		if got := RestrictedTag(map[string]string{key: "x", "other": "y"}); (got == key) != restricted {
			t.Errorf("%s: restricted %q", key, got)
		}
	}
}
