package dynamicresources_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// groupWithClaim is a gang of two with a claim that its pods share.
func groupWithClaim(name string) *schedulingv1beta1.PodGroup {
	template := "template"
	return Gang("train", 2, func(g *schedulingv1beta1.PodGroup) {
		g.UID = "uid-group"
		g.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: name, ResourceClaimTemplateName: &template}}
	})
}

func ownedByGroup(c *resourcev1.ResourceClaim) {
	yes := true
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Name: "train", UID: "uid-group", Controller: &yes}}
}

func reservedForGroup(c *resourcev1.ResourceClaim) {
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{
		{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "train", UID: "uid-group"},
	}
}

func withGroup(s *snapshot.Snapshot, g *schedulingv1beta1.PodGroup, claims []*resourcev1.ResourceClaim, published ...*resourcev1.ResourceSlice) {
	WithGroups(s, g)
	s.Devices = dynamicresources.New(dynamicresources.Objects{
		Claims: claims, Slices: published, Classes: list(class("gpu", driver)), Up: func(string) bool { return true }, PodGroups: s.PodGroups,
	}, dynamicresources.NewExpressions())
}

// The pods of a group share the claims that were made for it, so they are where the first of them gets its devices.
func TestPodsShareTheClaimOfTheirGroup(t *testing.T) {
	pods := func() []*corev1.Pod { return Pods(2, "p", ofTemplate("c"), InGroup("train"), Requests("cpu", "5")) }
	network := func() *resourcev1.ResourceSlice { return slice(spec("net", 1), where(Expr(Zone, in, "z2"))) }
	for _, c := range []struct {
		name  string
		group *schedulingv1beta1.PodGroup
		edit  []func(*resourcev1.ResourceClaim)
		slice *resourcev1.ResourceSlice
		want  []string
	}{
		{"both are where the device is", groupWithClaim("gpu"), list(ownedByGroup), network(), []string{"plain in z2: p-000", "plain in z2: p-001"}},
		{"the group has no such claim", groupWithClaim("other"), list(ownedByGroup), network(), []string{"no place (PodGroup): p-000", "no place (PodGroup): p-001"}},
		{"the claim is of another group", groupWithClaim("gpu"), nil, network(), []string{"no place (PodGroup): p-000", "no place (PodGroup): p-001"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World(pool(), pods()...)
			withGroup(s, c.group, list(claim("c", 1, c.edit...)), c.slice)
			if got := plan(t, s); !slices.Equal(got, c.want) {
				t.Errorf("plan %q, want %q", got, c.want)
			}
		})
	}
}

// A device of one node can serve the group on this node only, and two of its pods need two nodes.
func TestAGangOverTwoNodesCannotUseTheDeviceOfOne(t *testing.T) {
	s := nodes(World(pool(), Pods(2, "p", ofTemplate("c"), InGroup("train"), Requests("cpu", "3"))...), Node("n1", "general"))
	withGroup(s, groupWithClaim("gpu"), list(claim("c", 1, ownedByGroup)), slice(spec("gpus", 1), on("n1")))
	if got, want := plan(t, s), []string{"no place (PodGroup): p-000", "no place (PodGroup): p-001"}; !slices.Equal(got, want) {
		t.Errorf("plan %q, want %q", got, want)
	}
}

// The claim of a group is free once all of its pods leave their nodes.
func TestTheClaimOfAGroupIsInUseWhileOneOfItsPodsIs(t *testing.T) {
	a, b := Bound(Pod("a", ofTemplate("c"), InGroup("train")), "n1"), Bound(Pod("b", ofTemplate("c"), InGroup("train")), "n1")
	s := nodes(World(nil), Node("n1", "general", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{a, b} }))
	withGroup(s, groupWithClaim("gpu"), list(claim("c", 1, ownedByGroup, has("net", "dev-0", zone("z1")), reservedForGroup), claim("other", 1)),
		slice(spec("net", 1), everywhere))
	other := list(snapshot.DeviceClaim{Name: "other", UID: "claim-other"})
	for _, c := range []struct {
		name    string
		leaving map[types.UID]bool
		free    bool
	}{
		{"none leaves", nil, false},
		{"one leaves", map[types.UID]bool{a.UID: true}, false},
		{"both leave", map[types.UID]bool{a.UID: true, b.UID: true}, true},
	} {
		_, err := s.Devices.Free(c.leaving).Find(other, snapshot.DeviceNode{Node: "n2"})
		if (err == nil) != c.free {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
