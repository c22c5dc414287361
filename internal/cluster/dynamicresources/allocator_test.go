package dynamicresources_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

func TestReasons(t *testing.T) {
	selects := func(expression string) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{
				{CEL: &resourcev1.CELDeviceSelector{Expression: expression}},
			}
		}
	}
	noClass := claim("c", 1)
	noClass.Spec.Devices.Requests[0].Exactly.DeviceClassName = "tpu"
	full := claim("c", 1, has("net", "dev-0", nil, "other"))
	for i := range resourcev1.ResourceClaimReservedForMaxSize - 1 {
		full.Status.ReservedFor = append(full.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{UID: types.UID(fmt.Sprint(i))})
	}
	gpu := pool(with(Type("gpu1", 1, "cpu", "8"), 1))
	tests := []struct {
		name  string
		world *snapshot.Snapshot
		says  string
	}{
		{"no claim", devices(World(gpu, Pod("a", uses("c"))), nil), `resource claim "c" does not exist`},
		{"not made yet", devices(World(gpu, Pod("a", notMadeYet)), nil), `resource claim "gpu" has not been made of template "template" yet`},
		{
			"of another pod",
			devices(World(gpu, Pod("a", ofTemplate("c"))), list(claim("c", 1))),
			`resource claim "c" was not made for this pod`,
		},
		{
			"too many users",
			devices(World(gpu, Pod("a", uses("c"))), list(full)),
			`resource claim "c" has 256 users, which is the most that one can have`,
		},
		{
			"too few devices",
			devices(World(gpu, Pod("a", uses("c"))), list(claim("c", 2))),
			`there are no free devices for resource claim "c"`,
		},
		{
			"types that come with none",
			devices(World(pool(), Pod("a", uses("c"))), list(claim("c", 2))),
			`there are no free devices for resource claim "c", and it is not known of any instance type of the pool that it comes with devices`,
		},
		{"a class that does not exist", devices(World(gpu, Pod("a", uses("c"))), list(noClass)), `device class "tpu" does not exist`},
		{
			"an expression that says nothing",
			devices(World(gpu, Pod("a", uses("c"))), list(claim("c", 1, selects("device.nothing")))),
			"undefined field 'nothing'",
		},
		{
			"in a zone where the pool is not",
			devices(
				World(list(Pool("general", Types(), Require(Zone, in, "z1"))), Pod("a", uses("c"))),
				list(claim("c", 1)),
				slice(spec("net", 1), where(Expr(Zone, in, "z2"))),
			),
			`there are no free devices for resource claim "c"`,
		},
		{
			"held where the pool is not",
			devices(
				World(list(Pool("general", Types(), Require(Zone, in, "z1"))), Pod("a", uses("c"))),
				list(claim("c", 1, has("net", "dev-0", zone("z2"), "other"))),
			),
			`resource claim "c" has devices that cannot be used there`,
		},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.world, schedule.Budget{})
			if len(p.Rejected) != 1 || !strings.Contains(wording.Reason(p.Rejected[0].Reasons[0]), c.says) {
				t.Errorf("rejected %+v, want one that says %q", p.Rejected, c.says)
			}
		})
	}
}

// unsatisfiableClaim is a claim with devices that could be combined in ways beyond number: twelve of twenty, all with the
// same value of an attribute that each has another of.
func unsatisfiableClaim() (*resourcev1.ResourceClaim, *resourcev1.ResourceSlice) {
	c := claim("c", 1)
	c.Spec.Devices.Requests = nil
	for i := range 12 {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: fmt.Sprintf(
				"r%d",
				i,
			), Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		})
	}
	kind := resourcev1.FullyQualifiedName(driver + "/kind")
	c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{Requests: []string{"r10", "r11"}, MatchAttribute: &kind}}
	s := slice(spec("net", 20), everywhere)
	for i := range s.Spec.Devices {
		value := fmt.Sprint(i)
		s.Spec.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"kind": {StringValue: &value}}
	}
	return c, s
}

// TestSearchEnds has a search give up after so many steps.
func TestSearchEnds(t *testing.T) {
	c, s := unsatisfiableClaim()
	p := schedule.Solve(devices(World(pool(), Pod("a", uses("c"))), list(c), s), schedule.Budget{})
	if len(p.Rejected) != 1 || !strings.Contains(wording.Reason(p.Rejected[0].Reasons[0]), "too many ways to combine devices") {
		t.Errorf("rejected %+v", p.Rejected)
	}
}

