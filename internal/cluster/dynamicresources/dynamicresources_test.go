package dynamicresources_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

const (
	driver  = "gpu.example.com"
	network = "nic.example.com"
	in      = corev1.NodeSelectorOpIn
)

// class takes every device of the driver.
func class(name, driver string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}
	return c
}

// spec is a complete pool of n devices.
func spec(pool string, n int) resourcev1.ResourceSliceSpec {
	s := resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1, Generation: 1}}
	for i := range n {
		s.Devices = append(s.Devices, resourcev1.Device{Name: fmt.Sprintf("dev-%d", i)})
	}
	return s
}

// slice publishes a pool.
func slice(s resourcev1.ResourceSliceSpec, edit func(*resourcev1.ResourceSlice)) *resourcev1.ResourceSlice {
	out := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-" + s.Pool.Name}, Spec: s}
	edit(out)
	return out
}

func on(node string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) { s.Spec.NodeName = &node }
}

func everywhere(s *resourcev1.ResourceSlice) {
	yes := true
	s.Spec.AllNodes = &yes
}

func where(exprs ...corev1.NodeSelectorRequirement) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: exprs}}}
	}
}

func ownedBy(node string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		everywhere(s)
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node}}
	}
}

// claim requests n devices of the class.
func claim(name string, n int64, edit ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n,
	}}}
	for _, e := range edit {
		e(c)
	}
	return c
}

// madeFor makes the claim one that was made of a template for the pod.
func madeFor(pod string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		yes := true
		c.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID("uid-" + pod), Controller: &yes},
		}
	}
}

// has gives the claim a device, for the use of these pods.
func has(pool, name string, selector *corev1.NodeSelector, pods ...string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: selector}
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driver, Pool: pool, Device: name},
		}
		for _, pod := range pods {
			c.Status.ReservedFor = append(
				c.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)},
			)
		}
	}
}

func zone(z string) *corev1.NodeSelector {
	return &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{Expr(Zone, in, z)}}},
	}
}

// uses makes a pod use the claim of the name.
func uses(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "r-" + name, ResourceClaimName: &name})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "r-" + name})
	}
}

// ofTemplate makes a pod use a claim that was made of a template; none is needed if the name is empty.
func ofTemplate(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		template := "template"
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template})
		status := corev1.PodResourceClaimStatus{Name: "gpu"}
		if name != "" {
			status.ResourceClaimName = &name
		}
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, status)
	}
}

func notMadeYet(p *corev1.Pod) {
	ofTemplate("")(p)
	p.Status.ResourceClaimStatuses = nil
}

// batch is n pods, each with a claim of its own for one device.
func batch(n int, edit ...func(*corev1.Pod)) (pods []*corev1.Pod, claims []*resourcev1.ResourceClaim) {
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		pods = append(pods, Pod(name, append(edit, ofTemplate("c-"+name))...))
		claims = append(claims, claim("c-"+name, 1, madeFor(name)))
	}
	return pods, claims
}

// with makes the type one that comes with n devices.
func with(it *catalog.InstanceType, n int) *catalog.InstanceType {
	it.DeviceSlices = []resourcev1.ResourceSliceSpec{spec("gpus", n)}
	return it
}

