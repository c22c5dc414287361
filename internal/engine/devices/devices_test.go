package devices_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

var errNone = errors.New("no device is left")

// onePerType has one device on each node of type gpu, and none elsewhere.
type onePerType struct {
	free  bool
	taken map[string]bool
}

func (d onePerType) Claims(*corev1.Pod) ([]snapshot.DeviceClaim, error) { return nil, nil }
func (d onePerType) Free(map[types.UID]bool) snapshot.DeviceState       { return onePerType{free: true} }
func (d onePerType) Labels() []string                                   { return []string{Zone} }

func (d onePerType) ExtendedResources() []corev1.ResourceName { return nil }

func (d onePerType) UsableOn(*resourcev1.DeviceRequestAllocationResult) (*corev1.NodeSelector, bool) {
	return nil, false
}

func (d onePerType) Find(_ []snapshot.DeviceClaim, at snapshot.DeviceNode) (snapshot.DeviceAllocation, error) {
	if at.Type == nil || at.Type.Name != "gpu" || d.taken[at.Node] {
		return snapshot.DeviceAllocation{}, errNone
	}
	return snapshot.DeviceAllocation{Drivers: []string{"gpu.example.com"}}, nil
}

func (d onePerType) With([]snapshot.DeviceClaim, ...snapshot.DeviceAllocation) snapshot.DeviceState {
	return onePerType{free: true, taken: map[string]bool{"node": true}}
}

func TestDevicesOfNewNodes(t *testing.T) {
	gpu, plain := Type("gpu", 2, "cpu", "4", "memory", "8Gi"), Type("plain", 1, "cpu", "4", "memory", "8Gi")
	gpu.DeviceSlices = []resourcev1.ResourceSliceSpec{{Driver: "gpu.example.com"}}
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{plain, gpu})})
	s.Devices = onePerType{}
	var slots reservation.Slots
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), Slots: &slots, Steps: new(int),
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	cands := models.All()[0].Candidates(models.All()[0].Requirements())
	claims := []snapshot.DeviceClaim{{Name: "gpu", Own: true}}
	d := devices.New(s)
	d.Begin(nil)
	options, err := d.Options(claims, 0, cands)
	if len(options) != 1 || err == nil {
		t.Fatalf("%d options, error %v", len(options), err)
	}
	with := cands.NarrowBy(options[0].Requirements())
	for _, cand := range with.List() {
		if with.TypeOf(cand).Name != "gpu" {
			t.Errorf("the node may become a %s", with.TypeOf(cand).Name)
		}
	}
	if got := devices.Drivers([]*devices.Option{&options[0]}, []*catalog.InstanceType{gpu}); len(got) != 1 {
		t.Errorf("drivers of a node of type gpu: %v", got)
	}
	if got := devices.Drivers([]*devices.Option{&options[0]}, []*catalog.InstanceType{gpu, plain}); len(got) != 0 {
		t.Errorf("drivers of a node that may have no device: %v", got)
	}
}

func TestDevicesOfExistingNodes(t *testing.T) {
	gpu := Type("gpu", 2, "cpu", "4", "memory", "8Gi")
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{gpu})})
	s.Devices = onePerType{}
	inFlight := Node("", "general", func(n *snapshot.Node) { n.Claim, n.Initialized = "node", false })
	inFlight.Name = "node"
	inFlight.Labels = map[string]string{Zone: "z1", corev1.LabelInstanceTypeStable: "gpu"}
	d := devices.New(s)
	d.Begin(nil)
	at := d.Node(&inFlight, s.Labels.FromNode(inFlight.Labels))
	if at.Type != gpu || at.Labels[Zone] != "z1" {
		t.Fatalf("the node in flight is %+v", at)
	}
	claims := []snapshot.DeviceClaim{{Name: "gpu", Own: true}}
	found, err := d.Find(claims, at)
	if err != nil {
		t.Fatal(err)
	}
	d.Take(claims, found)
	if _, err := d.Find(claims, at); !errors.Is(err, errNone) {
		t.Errorf("the device is found twice: %v", err)
	}
	d.Begin(nil)
	if _, err := d.Find(claims, at); err != nil {
		t.Errorf("a new run has no device: %v", err)
	}
	if devices.Shared(claims) || !devices.Shared([]snapshot.DeviceClaim{{Name: "gpu"}}) {
		t.Error("a claim is shared unless it is the pod's own")
	}
}
