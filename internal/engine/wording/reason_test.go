package wording_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

func zones(values ...string) rejection.Label {
	return rejection.LabelOf(requirement.In(corev1.LabelTopologyZone, values...))
}

func excluded() rejection.Reason {
	allowed := zones("z1", "z2")
	return rejection.Reason{Code: rejection.Requirement, NodePool: "general", Rule: &rejection.Rule{Labels: &rejection.Labels{
		Cause: rejection.PoolExcludes, By: rejection.ByPod, Required: []rejection.Label{zones("z3")}, Allowed: &allowed,
	}}}
}

func TestNearestMissIsNamedOnceForAllReasonsOfAPool(t *testing.T) {
	r := excluded()
	const want = "the pod requires topology.kubernetes.io/zone=z3; the pool allows only z1, z2"
	r.Nearest = &rejection.Nearest{InstanceType: "m5.large", Zone: "z1"}
	for together, want := range map[int]string{
		0: want,
		1: "fits m5.large in z1, but " + want,
		2: want + "; but for these 2 reasons it fits m5.large in z1",
	} {
		r.Together = together
		if got := wording.Reason(r); got != want {
			t.Errorf("of %d reasons: %q, want %q", together, got, want)
		}
	}
}

func TestLabelsAreNamedAsPeopleDo(t *testing.T) {
	const want = "the pod requires zone z3; the pool allows only z1, z2"
	if got := wording.LabelWords.Reason(excluded()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	spread := rejection.Reason{Rule: &rejection.Rule{Domains: &rejection.Domains{Constraints: []rejection.Constraint{{
		Kind: rejection.KindSpread, Key: corev1.LabelHostname, Hosts: true, MaxSkew: 1,
	}}}}}
	if got, want := wording.LabelWords.Reason(spread), "topology spread over nodes with maxSkew 1 (pods now: ) allows no more anywhere"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestClausesNameTheirPool(t *testing.T) {
	for _, c := range []struct {
		subject          wording.Subject
		alone, of, noted string
	}{
		{wording.Pod, "the pod waits", "it waits (NodePool general)", "it waits (NodePool general; so do others)"},
		{wording.Pool, "the pool waits", "NodePool general waits", "NodePool general waits (so do others)"},
		{wording.It, "it waits", "NodePool general waits", "NodePool general waits (so do others)"},
		{wording.OfPool, "the pool's waits", "NodePool general's waits", "NodePool general's waits (so do others)"},
		{wording.Its, "its waits", "NodePool general's waits", "NodePool general's waits (so do others)"},
		{wording.Field, "waits", "NodePool general's waits", "NodePool general's waits (so do others)"},
		{wording.None, "waits", "NodePool general: waits", "NodePool general: waits (so do others)"},
	} {
		clause := wording.Clause{Subject: c.subject, Text: "waits"}
		for want, got := range map[string]string{
			c.alone: clause.String(), c.of: clause.Naming("general", ""), c.noted: clause.Naming("general", "so do others"),
		} {
			if got != want {
				t.Errorf("%d: %q, want %q", c.subject, got, want)
			}
		}
	}
}

// What the pod needs comes first, and then what the NodePool allows: the owner of the pod knows the former.
func TestCausesBeginWithWhatThePodNeeds(t *testing.T) {
	allowed := rejection.LabelOf(requirement.In("karpenter.k8s.aws/instance-category", "c", "m", "r"))
	gpu := rejection.Size{Amount: rejection.Amount{Resource: "nvidia.com/gpu", Needs: "1"}, Cause: rejection.NowhereKnown}
	r := rejection.Reason{Code: rejection.Resources, NodePool: "default", Rule: &rejection.Rule{Sizes: &rejection.Sizes{
		Pool: &allowed, TooLarge: []rejection.Size{gpu},
	}}}
	const allows = "allows only karpenter.k8s.aws/instance-category in (c, m, r)"
	if got, want := wording.Reason(r), "the pod needs 1 nvidia.com/gpu, which neither a node nor an instance type has; the pool "+allows; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c := wording.LabelKeys.Clause(r)
	for remark, want := range map[string]string{
		"":               "it needs 1 nvidia.com/gpu, which neither a node nor an instance type has; NodePool default " + allows,
		"so do 2 others": "it needs 1 nvidia.com/gpu, which neither a node nor an instance type has; NodePool default " + allows + " (so do 2 others)",
	} {
		if got := c.Naming("default", remark); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	none := wording.Clause{Text: "a volume can only be used in z3", OfPool: "allows only z1"}
	if got, want := none.Naming("default", ""), "a volume can only be used in z3; NodePool default allows only z1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The reason of a pod that needs a GPU names what its pool lacks, why, and what to allow, as far as that alone is enough.
func TestAMissingResourceIsNamedWithWhatToAllow(t *testing.T) {
	gpu := rejection.Size{Amount: rejection.Amount{Resource: "nvidia.com/gpu", Needs: "1"}, Cause: rejection.NoSuitableType}
	reason := func(key string, values ...string) rejection.Reason {
		allowed := rejection.LabelOf(requirement.In(key, values...))
		return rejection.Reason{
			Code: rejection.Resources, NodePool: "general", Together: 1,
			Nearest: &rejection.Nearest{InstanceType: "g6.large", Zone: "z2", CapacityType: "spot"},
			Rule:    &rejection.Rule{Sizes: &rejection.Sizes{Pool: &allowed, TooLarge: []rejection.Size{gpu}}},
		}
	}
	const category = "karpenter.k8s.aws/instance-category"
	for want, key := range map[string]string{
		"karpenter.k8s.aws/instance-category in (a, b); allow that of g6.large, too": category,
		"topology.kubernetes.io/zone in (a, b); allow z2, too":                       corev1.LabelTopologyZone,
		"karpenter.sh/capacity-type in (a, b); allow spot, too":                      "karpenter.sh/capacity-type",
		"node.kubernetes.io/instance-type in (a, b); allow g6.large, too":            corev1.LabelInstanceTypeStable,
	} {
		want = "fits g6.large in z2, but the pool has no instance type with nvidia.com/gpu: it allows only " + want
		if got := wording.Reason(reason(key, "a", "b")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r := reason(category, "c", "m")
	if got, want := wording.LabelWords.Clause(r).Naming("general", ""),
		"NodePool general has no instance type with nvidia.com/gpu: it allows only instance category in (c, m)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for together, want := range map[int]string{
		0: "the pool has no instance type with nvidia.com/gpu: it allows only karpenter.k8s.aws/instance-category in (c, m)",
		2: "the pool has no instance type with nvidia.com/gpu: it allows only karpenter.k8s.aws/instance-category in (c, m); " +
			"but for these 2 reasons it fits g6.large in z2",
	} {
		r.Together = together
		if got := wording.Reason(r); got != want {
			t.Errorf("of %d reasons: %q, want %q", together, got, want)
		}
	}
	r.Together, r.Rule.Sizes.TooLarge[0].Cause = 1, rejection.NowhereKnown
	if got, want := wording.Reason(r), "fits g6.large in z2, but the pod needs 1 nvidia.com/gpu, which neither a node nor an instance type has; "+
		"the pool allows only karpenter.k8s.aws/instance-category in (c, m)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Sentences that no other test of the engine has, since few clusters give them.
func TestRareRulesAreWorded(t *testing.T) {
	for want, rule := range map[string]rejection.Rule{
		`volume claim "data" is of storage class "gp2"; its allowed topologies are over "example.com/rack", a label that nodes of this cloud do not have`: {
			VolumeClaim: &rejection.VolumeClaim{Name: "data", Cause: rejection.ForeignTopology, Class: "gp2", Label: "example.com/rack"},
		},
		`the devices that are free for resource claim "a", "b" cannot be used on nodes of the pool`: {
			ResourceClaims: &rejection.ResourceClaims{Cause: rejection.NotUsableInPool, Names: []string{"a", "b"}},
		},
		"no price is known of any of the 3 instance types that suit, and nothing is launched at an unknown price: " +
			"a NodeOverlay can give it one (feature gate NodeOverlay)": {Offerings: &rejection.Offerings{Types: 3, Unpriced: true}},
		"the pool's limit of 8 cpu leaves 2 (6 in use), and the smallest suitable type, m5.xlarge, adds 4; " +
			"the pool's limit of 16Gi memory leaves 4Gi (8Gi in use, 4Gi planned), and the smallest suitable type, r5.large, adds 16Gi": {
			Limits: []rejection.Limit{
				{Resource: "cpu", Limit: "8", Used: "6", Left: "2", InstanceType: "m5.xlarge", Adds: "4"},
				{Resource: "memory", Limit: "16Gi", Used: "8Gi", Planned: "4Gi", Left: "4Gi", InstanceType: "r5.large", Adds: "16Gi"},
			},
		},
		"would schedule against uninitialized nodeclaim/general-1, node/n1": {Node: &rejection.Node{NodeClaim: "general-1", Name: "n1"}},
	} {
		if got := wording.Reason(rejection.Reason{Rule: &rule}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
