package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

const (
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	gpuDriver   = "gpu.nvidia.com"
)

// extendedWorld is a cluster where the type gpu has two devices of a DRA driver, which a class selects for nvidia.com/gpu.
type extendedWorld struct {
	cluster.Objects
}

func newExtendedWorld() *extendedWorld {
	w := &extendedWorld{}
	gpu, plain := enginetest.Type("gpu", 2, "cpu", "8", "memory", "32Gi", string(gpuResource), "2"), enginetest.Type("plain", 0.1, "cpu", "8", "memory", "32Gi")
	gpu.DeviceSlices = []resourcev1.ResourceSliceSpec{gpuSpec("expected", 2)}
	pool := poolOf("general")
	pool.Spec.Template.Spec.Requirements = nil
	w.Pools = []cluster.Pool{{NodePool: pool, InstanceTypes: []*catalog.InstanceType{plain, gpu}}}
	w.Devices = &cluster.Devices{Expressions: dynamicresources.NewExpressions(), Classes: []*resourcev1.DeviceClass{gpuClass("gpu", 0)}}
	return w
}

func gpuSpec(pool string, n int) resourcev1.ResourceSliceSpec {
	s := resourcev1.ResourceSliceSpec{Driver: gpuDriver, Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1}}
	for i := range n {
		s.Devices = append(s.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	return s
}

// gpuClass selects the devices of the driver, and is so many minutes old.
func gpuClass(name string, age time.Duration) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))}}
	extended := string(gpuResource)
	c.Spec.ExtendedResourceName = &extended
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + gpuDriver + `"`}}}
	return c
}

// node adds an unmanaged node with so many published devices, and an allocatable amount as a device plugin reports it; empty for none.
func (w *extendedWorld) node(name string, devices int, allocatable string) {
	n := nodeOf(name, "i-"+name)
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("50"),
	}
	if allocatable != "" {
		n.Status.Allocatable[gpuResource] = resource.MustParse(allocatable)
	}
	w.Nodes = append(w.Nodes, n)
	if devices > 0 {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gpuSpec(name, devices)}
		s.Spec.NodeName = &name
		w.Devices.Slices = append(w.Devices.Slices, s)
	}
}

// pod adds a pending pod with a container that requests so many; edits change it.
func (w *extendedWorld) pod(name, amount string, edits ...func(*corev1.Pod)) {
	p := podOf(name, unschedulable)
	p.UID = types.UID("uid-" + name)
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), gpuResource: resource.MustParse(amount),
	}}}}
	for _, e := range edits {
		e(p)
	}
	w.Pods = append(w.Pods, p)
}

// running puts the pod on the node, with a claim for devices of it.
func (w *extendedWorld) running(name, node, amount string, devices ...string) {
	w.pod(name, amount, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning })
	yes := true
	uid := types.UID("uid-" + name)
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-extended-resources-x", UID: "claim-" + uid}}
	c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid, Controller: &yes}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: uid}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "container-0-request-1", Driver: gpuDriver, Pool: node, Device: d,
		})
	}
	w.Devices.Claims = append(w.Devices.Claims, c)
}

// plan reports a valid plan, a line for each place.
func (w *extendedWorld) plan(t *testing.T) (out []string) {
	t.Helper()
	s := cluster.BuildSnapshot(w.Objects, cluster.Facts{Now: start, Labels: enginetest.World(nil).Labels})
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	names := func(pods []*corev1.Pod) string { return strings.Join(sortedNames(pods), " ") }
	for _, r := range p.Rejected {
		out = append(out, fmt.Sprintf("no place (%s): %s", r.Reasons[0].Code, r.Pod.Name))
	}
	for _, pl := range p.Placements {
		out = append(out, pl.Node+": "+names(pl.Pods))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		out = append(out, strings.TrimSpace(l.InstanceTypes[0].Name+" "+strings.Join(l.Drivers, ","))+": "+names(l.Pods))
	}
	slices.Sort(out)
	return out
}

