package identity

import (
	"errors"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloud"
)

var blue = Identity{ClusterUID: "uid-blue", ClusterName: "prod", AccountID: "111122223333", Region: "eu-west-1"}

func TestOwner(t *testing.T) {
	launched := blue.LaunchTags("default", "general", nil)
	byName := map[string]string{"eks:eks-cluster-name": "prod", "karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "default"}
	byClusterTag := map[string]string{"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": ""}
	with := func(tags map[string]string, key, value string) map[string]string {
		out := map[string]string{key: value}
		for k, v := range tags {
			if k != key {
				out[k] = v
			}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		tags    map[string]string
		matched bool
		want    cloud.Ownership
	}{
		{"launched by this cluster", launched, false, cloud.Ours},
		{"launched by this cluster and renamed since", with(launched, "eks:eks-cluster-name", "other"), false, cloud.Ours},
		{"another cluster of the same name", with(launched, "dovetail.sh/cluster-uid", "uid-green"), false, cloud.Foreign},
		{"another cluster's, although a node here has its ID", with(launched, "dovetail.sh/cluster-uid", "uid-green"), true, cloud.Foreign},
		{"no identity, node and claim here", byName, true, cloud.Adoptable},
		{"no identity, node and claim here, cluster tag only", byClusterTag, true, cloud.Adoptable},
		{"empty identity counts as none", with(byName, "dovetail.sh/cluster-uid", ""), true, cloud.Adoptable},
		{"no identity, nobody here knows it", byName, false, cloud.Unknown},
		{"no identity, another cluster's name", with(byName, "eks:eks-cluster-name", "other"), true, cloud.Unknown},
		{"no identity, made by no autoscaler", map[string]string{"eks:eks-cluster-name": "prod"}, true, cloud.Unknown},
		{"no tags", nil, true, cloud.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := blue.Owner(tc.tags, tc.matched); got != tc.want {
				t.Errorf("owner is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestNothingIsOursWithoutIdentity(t *testing.T) {
	var none Identity
	if got := none.Owner(map[string]string{"dovetail.sh/cluster-uid": ""}, false); got != cloud.Unknown {
		t.Errorf("an identity without UID owns an instance: %s", got)
	}
	if err := none.Validate(); err == nil {
		t.Error("an identity without UID is valid")
	}
}

func TestProofIsOnlyForOurs(t *testing.T) {
	owned, err := blue.Prove(cloud.Instance{ID: "i-1", Tags: blue.LaunchTags("default", "general", nil)})
	if err != nil || owned.InstanceID() != "i-1" {
		t.Errorf("no proof for our own instance: %v", err)
	}
	for name, i := range map[string]cloud.Instance{
		"foreign":                      {ID: "i-2", Tags: map[string]string{"dovetail.sh/cluster-uid": "uid-green"}},
		"unknown":                      {ID: "i-3"},
		"said to be ours, but tags do": {ID: "i-4", Owner: cloud.Ours},
	} {
		if owned, err := blue.Prove(i); !errors.Is(err, ErrNotOurs) || owned.InstanceID() != "" {
			t.Errorf("%s: proof %q, error %v", name, owned.InstanceID(), err)
		}
	}
}

func TestUsersTagsYield(t *testing.T) {
	tags := blue.LaunchTags("default", "general", map[string]string{
		"team": "a", "Name": "mine", "eks:eks-cluster-name": "other", "dovetail.sh/cluster-uid": "forged",
	})
	for key, want := range map[string]string{
		"team": "a", "Name": "mine", "eks:eks-cluster-name": "prod", "dovetail.sh/cluster-uid": "uid-blue",
		"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "default",
	} {
		if tags[key] != want {
			t.Errorf("tag %s is %q, want %q", key, tags[key], want)
		}
	}
}
