package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
)

// DRA drivers that nodes may have.
const (
	NVIDIADriver = "gpu.nvidia.com"
	EFADriver    = "dra.net"
)

// Versions that the driver of NVIDIA publishes.
const (
	nvidiaVersion = "580.65.6"
	cudaVersion   = "13.0.0"
)

// draRetry is the time between two attempts of a driver to publish its devices.
const draRetry = 200 * time.Millisecond

// InstallDRADrivers lets instances that boot from now on run these DRA drivers, and no others. A driver publishes the
// devices of its node after kubelet has registered it.
func (f *Simulator) InstallDRADrivers(names ...string) error {
	devices, err := offline.LoadDevices()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draDrivers, f.draDevices = slices.Clone(names), devices
	return nil
}

// RemoveDevicePlugins lets instances that boot from now on run no device plugins.
func (f *Simulator) RemoveDevicePlugins() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noPlugins = true
}

func (f *Simulator) withoutPlugins() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noPlugins
}

// devicesOf are the devices of an instance type, by installed driver.
func (f *Simulator) devicesOf(instanceType string) map[string][]offline.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string][]offline.Device{}
	for _, driver := range f.draDrivers {
		out[driver] = f.draDevices[instanceType][driver]
	}
	return out
}

// runDRADrivers publishes the devices of the instance, until that is done or ctx is done.
func (m host) runDRADrivers(ctx context.Context, config kubelet.Config) {
	for driver, devices := range m.simulator.devicesOf(m.instance.Type) {
		if driver == EFADriver { // those of its interfaces
			devices = devices[:min(len(devices), m.instance.EFAs)]
		}
		if len(devices) == 0 {
			continue
		}
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: config.Name + "-" + driver}}
		slice.Spec = resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &config.Name,
			Pool: resourcev1.ResourcePool{Name: config.Name, Generation: 1, ResourceSliceCount: 1},
		}
		for i, d := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, m.published(d, i))
		}
		_ = wait.PollUntilContextCancel(ctx, draRetry, true, func(ctx context.Context) (bool, error) {
			node, err := config.Client.CoreV1().Nodes().Get(ctx, config.Name, metav1.GetOptions{})
			if err != nil {
				return false, nil // not registered yet
			}
			slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
			_, err = config.Client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				config.Log('E', fmt.Sprintf(`"Failed to publish resources" err=%q driver=%q`, err.Error(), driver))
				return false, nil
			}
			return true, nil
		})
	}
}

// published is a device with what only the driver on the node knows of it.
func (m host) published(d offline.Device, number int) resourcev1.Device {
	out := resourcev1.Device{Name: d.Name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
	text := func(name, value string) {
		out.Attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
	}
	text("uuid", fmt.Sprintf("GPU-%s-%d", m.instance.ID, number))
	for _, p := range d.Properties {
		name, attribute := resourcev1.QualifiedName(p.Name), resourcev1.DeviceAttribute{}
		switch p.Kind {
		case offline.DeviceCapacity:
			if out.Capacity == nil {
				out.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
			}
			out.Capacity[name] = resourcev1.DeviceCapacity{Value: resource.MustParse(p.Value)}
			continue
		case offline.DeviceInteger:
			n, _ := strconv.ParseInt(p.Value, 10, 64) // the catalog's own test parses it
			attribute.IntValue = &n
		case offline.DeviceBoolean:
			attribute.BoolValue = new(p.Value == "true")
		case offline.DeviceVersion:
			attribute.VersionValue = &p.Value
		case offline.DeviceUnknown:
			version := map[string]string{"driverVersion": nvidiaVersion, "cudaDriverVersion": cudaVersion}[p.Name]
			attribute.VersionValue = &version
		case offline.DeviceString:
			attribute.StringValue = &p.Value
		}
		out.Attributes[name] = attribute
	}
	return out
}