// TestEqualSnapshotsGiveEqualPlans shuffles a snapshot with more pods than devices.
func TestEqualSnapshotsGiveEqualPlans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pods, claims := batch(12, Requests("cpu", "1"))
	published := list(
		slice(
			spec("n1", 2),
			on("n1"),
		),
		slice(spec("n2", 1), on("n2")),
		slice(spec("net-2", 2), where(Expr(Zone, in, "z2"))),
		slice(spec("net", 1), everywhere),
	)
	var want []string
	for range 10 {
		s := nodes(World(pool(with(Type("gpu2", 1.5, "cpu", "2"), 2)), pods...), Node("n1", "general"), Node("n2", "general"))
		s.Pools[0].NodePool.Spec.Limits = Resources("cpu", "12")
		got := plan(t, devices(s, claims, published...))
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("another plan for the same world (-before +after):\n%s", diff)
		}
		rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		rng.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		rng.Shuffle(len(published), func(i, j int) { published[i], published[j] = published[j], published[i] })
	}
}

// TestSimulatedRemoval requests a node to go with a pod that has the only device of the network, and then queries again.
func TestSimulatedRemoval(t *testing.T) {
	user := Bound(Pod("user", uses("c")), "n1")
	s := nodes(World(pool()), Node("n1", "general", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{user} }))
	devices(s, list(claim("c", 1, has("net", "dev-0", zone("z1"), "user"))), slice(spec("net", 1), where(Expr(Zone, in, "z2"))))
	problem := schedule.Compile(s)
	for range 2 {
		p := problem.WhatIf([]int{0}, []*corev1.Pod{user}, schedule.Budget{})
		if len(p.Rejected) > 0 || len(p.Launches) != 1 || !p.Launches[0].Requirements.Get(Zone).Has("z2") ||
			p.Launches[0].Requirements.Get(Zone).Has("z1") {
			t.Fatalf("plan %+v", p)
		}
	}
}

// TestSharedCapacity has pods share one device as far as it goes.
func TestSharedCapacity(t *testing.T) {
	s := slice(spec("net", 1), everywhere)
	yes := true
	s.Spec.Devices[0].AllowMultipleAllocations = &yes
	s.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("10Gi")}}
	pods, claims := batch(3)
	for _, c := range claims {
		c.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("4Gi")},
		}
	}
	got := plan(t, devices(World(pool(), pods...), claims, s))
	if diff := cmp.Diff([]string{"no place (Devices): p2", "plain: p0 p1"}, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// TestDrivers names only drivers with devices that come with the node, whichever of the types that is.
func TestDrivers(t *testing.T) {
	nic := claim("nic", 1)
	nic.Spec.Devices.Requests[0].Exactly.DeviceClassName = "nic"
	inNetwork, onNode := spec("net", 1), spec("nics", 1)
	inNetwork.Driver, onNode.Driver = network, network
	both := with(Type("both", 1, "cpu", "8"), 1)
	both.DeviceSlices = append(both.DeviceSlices, onNode)
	user := Pod("a", uses("c"), uses("nic"))
	either := claim("c", 1)
	either.Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "any", FirstAvailable: []resourcev1.DeviceSubRequest{
		{Name: "gpu", DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		{Name: "nic", DeviceClassName: "nic", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}
	nics := Type("nics", 1.1, "cpu", "8")
	nics.DeviceSlices = []resourcev1.ResourceSliceSpec{onNode}
	for _, c := range []struct {
		name  string
		world *snapshot.Snapshot
		want  string
	}{
		{"one in the network", devices(World(pool(with(Type("gpu1", 1, "cpu", "8"), 1)), user), list(claim("c", 1), nic), slice(inNetwork,
			everywhere)), "gpu1 with gpu.example.com: a"},
		{"both on the node", devices(World(pool(both), user), list(claim("c", 1), nic)), "both with gpu.example.com,nic.example.com: a"},
		{"another on each type", devices(World(pool(with(Type("gpu1", 1, "cpu", "8"), 1), nics), Pod("a", uses("c"))), list(either)), "gpu1: a"},
		{"both in the network", devices(World(pool(), user), list(claim("c", 1), nic), slice(inNetwork, everywhere), slice(spec("gpus", 1),
			everywhere)), "plain: a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff([]string{c.want}, plan(t, c.world)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