// tainted is the type at the price of nothing, with a taint on each of its devices.
func tainted(it *catalog.InstanceType) *catalog.InstanceType {
	out := with(Type("tainted", 0.01, "cpu", "8"), len(it.DeviceSlices[0].Devices))
	for i := range out.DeviceSlices[0].Devices {
		out.DeviceSlices[0].Devices[i].Taints = []resourcev1.DeviceTaint{{Key: "worn", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	}
	return out
}

// taintedSpec is a pool of one device with a taint.
func taintedSpec(pool string) resourcev1.ResourceSliceSpec {
	out := spec(pool, 1)
	out.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "worn", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	return out
}

// all makes the claim request all devices.
func all(c *resourcev1.ResourceClaim) {
	c.Spec.Devices.Requests[0].Exactly.AllocationMode, c.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
}

// devices makes an API server's objects what the snapshot knows of devices.
func devices(s *snapshot.Snapshot, claims []*resourcev1.ResourceClaim, published ...*resourcev1.ResourceSlice) *snapshot.Snapshot {
	return devicesOf(s, dynamicresources.Objects{Claims: claims, Slices: published})
}

// devicesOf makes objects what the snapshot knows of devices, with classes for the devices of each driver.
func devicesOf(s *snapshot.Snapshot, o dynamicresources.Objects) *snapshot.Snapshot {
	up := map[string]bool{}
	for i := range s.Nodes {
		up[s.Nodes[i].Name] = s.Nodes[i].Initialized && !s.Nodes[i].Deleting
	}
	o.Classes = append(o.Classes, class("gpu", driver), class("nic", network))
	o.Up = func(node string) bool { return up[node] }
	s.Devices = dynamicresources.New(o, dynamicresources.NewExpressions())
	return s
}

func list[T any](items ...T) []T { return items }

// plan reports a plan in a line per place, in the plan's order.
func plan(t *testing.T, s *snapshot.Snapshot) []string {
	t.Helper()
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	var out []string
	names := func(pods []*corev1.Pod) string {
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	for _, r := range p.Rejected {
		out = append(out, fmt.Sprintf("no place (%s): %s", r.Reasons[0].Code, r.Pod.Name))
	}
	for _, pl := range p.Placements {
		out = append(out, fmt.Sprintf("%s: %s", pl.Node, names(pl.Pods)))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		text := l.InstanceTypes[0].Name
		if z, ok := l.Requirements.Get(Zone).Single(); ok {
			text += " in " + z
		}
		if len(l.Drivers) > 0 {
			text += " with " + strings.Join(l.Drivers, ",")
		}
		out = append(out, fmt.Sprintf("%s: %s", text, names(l.Pods)))
	}
	return out
}

// pool has a cheap type without devices, and more.
func pool(more ...*catalog.InstanceType) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", append([]*catalog.InstanceType{Type("plain", 0.1, "cpu", "8")}, more...))}
}

func nodes(s *snapshot.Snapshot, list ...snapshot.Node) *snapshot.Snapshot {
	s.Nodes = append(s.Nodes, list...)
	return s
}

func TestPlans(t *testing.T) {
	one := func(n *snapshot.Node) { n.Labels["kubernetes.io/hostname"] = n.Name }
	gpu1, gpu2, gpu4 := with(Type("gpu1", 1, "cpu", "8"), 1), with(Type("gpu2", 1.5, "cpu", "8"), 2), with(Type("gpu4", 4, "cpu", "8"), 4)
	four, fourClaims := batch(4)
	two, twoClaims := batch(2)
	busy, busyClaims := batch(2, Requests("cpu", "1"))
	crowd, crowdClaims := batch(4, Requests("cpu", "1"))
	tests := []struct {
		name  string
		world *snapshot.Snapshot
		want  []string
	}{
		{
			"devices of the type",
			devices(World(pool(gpu1), Pod("a", uses("c"))), list(claim("c", 1))),
			[]string{"gpu1 with gpu.example.com: a"},
		},
		{
			"a claim made of a template",
			devices(World(pool(gpu1), Pod("a", ofTemplate("c"))), list(claim("c", 1, madeFor("a")))),
			[]string{"gpu1 with gpu.example.com: a"},
		},
		{
			"no claim is needed after all",
			devices(World(pool(gpu1), Pod("a", ofTemplate(""))), nil),
			[]string{"plain: a"},
		},
		{
			"the daemon counts",
			daemon(
				devices(World(pool(Type("big", 0.3, "cpu", "16")), Pod("a", Requests("cpu", "8"))), nil),
				Pod("d", Requests("cpu", "1"), uses("c")),
			),
			[]string{"big: a"},
		},
		{"a claim that does not exist", devices(World(pool(gpu1), Pod("a", uses("c"))), nil), []string{"no place (ResourceClaims): a"}},
		{"a claim that is not made yet", devices(World(pool(gpu1), Pod("a", notMadeYet)), nil), []string{"no place (ResourceClaims): a"}},
		{
			"somebody else's claim",
			devices(World(pool(gpu1), Pod("a", ofTemplate("c"))), list(claim("c", 1, madeFor("b")))),
			[]string{"no place (ResourceClaims): a"},
		},
		{
			"more than any type has",
			devices(World(pool(gpu1, gpu2), Pod("a", uses("c"))), list(claim("c", 3))),
			[]string{"no place (Devices): a"},
		},
		{
			"the smallest type that has enough",
			devices(World(pool(gpu1, gpu2, gpu4), Pod("a", uses("c"))), list(claim("c", 2))),
			[]string{"gpu2 with gpu.example.com: a"},
		},
		{
			"pods of one node share its devices, and none twice",
			devices(World(pool(gpu2), four...), fourClaims),
			[]string{"gpu2 with gpu.example.com: p0 p1", "gpu2 with gpu.example.com: p2 p3"},
		},
		{
			"two nodes with a device each cost more than one with two",
			devices(World(pool(gpu1, gpu2), busy...), busyClaims),
			[]string{"gpu2 with gpu.example.com: p0 p1"},
		},
		{
			"two nodes with two devices each cost less than one with four, and than four with one",
			devices(World(pool(gpu1, gpu2, gpu4), crowd...), crowdClaims),
			[]string{"gpu2 with gpu.example.com: p0 p1", "gpu2 with gpu.example.com: p2 p3"},
		},
		{
			"two nodes with a device each cost less",
			devices(World(pool(gpu1, gpu4), busy...), busyClaims),
			[]string{"gpu1 with gpu.example.com: p0", "gpu1 with gpu.example.com: p1"},
		},
		{
			"whichever type it becomes, no device is given twice",
			devices(World(pool(gpu1, with(Type("gpu1b", 1.1, "cpu", "8"), 1)), two...), twoClaims),
			[]string{"gpu1 with gpu.example.com: p0", "gpu1 with gpu.example.com: p1"},
		},
		{
			"users of one claim keep together",
			devices(
				World(pool(gpu1), Pod("a", uses("c"), Requests("cpu", "1")), Pod("b", uses("c"), Requests("cpu", "1"))),
				list(claim("c", 1)),
			),
			[]string{"gpu1 with gpu.example.com: a b"},
		},
		{
			"devices in the network can be used from any node",
			devices(World(pool(), Pod("a", uses("c"))), list(claim("c", 1)), slice(spec("net", 1), everywhere)),
			[]string{"plain: a"},
		},
		{
			"those that are taken cannot",
			devices(World(pool(), two...), twoClaims, slice(spec("net", 1), everywhere)),
			[]string{"no place (Devices): p1", "plain: p0"},
		},
		{
			"devices of a zone bring the node there",
			devices(World(pool(), Pod("a", uses("c"))), list(claim("c", 1)), slice(spec("net", 1), where(Expr(Zone, in, "z2")))),
			[]string{"plain in z2: a"},
		},
		{
			"devices of the node and of a zone for one claim bring the node there",
			devices(World(pool(gpu1), Pod("a", uses("c"))), list(claim("c", 2)), slice(spec("net", 1), where(Expr(Zone, in, "z2")))),
			[]string{"gpu1 in z2 with gpu.example.com: a"},
		},
		{
			"all devices that there are, on no type with some that are tainted",
			devices(World(pool(tainted(gpu1)), Pod("a", uses("c"))), list(claim("c", 0, all)), slice(spec("net", 1), everywhere)),
			[]string{"plain: a"},
		},
		{
			"all devices that there are, where there are no others of the zone",
			devices(World([]snapshot.Pool{Pool("gpus", list(with(Type("gpu1", 1, "cpu", "8"), 1)), Require(Zone, in, "z1", "z2"))},
				Pod("a", uses("c"))), list(claim("c", 0, all)), slice(taintedSpec("net"), where(Expr(Zone, in, "z2")))),
			[]string{"gpu1 in z1 with gpu.example.com: a"},
		},
		{
			"devices of two zones, a node for each",
			devices(
				World(pool(), two...),
				twoClaims,
				slice(spec("net-2", 1), where(Expr(Zone, in, "z2"))),
				slice(spec("net-3", 1), where(Expr(Zone, in, "z3"))),
			),
			[]string{"plain in z2: p0", "plain in z3: p1"},
		},
		{
			"the zone of the devices is not the pod's",
			devices(
				World(pool(), Pod("a", uses("c"), Selects(Zone, "z1"))),
				list(claim("c", 1)),
				slice(spec("net", 1), where(Expr(Zone, in, "z2"))),
			),
			[]string{"no place (Devices): a"},
		},
		{
			"a claim in use binds its other users to where its devices are",
			devices(
				World(pool(), Pod("a", uses("c"))),
				list(claim("c", 1, has("net", "dev-0", zone("z3"), "other"))),
				slice(spec("net", 1), everywhere),
			),
			[]string{"plain in z3: a"},
		},
		{
			"a claim that nobody uses binds nobody",
			devices(
				World(pool(), Pod("a", uses("c"))),
				list(claim("c", 1, has("net", "dev-0", zone("z3")))),
				slice(spec("net", 1), where(Expr(Zone, in, "z2"))),
			),
			[]string{"plain in z2: a"},
		},
		{
			"devices of others are taken",
			devices(
				World(pool(), Pod("a", uses("c"))),
				list(claim("c", 1), claim("d", 1, has("net", "dev-0", nil, "other"))),
				slice(spec("net", 1), everywhere),
			),
			[]string{"no place (Devices): a"},
		},
		{
			"devices of pods whose node goes are free",
			devices(nodes(World(pool(), Pod("a", uses("c"))), Node("n1", "general", func(n *snapshot.Node) {
				n.Deleting = true
				n.Pods = []*corev1.Pod{Bound(Pod("other"), "n1")}
			})), list(claim("c", 1), claim("d", 1, has("net", "dev-0", nil, "other"))), slice(spec("net", 1), everywhere)),
			[]string{"plain: a"},
		},
		{
			"a node that has devices",
			devices(
				nodes(World(pool(gpu1), Pod("a", uses("c"))), Node("n1", "general", one)),
				list(claim("c", 1)),
				slice(spec("n1", 1), on("n1")),
			),
			[]string{"n1: a"},
		},
		{
			"a node that has too few",
			devices(
				nodes(World(pool(gpu2), Pod("a", uses("c"))), Node("n1", "general", one)),
				list(claim("c", 2)),
				slice(spec("n1", 1), on("n1")),
			),
			[]string{"gpu2 with gpu.example.com: a"},
		},
		{
			"a pool that is not complete",
			devices(
				nodes(World(pool(), Pod("a", uses("c"))), Node("n1", "general", one)),
				list(claim("c", 1)),
				slice(func() resourcev1.ResourceSliceSpec {
					s := spec("n1", 1)
					s.Pool.ResourceSliceCount = 2
					return s
				}(), on("n1")),
			),
			[]string{"no place (Devices): a"},
		},
		{
			"a node in flight will have the devices of its type",
			devices(nodes(World(pool(gpu1), Pod("a", uses("c"))), Node("n1", "general", func(n *snapshot.Node) {
				n.Initialized, n.Labels[corev1.LabelInstanceTypeStable], n.DRADrivers = false, "gpu1", []string{driver}
			})), list(claim("c", 1))),
			[]string{"n1: a"},
		},
		{
			"a node in flight that does not wait for the driver may never have its devices",
			devices(nodes(World(pool(gpu1), Pod("a", uses("c"))), Node("n1", "general", func(n *snapshot.Node) {
				n.Initialized, n.Labels[corev1.LabelInstanceTypeStable], n.DRADrivers = false, "gpu1", []string{network}
			})), list(claim("c", 1))),
			[]string{"gpu1 with gpu.example.com: a"},
		},
		{
			"what a node publishes while it is in flight does not count",
			devices(nodes(World(pool(), Pod("a", uses("c"))), Node("n1", "general", func(n *snapshot.Node) { n.Initialized = false })),
				list(claim("c", 1)), slice(spec("n1", 1), on("n1")), slice(spec("net", 1), ownedBy("n1"))),
			[]string{"no place (Devices): a"},
		},
		{
			"what a node gives to all does, once it is up",
			devices(
				nodes(World(pool(), Pod("a", uses("c"), Requests("cpu", "6"))), Node("n1", "general")),
				list(claim("c", 1)),
				slice(spec("net", 1), ownedBy("n1")),
			),
			[]string{"plain: a"},
		},
		{
			"a claim that was created for the pod keeps its devices in the network from others",
			devices(nodes(World(pool(), two...), Node("n1", "general", func(n *snapshot.Node) {
				n.Launched, n.Registered, n.Initialized, n.Nominated = false, false, false, []types.UID{"uid-p1"}
			})), twoClaims, slice(spec("net", 1), everywhere)),
			[]string{"no place (Devices): p0", "n1: p1"},
		},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got := plan(t, c.world)
			slices.Sort(got)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func daemon(s *snapshot.Snapshot, pod *corev1.Pod) *snapshot.Snapshot {
	s.DaemonSets = append(s.DaemonSets, snapshot.DaemonSet{Namespace: pod.Namespace, Name: pod.Name, Pod: pod})
	return s
}