// Extended resources that a DeviceClass names are served by device plugins or by DRA, node by node.
func TestExtendedResourcesServedByDRA(t *testing.T) {
	twice := func(w *extendedWorld) { w.pod("a", "1"); w.pod("b", "1") }
	init := func(first string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{gpuResource: resource.MustParse(first)},
			}}}
		}
	}
	for _, c := range []struct {
		name string
		edit func(*extendedWorld)
		want []string
	}{
		{"from zero, the node waits for the driver", func(w *extendedWorld) { w.pod("a", "1") }, []string{"gpu gpu.nvidia.com: a"}},
		{"a node has two devices", func(w *extendedWorld) { twice(w); w.pod("c", "1") }, []string{"gpu gpu.nvidia.com: a b", "gpu gpu.nvidia.com: c"}},
		{"more than any type has", func(w *extendedWorld) { w.pod("a", "3") }, []string{"no place (Devices): a"}},
		{"no class names it: the type's own amount counts", func(w *extendedWorld) {
			w.pod("a", "1")
			w.Devices.Classes = nil
		}, []string{"gpu: a"}},
		{"a DaemonSet is its device plugin", func(w *extendedWorld) {
			w.pod("a", "1")
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nvidia-device-plugin"}}
			w.DaemonSets = []*appsv1.DaemonSet{set}
		}, []string{"gpu: a"}},
		{"free devices of a node", func(w *extendedWorld) { w.pod("a", "1"); w.node("n1", 1, "") }, []string{"n1: a"}},
		{"the plugin is gone", func(w *extendedWorld) { w.pod("a", "1"); w.node("n1", 1, "0") }, []string{"n1: a"}},
		{
			"plugin and driver on one node, counted once", func(w *extendedWorld) { twice(w); w.node("n1", 1, "1") },
			[]string{"gpu gpu.nvidia.com: b", "n1: a"},
		},
		{"no driver and no plugin there", func(w *extendedWorld) { w.pod("a", "1"); w.node("n1", 0, "") }, []string{"gpu gpu.nvidia.com: a"}},
		{"the devices of a node are taken by a pod that runs", func(w *extendedWorld) {
			w.pod("a", "1")
			w.node("n1", 1, "")
			w.running("r", "n1", "1", "gpu-0")
		}, []string{"gpu gpu.nvidia.com: a"}},
		{"one of two is taken", func(w *extendedWorld) {
			twice(w)
			w.node("n1", 2, "")
			w.running("r", "n1", "1", "gpu-1")
		}, []string{"gpu gpu.nvidia.com: b", "n1: a"}},
		{
			"an init container that ends uses the devices of the others", func(w *extendedWorld) { w.pod("a", "1", init("2")) },
			[]string{"gpu gpu.nvidia.com: a"},
		},
		{"not more than there are", func(w *extendedWorld) { w.pod("a", "1", init("3")) }, []string{"no place (Devices): a"}},
		{"the name of the class, without a name of its own", func(w *extendedWorld) {
			w.pod("a", "1", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"deviceclass.resource.kubernetes.io/gpu": resource.MustParse("1")}
			})
			w.Devices.Classes[0].Spec.ExtendedResourceName = nil
		}, []string{"gpu gpu.nvidia.com: a"}},
		{"of two classes the newer counts", func(w *extendedWorld) {
			w.pod("a", "1")
			w.Pools = nil
			w.node("n1", 1, "")
			old := gpuClass("old", time.Hour)
			old.Spec.Selectors[0].CEL.Expression = "false"
			w.Devices.Classes = append(w.Devices.Classes, old)
		}, []string{"n1: a"}},
		{"a class whose expression does not compile has no devices", func(w *extendedWorld) {
			w.pod("a", "1")
			w.node("n1", 1, "")
			w.Devices.Classes[0].Spec.Selectors[0].CEL.Expression = "device.driver =="
		}, []string{"gpu: a"}},
		{"a rule taints all devices of the driver", func(w *extendedWorld) {
			w.pod("a", "1")
			w.node("n1", 1, "")
			r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
			r.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
			r.Spec.Taint = resourcev1.DeviceTaint{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}
			w.Devices.TaintRules = []*resourcev1.DeviceTaintRule{r}
		}, []string{"no place (Devices): a"}},
		{"the device is in use by a claim of another pod", func(w *extendedWorld) {
			w.pod("a", "1")
			w.node("n1", 1, "")
			w.running("r", "n1", "0", "gpu-0")
		}, []string{"gpu gpu.nvidia.com: a"}},
		{"a node of the pool and type has a plugin", func(w *extendedWorld) {
			w.pod("a", "2")
			w.node("n1", 0, "1")
			w.Nodes[0].Labels = map[string]string{
				karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "gpu", karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
			}
			w.NodeClaims = append(w.NodeClaims, claimOf("n1", func(c *karpv1.NodeClaim) {
				c.Labels[karpv1.LabelNodePool], c.Status.ProviderID = "general", w.Nodes[0].Spec.ProviderID
			}))
		}, []string{"gpu: a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newExtendedWorld()
			c.edit(w)
			if diff := cmp.Diff(c.want, w.plan(t)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
