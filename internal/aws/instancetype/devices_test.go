package instancetype

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// devicesOf returns the device slices of a type for a class, with these drivers.
func devicesOf(t *testing.T, name string, class Class, drivers ...string) []resourcev1.ResourceSliceSpec {
	t.Helper()
	r, err := New(Settings{Region: "us-east-1", DRADrivers: drivers})
	if err != nil {
		t.Fatal(err)
	}
	data, err := offline.Load("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	typ, ok := data.Type(name)
	if !ok {
		t.Fatalf("no type %s", name)
	}
	all, err := r.ResolveAll([]ec2types.InstanceTypeInfo{FromOffline(typ)}, class, Market{
		Zones: []string{"us-east-1a"}, Offered: func(string, string) bool { return true },
		OnDemand: func(string) (float64, bool) { return 1, true }, Spot: func(string, string) (float64, bool) { return 0, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	return all[0].DeviceSlices
}

// describe lists the devices of slices: driver, pool, device and what selects it.
func describe(all []resourcev1.ResourceSliceSpec) (out []string) {
	for _, s := range all {
		for _, d := range s.Devices {
			var fields []string
			for name, a := range d.Attributes {
				switch {
				case a.StringValue != nil:
					fields = append(fields, fmt.Sprintf("%s=%q", name, *a.StringValue))
				case a.VersionValue != nil:
					fields = append(fields, fmt.Sprintf("%s=v%s", name, *a.VersionValue))
				case a.BoolValue != nil:
					fields = append(fields, fmt.Sprintf("%s=%v", name, *a.BoolValue))
				case a.IntValue != nil:
					fields = append(fields, fmt.Sprintf("%s=%d", name, *a.IntValue))
				}
			}
			for name, c := range d.Capacity {
				fields = append(fields, fmt.Sprintf("%s=%s", name, c.Value.String()))
			}
			slices.Sort(fields)
			out = append(out, fmt.Sprintf("%s %s %s: %s", s.Driver, s.Pool.Name, d.Name, strings.Join(fields, " ")))
		}
	}
	return out
}

func TestDevicesOfTypes(t *testing.T) {
	linux := Class{Family: FamilyOf(awsv1.AMIFamilyAL2023)}
	windows := Class{Family: FamilyOf(awsv1.AMIFamilyWindows2022)}
	withInterfaces := linux
	withInterfaces.NetworkInterfaces = []awsv1.NetworkInterface{{InterfaceType: awsv1.InterfaceTypeInterface}}
	const t4 = `architecture="Turing" brand="Nvidia" cudaComputeCapability=v7.5.0 cudaDriverVersion="~" driverVersion="~" memory=15Gi ` +
		`productName="Tesla T4" resource.kubernetes.io/pcieRoot="pci0000:00" type="gpu"`
	const efa = `dra.net network-g4dn.8xlarge efa-0: dra.net/pciDevice="Elastic Fabric Adapter (EFA)" dra.net/pciSubsystem="efa0" ` +
		`dra.net/pciVendor="Amazon.com, Inc." dra.net/rdma=true resource.kubernetes.io/pcieRoot="pci0000:00"`
	const gpu = "gpu.nvidia.com gpus-g4dn.8xlarge gpu-0: " + t4
	for _, tt := range []struct {
		name, typ string
		class     Class
		drivers   []string
		want      []string
	}{
		{"no gate", "g4dn.8xlarge", linux, nil, nil},
		{"GPUs", "g4dn.8xlarge", linux, []string{awsv1.DRADriverNVIDIA}, []string{gpu}},
		{"EFA", "g4dn.8xlarge", linux, []string{awsv1.DRADriverEFA}, []string{efa}},
		{"both", "g4dn.8xlarge", linux, []string{awsv1.DRADriverNVIDIA, awsv1.DRADriverEFA}, []string{efa, gpu}},
		{"the class attaches no EFA", "g4dn.8xlarge", withInterfaces, []string{awsv1.DRADriverEFA}, nil},
		{"Windows, which has no such drivers", "g4dn.8xlarge", windows, []string{awsv1.DRADriverNVIDIA}, nil},
		{"a type without devices", "m5.large", linux, []string{awsv1.DRADriverNVIDIA, awsv1.DRADriverEFA}, nil},
		{"one GPU of a type that is not listed with EFA", "g4dn.xlarge", linux, []string{awsv1.DRADriverEFA}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, describe(devicesOf(t, tt.typ, tt.class, tt.drivers...))); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// The modes of the annotation nvidia-consumable-capacity, on a GPU with 15 GiB.
func TestGPUSharingModes(t *testing.T) {
	for _, tt := range []struct{ mode, want string }{
		{"", "exclusive memory=15Gi"},
		{"disabled", "exclusive memory=15Gi"},
		{"memory", "shared memory=15Gi default 15Gi from 1Mi to 15Gi by 1Mi"},
		{"unlimited", "shared memory=15Gi default 0 from 0 by 1Mi"},
		{"4", "shared memory=15Gi default 0 from 0 by 1Mi shares=4 default 1 from 1 to 4 by 1"},
		{"0", "exclusive memory=15Gi"}, // the class is not Ready
	} {
		t.Run(tt.mode, func(t *testing.T) {
			class, err := ClassOf(withSharing(tt.mode), awsv1.AMIFamilyAL2023)
			if err != nil {
				t.Fatal(err)
			}
			device := devicesOf(t, "g4dn.xlarge", class, awsv1.DRADriverNVIDIA)[0].Devices[0]
			got := "exclusive"
			if device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations {
				got = "shared"
			}
			for _, name := range []resourcev1.QualifiedName{"memory", "shares"} {
				c, has := device.Capacity[name]
				if !has {
					continue
				}
				got += fmt.Sprintf(" %s=%s", name, c.Value.String())
				if p := c.RequestPolicy; p != nil {
					got += fmt.Sprintf(" default %s from %s", p.Default.String(), p.ValidRange.Min.String())
					if p.ValidRange.Max != nil {
						got += " to " + p.ValidRange.Max.String()
					}
					got += " by " + p.ValidRange.Step.String()
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func withSharing(mode string) *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{}
	if mode != "" {
		c.Annotations = map[string]string{awsv1.AnnotationNVIDIAConsumableCapacity: mode}
	}
	return c
}

// Devices of the catalog are those of types that EC2 describes, as many as EC2 states.
func TestDevicesAgreeWithEC2(t *testing.T) {
	devices, err := offline.LoadDevices()
	if err != nil {
		t.Fatal(err)
	}
	data, err := offline.Load("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for name, byDriver := range devices {
		typ, ok := data.Type(name)
		if !ok {
			t.Errorf("%s is not a type", name)
			continue
		}
		m := typeForClass{InstanceTypeInfo: FromOffline(typ), name: name}
		for driver, list := range byDriver {
			types[driver]++
			want := m.gpus("NVIDIA")
			if driver == awsv1.DRADriverEFA {
				want = m.efaMaximum()
			}
			if int64(len(list)) != want {
				t.Errorf("%s has %d devices of %s, EC2 says %d", name, len(list), driver, want)
			}
		}
	}
	if types[awsv1.DRADriverNVIDIA] != 53 || types[awsv1.DRADriverEFA] != 29 {
		t.Errorf("%v types, want 53 with NVIDIA GPUs and 29 with EFA", types)
	}
}
