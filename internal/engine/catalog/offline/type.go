package offline

// Type is one EC2 instance type, with the fields of DescribeInstanceTypes.
//
// The zero value of a field means "unknown" or "none", as its comment states.
type Type struct {
	Name      string // m5.large
	VCPUs     int    // default vCPUs
	Cores     int    // default cores; VCPUs/Cores is 1 or 2
	MemoryMiB int64

	// Architectures in EC2's spelling and order: "i386", "x86_64", "arm64", "x86_64_mac", "arm64_mac".
	Architectures []string
	Manufacturer  string  // of the processor: "Intel", "AMD", "AWS", "Apple"; "" = unknown
	ClockGHz      float64 // sustained; 0 = unknown
	// Features of the processor: "nested-virtualization", "amd-sev-snp".
	Features []string

	Hypervisor        string   // "nitro", "xen"; "" on bare metal types
	Virtualization    []string // "hvm", "paravirtual"
	BareMetal         bool
	CurrentGeneration bool
	Burstable         bool
	NitroEnclaves     bool
	UsageClasses      []string // "on-demand", "spot", "capacity-block": those that any region offers
	Placement         []string // strategies of placement groups: "cluster", "partition", "spread"

	NetworkPerformance  string        // as EC2 formats it: "Up to 10 Gigabit"; "" = unknown
	NetworkCards        []NetworkCard // at least one, by index
	DefaultCard         int           // index of the card that the primary interface is on
	IPv4PerENI          int
	IPv6PerENI          int    // 0 = no IPv6
	ENASupport          string // "required", "supported", "unsupported"
	EFAMax              int    // EFA interfaces; 0 = none
	EncryptionInTransit bool

	GPUs                  []GPU
	InferenceAccelerators []Accelerator
	Neuron                []Accelerator
	FPGAs                 []Accelerator

	Disks        Disks
	EBSOptimized string // "default", "supported", "unsupported"
	EBSMaxMbps   int    // 0 = unknown
	// EBSAttachments counts how many volumes can be attached, the root volume included. EBSAttachmentLimit is whether
	// network interfaces and NVMe disks of the instance count against that ("shared") or not ("dedicated").
	EBSAttachments     int
	EBSAttachmentLimit string
}

// NetworkCard is one card and the interfaces that fit on it, the primary one included.
type NetworkCard struct {
	Index   int
	MaxENIs int
}

// GPU is one model of GPU of a type.
type GPU struct {
	Name         string // "A10G"
	Manufacturer string // "NVIDIA", "AMD", "Habana"
	Count        int    // whole ones; 0 if the type has a part of one
	Logical      int    // devices that a node shows
	MemoryMiB    int64  // of each
}

// Accelerator is one model of accelerator that is not a GPU.
type Accelerator struct {
	Name           string // "Inferentia2"
	Manufacturer   string // "AWS", "Xilinx"
	Count          int
	CoresPerDevice int   // Neuron cores; 0 = not a Neuron device
	MemoryMiB      int64 // of each; 0 = unknown
}

// Disks is the instance store: Count disks of SizeGB each. The zero value is none.
type Disks struct {
	TotalGB int64
	Count   int64
	SizeGB  int64
	Kind    string // "hdd", "ssd"
	NVMe    string // "required", "supported", "unsupported"
}
