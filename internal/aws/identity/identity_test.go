package identity

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

var blue = Identity{ClusterUID: "uid-blue", ClusterName: "prod", AccountID: "111122223333", Region: "eu-west-1"}

func TestOwner(t *testing.T) {
	launched := blue.LaunchTags("default", "general", nil)
	byName := map[string]string{
		"eks:eks-cluster-name":           "prod",
		"karpenter.sh/nodepool":          "general",
		"karpenter.k8s.aws/ec2nodeclass": "default",
	}
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
	here := Match{ClaimName: "general-abc", ClaimUID: "uid-of-claim"}
	none := Match{}
	for _, tc := range []struct {
		name  string
		tags  map[string]string
		match Match
		want  cloudprovider.Ownership
	}{
		{"launched by this cluster", launched, none, cloudprovider.Ours},
		{"launched by this cluster and renamed since", with(launched, "eks:eks-cluster-name", "other"), none, cloudprovider.Ours},
		{"another cluster of the same name", with(launched, "dovetail.sh/cluster-uid", "uid-green"), none, cloudprovider.Foreign},
		{
			"another cluster's, although a node here has its ID", with(launched, "dovetail.sh/cluster-uid", "uid-green"), here,
			cloudprovider.Foreign,
		},
		{"no identity, node and claim here", byName, here, cloudprovider.Adoptable},
		{"no identity, node and claim here, cluster tag only", byClusterTag, here, cloudprovider.Adoptable},
		{
			"no identity, node and claim here, tagged with the claim's name", with(byName, "karpenter.sh/nodeclaim", "general-abc"), here,
			cloudprovider.Adoptable,
		},
		{"no identity, tagged for a claim of another name", with(byName, "karpenter.sh/nodeclaim", "general-xyz"), here, cloudprovider.Unknown},
		{
			"no identity, tagged for a claim of another UID", with(byName, "dovetail.sh/nodeclaim-uid", "uid-of-another"), here,
			cloudprovider.Unknown,
		},
		{"empty identity counts as none", with(byName, "dovetail.sh/cluster-uid", ""), here, cloudprovider.Adoptable},
		{"no identity, unknown to this API server", byName, none, cloudprovider.Unknown},
		{"no identity, another cluster's name", with(byName, "eks:eks-cluster-name", "other"), here, cloudprovider.Unknown},
		{"no identity, two names", with(byClusterTag, "eks:eks-cluster-name", "other"), here, cloudprovider.Unknown},
		{"no identity, made by no autoscaler", map[string]string{"eks:eks-cluster-name": "prod"}, here, cloudprovider.Unknown},
		{"no tags", nil, here, cloudprovider.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := blue.Owner(tc.tags, tc.match); got != tc.want {
				t.Errorf("owner is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestNothingIsOursWithoutIdentity(t *testing.T) {
	var none Identity
	if got := none.Owner(map[string]string{"dovetail.sh/cluster-uid": ""}, Match{}); got != cloudprovider.Unknown {
		t.Errorf("an identity without UID owns an instance: %s", got)
	}
	if err := none.Validate(); err == nil {
		t.Error("an identity without UID is valid")
	}
}

func TestProofIsOnlyForOurs(t *testing.T) {
	owned, err := blue.Prove(Instance, "i-1", blue.LaunchTags("default", "general", nil))
	if id, of := owned.ID(Instance); err != nil || of != nil || id != "i-1" {
		t.Errorf("no proof for our own instance: %v, %v", err, of)
	}
	if id, err := owned.ID(LaunchTemplate); !errors.Is(err, ErrNotOurs) || id != "" {
		t.Errorf("the proof for an instance passes for a launch template: %q, %v", id, err)
	}
	for name, tc := range map[string]struct {
		id   string
		tags map[string]string
		says string
	}{
		"foreign":          {"i-2", map[string]string{"dovetail.sh/cluster-uid": "uid-green"}, "belongs to the cluster with UID uid-green"},
		"without identity": {"i-3", nil, "dovetail adopt i-3"},
		"without ID":       {"", blue.LaunchTags("default", "general", nil), ""},
	} {
		owned, err := blue.Prove(Instance, tc.id, tc.tags)
		if !errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v", name, err)
		}
		if id, err := owned.ID(Instance); err == nil || id != "" {
			t.Errorf("%s: proof for %q", name, id)
		}
	}
}

func TestAdoption(t *testing.T) {
	here := Match{ClaimName: "general-abc", ClaimUID: "uid-of-claim"}
	named := map[string]string{"eks:eks-cluster-name": "prod", "karpenter.sh/nodepool": "general"}
	foreign := map[string]string{
		"eks:eks-cluster-name":    "prod",
		"karpenter.sh/nodepool":   "general",
		"dovetail.sh/cluster-uid": "uid-green",
	}
	ours := blue.LaunchTags("default", "general", nil)
	byMatch := func(m Match) func(cloudprovider.Instance) (Adoption, error) {
		return func(i cloudprovider.Instance) (Adoption, error) { return blue.Adopt(i, m) }
	}
	for _, tc := range []struct {
		name  string
		adopt func(cloudprovider.Instance) (Adoption, error)
		tags  map[string]string
		want  map[string]string
	}{
		{"node and claim here", byMatch(here), named, map[string]string{
			"dovetail.sh/cluster-uid": "uid-blue", "dovetail.sh/nodeclaim-uid": "uid-of-claim", "karpenter.sh/nodeclaim": "general-abc",
		}},
		{"unknown to this API server", byMatch(Match{}), named, nil},
		{"another cluster's", byMatch(here), foreign, nil},
		{"ours", byMatch(here), ours, nil},
		{"released by a person", blue.Release, named, map[string]string{"dovetail.sh/cluster-uid": "uid-blue"}},
		{"another cluster's, released by a person", blue.Release, foreign, nil},
		{"ours, released by a person", blue.Release, ours, nil},
		{"of another cluster name, released by a person", blue.Release, map[string]string{
			"eks:eks-cluster-name":  "other",
			"karpenter.sh/nodepool": "",
		}, nil},
		{"without a cluster name, released by a person", blue.Release, map[string]string{"Name": "bastion"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			may, err := tc.adopt(cloudprovider.Instance{ID: "i-1", Tags: tc.tags})
			id, tags, of := may.Tags(Instance)
			if tc.want == nil {
				if err == nil || of == nil || id != "" {
					t.Errorf("it may be adopted: %v", tags)
				}
				return
			}
			if err != nil || of != nil || id != "i-1" || !maps.Equal(tags, tc.want) {
				t.Errorf("got %s %v, %v, %v; want %v", id, tags, err, of, tc.want)
			}
		})
	}
}

func TestAdoptionOfProfiles(t *testing.T) {
	const path = "/karpenter/eu-west-1/prod/uid-of-class/"
	for name, tc := range map[string]struct {
		path, ofClass string
		tags          map[string]string
		adopted       bool
	}{
		"made for the class, without identity":  {path, path, map[string]string{"eks:eks-cluster-name": "prod"}, true},
		"made for another class":                {"/karpenter/eu-west-1/prod/uid-of-another/", path, nil, false},
		"made for the class by another cluster": {path, path, map[string]string{"dovetail.sh/cluster-uid": "uid-green"}, false},
		"of no class":                           {"", "", nil, false},
	} {
		may, err := blue.AdoptProfile("prod_1", tc.path, tc.ofClass, tc.tags)
		if _, _, of := may.Tags(InstanceProfile); (err == nil) != tc.adopted || (of == nil) != tc.adopted {
			t.Errorf("%s: %v, %v", name, err, of)
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
