package ec2

import (
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type describeInstanceTypesInput struct {
	listInput
	InstanceTypes              []string `query:"InstanceType"`
	IncludeUnsupportedInRegion bool     `query:"IncludeUnsupportedInRegion"`
}

type describeInstanceTypesOutput struct {
	Types []*typeInfo `xml:"instanceTypeSet>item"`
	Next  *string     `xml:"nextToken"`
}

// maxTypesPerCall is how many types a call may name.
const maxTypesPerCall = 100

func (mk *market) describeInstanceTypes(_ *protocol.Request, in *describeInstanceTypesInput) (*describeInstanceTypesOutput, error) {
	if in.IncludeUnsupportedInRegion {
		return nil, protocol.Errorf("UnsupportedOperation", "The simulator does not know types that the region does not sell")
	}
	machines := mk.types
	if len(in.InstanceTypes) > 0 {
		switch {
		case in.MaxResults != nil:
			return nil, combination("The parameter instanceTypesSet cannot be used with the parameter maxResults")
		case len(in.InstanceTypes) > maxTypesPerCall:
			return nil, invalidValue("The request must contain no more than %d instance types", maxTypesPerCall)
		}
		var err error
		if machines, err = mk.named(in.InstanceTypes); err != nil {
			return nil, err
		}
	}
	p, err := typeNoun().list(in.listInput, nil, machines)
	if err != nil {
		return nil, err
	}
	out := &describeInstanceTypesOutput{Next: p.next}
	for _, m := range p.items {
		out.Types = append(out.Types, infoOf(m))
	}
	return out, nil
}

// named returns the instance types with these names, each once, in the order of names.
func (m *market) named(names []string) ([]*instanceType, error) {
	wanted := map[string]bool{}
	var unknown []string
	for _, name := range names {
		if m.byName[name] == nil {
			unknown = append(unknown, name)
		}
		wanted[name] = true
	}
	if len(unknown) > 0 {
		return nil, protocol.Errorf(
			"InvalidInstanceType",
			"The following supplied instance types do not exist: [%s]",
			strings.Join(unknown, ", "),
		)
	}
	var found []*instanceType
	for _, t := range m.types {
		if wanted[t.Name] {
			found = append(found, t)
		}
	}
	return found, nil
}

// typeNoun knows the filters of DescribeInstanceTypes on the data that the catalog has.
func typeNoun() resourceKind[*instanceType] {
	number := func(get func(*instanceType) int64) func(*instanceType) []string {
		return func(m *instanceType) []string { return []string{strconv.FormatInt(get(m), 10)} }
	}
	info := func(get func(*typeInfo) []string) func(*instanceType) []string {
		return func(m *instanceType) []string { return get(infoOf(m)) }
	}
	return resourceKind[*instanceType]{
		id: func(m *instanceType) string { return m.Name }, minResults: 5, maxResults: 100,
		properties: properties[*instanceType]{
			"auto-recovery-supported":                               flag(func(m *instanceType) bool { return infoOf(m).AutoRecovery }),
			"bare-metal":                                            flag(func(m *instanceType) bool { return m.BareMetal }),
			"burstable-performance-supported":                       flag(func(m *instanceType) bool { return m.Burstable }),
			"current-generation":                                    flag(func(m *instanceType) bool { return m.CurrentGeneration }),
			"dedicated-hosts-supported":                             flag(func(m *instanceType) bool { return infoOf(m).DedicatedHosts }),
			"ebs-info.ebs-optimized-support":                        one(func(m *instanceType) string { return m.EBSOptimized }),
			"ebs-info.ebs-optimized-info.maximum-bandwidth-in-mbps": number(func(m *instanceType) int64 { return int64(m.EBSMaxMbps) }),
			"ebs-info.encryption-support":                           one(func(m *instanceType) string { return infoOf(m).EBS.Encryption }),
			"ebs-info.nvme-support":                                 one(func(m *instanceType) string { return infoOf(m).EBS.NVMe }),
			"free-tier-eligible":                                    flag(func(m *instanceType) bool { return infoOf(m).FreeTier }),
			"instance-storage-info.encryption-support": one(func(m *instanceType) string {
				if s := infoOf(m).Storage; s != nil {
					return s.Encryption
				}
				return ""
			}),
			"nitro-tpm-support":                            one(func(m *instanceType) string { return infoOf(m).NitroTPM }),
			"placement-group-info.supported-strategies":    info(func(i *typeInfo) []string { return i.PlacementGroups.Strategies }),
			"processor-info.manufacturer":                  one(func(m *instanceType) string { return m.Manufacturer }),
			"hibernation-supported":                        flag(func(m *instanceType) bool { return infoOf(m).Hibernation }),
			"hypervisor":                                   one(func(m *instanceType) string { return m.Hypervisor }),
			"instance-storage-info.disk.count":             number(func(m *instanceType) int64 { return m.Disks.Count }),
			"instance-storage-info.disk.size-in-gb":        number(func(m *instanceType) int64 { return m.Disks.SizeGB }),
			"instance-storage-info.disk.type":              one(func(m *instanceType) string { return m.Disks.Kind }),
			"instance-storage-info.nvme-support":           one(func(m *instanceType) string { return m.Disks.NVMe }),
			"instance-storage-info.total-size-in-gb":       number(func(m *instanceType) int64 { return m.Disks.TotalGB }),
			"instance-storage-supported":                   flag(func(m *instanceType) bool { return m.Disks.Count > 0 }),
			"instance-type":                                one(func(m *instanceType) string { return m.Name }),
			"memory-info.size-in-mib":                      number(func(m *instanceType) int64 { return m.MemoryMiB }),
			"network-info.efa-info.maximum-efa-interfaces": number(func(m *instanceType) int64 { return int64(m.EFAMax) }),
			"network-info.efa-supported":                   flag(func(m *instanceType) bool { return m.EFAMax > 0 }),
			"network-info.ena-support":                     one(func(m *instanceType) string { return m.ENASupport }),
			"network-info.encryption-in-transit-supported": flag(func(m *instanceType) bool { return m.EncryptionInTransit }),
			"network-info.ipv4-addresses-per-interface":    number(func(m *instanceType) int64 { return int64(m.IPv4PerENI) }),
			"network-info.ipv6-addresses-per-interface":    number(func(m *instanceType) int64 { return int64(m.IPv6PerENI) }),
			"network-info.ipv6-supported":                  flag(func(m *instanceType) bool { return m.IPv6PerENI > 0 }),
			"network-info.maximum-network-cards":           number(func(m *instanceType) int64 { return int64(len(m.NetworkCards)) }),
			"network-info.maximum-network-interfaces":      number(func(m *instanceType) int64 { return int64(interfaceLimit(m.Type)) }),
			"network-info.network-performance":             one(func(m *instanceType) string { return m.NetworkPerformance }),
			"nitro-enclaves-support":                       one(func(m *instanceType) string { return infoOf(m).NitroEnclaves }),
			"processor-info.supported-architecture":        func(m *instanceType) []string { return m.Architectures },
			"processor-info.supported-features":            processorFeatures,
			"processor-info.sustained-clock-speed-in-ghz": one(func(m *instanceType) string {
				return strconv.FormatFloat(m.ClockGHz, 'f', -1, 64)
			}),
			"supported-boot-mode":           info(func(i *typeInfo) []string { return i.BootModes }),
			"supported-root-device-type":    info(func(i *typeInfo) []string { return i.RootDevices }),
			"supported-usage-class":         func(m *instanceType) []string { return m.UsageClasses },
			"supported-virtualization-type": info(func(i *typeInfo) []string { return i.Virtualization }),
			"vcpu-info.default-cores":       number(func(m *instanceType) int64 { return int64(m.Cores) }),
			"vcpu-info.default-threads-per-core": number(func(m *instanceType) int64 {
				return int64(threadsPerCore(m.Type))
			}),
			"vcpu-info.default-vcpus": number(func(m *instanceType) int64 { return int64(m.VCPUs) }),
		},
	}
}

func threadsPerCore(t offline.Type) int { return max(1, t.VCPUs/max(1, t.Cores)) }

// interfaceLimit is how many network interfaces fit on all cards of a type.
func interfaceLimit(t offline.Type) int {
	total := 0
	for _, card := range t.NetworkCards {
		total += card.MaxENIs
	}
	return total
}
