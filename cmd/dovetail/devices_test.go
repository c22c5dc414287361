package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// deviceWorld is a cluster without nodes, with a NodePool of every EC2 type, and pods that request nothing but devices.
type deviceWorld struct {
	drivers []string
	sharing string
	pods    int
	// claim is that of each pod.
	claim resourcev1.ResourceClaimSpec
}

// launches plans the world, and describes its nodes: the cheapest type, the drivers that it waits for, the number of pods.
func (w deviceWorld) launches(t *testing.T) (out []string) {
	t.Helper()
	s := w.snapshot(t)
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		out = append(out, fmt.Sprintf("%s with %s: %d", l.InstanceTypes[0].Name, strings.Join(l.Drivers, ","), len(l.Pods)))
	}
	for _, r := range p.Rejected {
		out = append(out, fmt.Sprintf("no place: %s", wording.Reason(r.Reasons[0])))
	}
	slices.Sort(out)
	return out
}

func (w deviceWorld) snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	data, err := offline.Load("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	region, err := offlineregion.New(data, instancetype.Settings{Region: "us-east-1", MemoryOverhead: 0.075, DRADrivers: w.drivers})
	if err != nil {
		t.Fatal(err)
	}
	class := &awsv1.EC2NodeClass{}
	class.Annotations = map[string]string{awsv1.AnnotationNVIDIAConsumableCapacity: w.sharing}
	class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	all, err := region.Types(class)
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	var claims []*resourcev1.ResourceClaim
	for i := range w.pods {
		name := fmt.Sprintf("p%d", i)
		pods = append(pods, enginetest.Pod(name, enginetest.Requests(), func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
		}))
		claims = append(claims, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}, Spec: w.claim,
		})
	}
	s := enginetest.World([]snapshot.Pool{enginetest.Pool("general", all)}, pods...)
	s.Devices = dynamicresources.New(dynamicresources.Objects{
		Claims: claims, Up: func(string) bool { return false },
		Classes: []*resourcev1.DeviceClass{
			deviceClass(awsv1.DRADriverNVIDIA, `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"`),
			deviceClass(awsv1.DRADriverEFA, `device.driver == "dra.net" && device.attributes["dra.net"].rdma`),
		},
	}, dynamicresources.NewExpressions())
	return s
}

func deviceClass(name, expression string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	return c
}

// request is for n devices of a class, which the expressions select.
func request(name, class string, n int64, expressions ...string) resourcev1.DeviceRequest {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n}
	for _, e := range expressions {
		exactly.Selectors = append(exactly.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return resourcev1.DeviceRequest{Name: name, Exactly: exactly}
}

// firstOf are alternatives, named a, b, and so on.
func firstOf(alternatives ...resourcev1.DeviceRequest) resourcev1.DeviceRequest {
	out := resourcev1.DeviceRequest{Name: "any"}
	for _, r := range alternatives {
		out.FirstAvailable = append(out.FirstAvailable, resourcev1.DeviceSubRequest{
			Name: r.Name, DeviceClassName: r.Exactly.DeviceClassName, Selectors: r.Exactly.Selectors,
			AllocationMode: r.Exactly.AllocationMode, Count: r.Exactly.Count,
		})
	}
	return out
}

func asks(requests ...resourcev1.DeviceRequest) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
}

// agree makes devices agree on an attribute.
func agree(spec resourcev1.ResourceClaimSpec, attribute string, requests ...string) resourcev1.ResourceClaimSpec {
	name := resourcev1.FullyQualifiedName(attribute)
	spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{Requests: requests, MatchAttribute: &name})
	return spec
}

// ofCapacity queries each device of the first request for an amount of a capacity.
func ofCapacity(spec resourcev1.ResourceClaimSpec, name, amount string) resourcev1.ResourceClaimSpec {
	spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{
		Requests: map[resourcev1.QualifiedName]resource.Quantity{resourcev1.QualifiedName(name): resource.MustParse(amount)},
	}
	return spec
}

