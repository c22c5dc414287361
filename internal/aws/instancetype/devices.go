package instancetype

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// poolPrefixes holds what the names of the pools of a driver begin with; the name of the type follows.
var poolPrefixes = map[string]string{awsv1.DRADriverNVIDIA: "gpus-", awsv1.DRADriverEFA: "network-"}

const (
	// capacityMemory is the capacity that the driver of NVIDIA publishes for each GPU.
	capacityMemory resourcev1.QualifiedName = "memory"
	// capacityShares states what bounds the number of claims that share a GPU.
	capacityShares resourcev1.QualifiedName = "shares"
)

// Devices are the devices that DRA drivers publish on a node, by type and driver. They are shared: do not modify them.
type Devices map[string]map[string][]resourcev1.Device

// LoadDevices returns the devices of these drivers, as far as the offline catalog has them. An error is a bug in this
// program.
func LoadDevices(drivers []string) (Devices, error) {
	if len(drivers) == 0 {
		return nil, nil
	}
	all, err := offline.LoadDevices()
	if err != nil {
		return nil, err
	}
	out := Devices{}
	for name, byDriver := range all {
		out[name] = map[string][]resourcev1.Device{}
		for _, driver := range drivers {
			for _, d := range byDriver[driver] {
				device, err := deviceFromOffline(d)
				if err != nil {
					return nil, fmt.Errorf("device %s of %s: %w", d.Name, name, err)
				}
				out[name][driver] = append(out[name][driver], device)
			}
		}
	}
	return out, nil
}

// deviceFromOffline returns a device as its driver publishes it.
func deviceFromOffline(d offline.Device) (resourcev1.Device, error) {
	out := resourcev1.Device{Name: d.Name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
	for _, p := range d.Properties {
		name := resourcev1.QualifiedName(p.Name)
		if p.Kind == offline.DeviceCapacity {
			q, err := resource.ParseQuantity(p.Value)
			if err != nil {
				return out, fmt.Errorf("%s: %w", p.Name, err)
			}
			if out.Capacity == nil {
				out.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
			}
			out.Capacity[name] = resourcev1.DeviceCapacity{Value: q}
			continue
		}
		attribute, err := attributeFromOffline(p)
		if err != nil {
			return out, fmt.Errorf("%s: %w", p.Name, err)
		}
		out.Attributes[name] = attribute
	}
	return out, nil
}

func attributeFromOffline(p offline.DeviceProperty) (a resourcev1.DeviceAttribute, err error) {
	switch p.Kind {
	case offline.DeviceString:
		a.StringValue = &p.Value
	case offline.DeviceVersion:
		a.VersionValue = &p.Value
	case offline.DeviceUnknown:
		a.StringValue = new(catalog.UnknownValue)
	case offline.DeviceInteger:
		a.IntValue = new(int64)
		*a.IntValue, err = strconv.ParseInt(p.Value, 10, 64)
	case offline.DeviceBoolean:
		a.BoolValue = new(bool)
		*a.BoolValue, err = strconv.ParseBool(p.Value)
	default:
		err = fmt.Errorf("unknown kind %q", p.Kind)
	}
	return a, err
}

// deviceSlices returns what the DRA drivers of a node of the type will publish, one pool per driver, by its name.
func (r *Resolver) deviceSlices(m typeForClass) []resourcev1.ResourceSliceSpec {
	if m.class.Family.OS == corev1.Windows { // the drivers run on Linux only
		return nil
	}
	var out []resourcev1.ResourceSliceSpec
	for driver, devices := range r.devices[m.name] {
		switch driver {
		case awsv1.DRADriverNVIDIA:
			devices = shared(devices, m.class.GPUSharing)
		case awsv1.DRADriverEFA: // those that the class has no interface for do not exist
			devices = devices[:min(len(devices), int(m.efaInterfaces()))]
		}
		if len(devices) == 0 {
			continue
		}
		out = append(out, resourcev1.ResourceSliceSpec{
			Driver: driver, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: poolPrefixes[driver] + m.name, Generation: 1, ResourceSliceCount: 1},
		})
	}
	slices.SortFunc(out, func(a, b resourcev1.ResourceSliceSpec) int { return cmp.Compare(a.Driver, b.Driver) })
	return out
}

// shared returns GPUs as the driver publishes them if its sharing mode is the one of the node class. A mode that is not
// valid counts as none: the class is not Ready.
func shared(gpus []resourcev1.Device, mode string) []resourcev1.Device {
	count, err := strconv.ParseInt(mode, 10, 64)
	if byCount := err == nil && count >= 1; mode != awsv1.GPUSharingMemory && mode != awsv1.GPUSharingUnlimited && !byCount {
		return gpus
	}
	out := slices.Clone(gpus)
	for i := range out {
		memory, has := out[i].Capacity[capacityMemory]
		if !has {
			continue
		}
		yes := true
		out[i].AllowMultipleAllocations = &yes
		out[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			capacityMemory: {Value: memory.Value, RequestPolicy: memoryPolicy(memory.Value, mode)},
		}
		if count >= 1 {
			one := resource.MustParse("1")
			most := *resource.NewQuantity(count, resource.DecimalSI)
			out[i].Capacity[capacityShares] = resourcev1.DeviceCapacity{Value: most, RequestPolicy: policy(one, one, &most, one)}
		}
	}
	return out
}

// memoryPolicy returns how much memory of a shared GPU a claim gets: all of it unless it requests less with the mode memory,
// else none unless it requests some.
func memoryPolicy(all resource.Quantity, mode string) *resourcev1.CapacityRequestPolicy {
	step := resource.MustParse("1Mi")
	if mode == awsv1.GPUSharingMemory {
		return policy(all, step, &all, step)
	}
	return policy(resource.Quantity{}, resource.Quantity{}, nil, step)
}

func policy(preset, least resource.Quantity, most *resource.Quantity, step resource.Quantity) *resourcev1.CapacityRequestPolicy {
	return &resourcev1.CapacityRequestPolicy{
		Default: &preset, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &least, Max: most, Step: &step},
	}
}