// Pods that request devices alone get the cheapest type that comes with them, before any node publishes a device.
func TestClaimsScaleFromZero(t *testing.T) {
	const gpu, efa = awsv1.DRADriverNVIDIA, awsv1.DRADriverEFA
	const root = "resource.kubernetes.io/pcieRoot"
	const hopper = `device.attributes["gpu.nvidia.com"].architecture == "Hopper"`
	const large = `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) > 0`
	const recent = `device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("1.0.0"))`
	all := asks(request("all", gpu, 0))
	all.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	of := func(pods int, claim resourcev1.ResourceClaimSpec) deviceWorld {
		return deviceWorld{drivers: []string{gpu, efa}, pods: pods, claim: claim}
	}
	sharing := func(mode string, w deviceWorld) deviceWorld {
		w.sharing = mode
		return w
	}
	one := asks(request("r", gpu, 1))
	for _, tt := range []struct {
		name  string
		world deviceWorld
		want  string // lines
	}{
		{"a GPU", of(1, one), "g6f.large with gpu.nvidia.com: 1"},
		{
			"no gate", deviceWorld{pods: 1, claim: one}, `no place: there are no free devices for resource claim "p0", ` +
				`and it is not known of any instance type of the pool that it comes with devices`,
		},
		{
			"the other gate",
			deviceWorld{drivers: []string{efa}, pods: 1, claim: one},
			`no place: there are no free devices for resource claim "p0"`,
		},
		{"eight GPUs", of(1, asks(request("r", gpu, 8))), "g5.48xlarge with gpu.nvidia.com: 1"},
		{"all GPUs of a node", of(1, all), "g6f.large with gpu.nvidia.com: 1"},
		{"by architecture", of(1, asks(request("r", gpu, 1, hopper))), "p5.4xlarge with gpu.nvidia.com: 1"},
		{"by memory", of(1, asks(request("r", gpu, 1, large))), "g6e.xlarge with gpu.nvidia.com: 1"},
		{"EFA", of(1, asks(request("r", efa, 1))), "g4dn.8xlarge with dra.net: 1"},
		{"a GPU and EFA", of(1, asks(request("g", gpu, 1), request("e", efa, 1))), "g4dn.8xlarge with dra.net,gpu.nvidia.com: 1"},
		{
			"a GPU and EFA on one PCIe root", of(1, agree(asks(request("g", gpu, 1, hopper), request("e", efa, 1)), root)),
			"p5.4xlarge with dra.net,gpu.nvidia.com: 1",
		},
		{
			"GPUs with one version of the driver, which nobody knows yet", of(1, agree(asks(request("g", gpu, 4)), gpu+"/driverVersion")),
			"g4dn.12xlarge with gpu.nvidia.com: 1",
		},
		{
			"a version of the driver, which nobody knows yet", of(1, asks(request("g", gpu, 1, recent))),
			`no place: look for devices for resource claim "p0": claim default/p0: ` +
				`selector #0 on device gpu.nvidia.com/~/new-node-000000.invalid/g6f.large/gpus-g6f.large/gpu-0: ` +
				`CEL runtime error: no such overload: isGreaterThan(string, kubernetes.Semver)`,
		},
		{
			"of alternatives the one with the cheapest type: no type has the first, and a dear one the second",
			of(1, asks(firstOf(request("a", gpu, 16), request("b", gpu, 8, hopper), request("c", gpu, 1)))),
			"g6f.large with gpu.nvidia.com: 1",
		},
		{
			"constraints on one alternative",
			of(1, agree(asks(firstOf(request("a", gpu, 2, hopper), request("b", gpu, 1))), root, "any/a")),
			"g6f.large with gpu.nvidia.com: 1",
		},
		{"two pods with a GPU each", of(2, one), "g6f.large with gpu.nvidia.com: 1\ng6f.large with gpu.nvidia.com: 1"},
		{"four pods share a GPU", sharing("4", of(4, one)), "g6f.large with gpu.nvidia.com: 4"},
		{
			"five pods, of which four may share", sharing("4", of(5, one)),
			"g6f.large with gpu.nvidia.com: 1\ng6f.large with gpu.nvidia.com: 4",
		},
		{
			"shared by memory, 15 GiB in parts of 4", sharing("memory", of(4, ofCapacity(asks(request("r", gpu, 1)), "memory", "4Gi"))),
			"g5g.xlarge with gpu.nvidia.com: 1\ng5g.xlarge with gpu.nvidia.com: 3",
		},
		{"shared without limit", sharing("unlimited", of(8, one)), "g6f.large with gpu.nvidia.com: 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(tt.world.launches(t), "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
