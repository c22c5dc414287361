package v1

import "k8s.io/apimachinery/pkg/api/resource"

// MetadataOptions configure the instance metadata service.
type MetadataOptions struct {
	// HTTPEndpoint turns the service on or off.
	// +kubebuilder:default=enabled
	// +kubebuilder:validation:Enum:={enabled,disabled}
	// +optional
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// HTTPProtocolIPv6 turns its IPv6 endpoint on or off.
	// +kubebuilder:default=disabled
	// +kubebuilder:validation:Enum:={enabled,disabled}
	// +optional
	HTTPProtocolIPv6 string `json:"httpProtocolIPv6,omitempty"`
	// HTTPPutResponseHopLimit states how many hops a token may travel.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum:=1
	// +kubebuilder:validation:Maximum:=64
	// +optional
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	// HTTPTokens is whether tokens are required.
	// +kubebuilder:default=required
	// +kubebuilder:validation:Enum:={required,optional}
	// +optional
	HTTPTokens string `json:"httpTokens,omitempty"`
}

// BlockDeviceMapping is a disk.
type BlockDeviceMapping struct {
	// DeviceName, for example /dev/xvda.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// EBS describes the volume.
	// +kubebuilder:validation:XValidation:message="snapshotID or volumeSize must be given",rule="has(self.snapshotID) || has(self.volumeSize)"
	// +kubebuilder:validation:XValidation:message="snapshotID must be given with volumeInitializationRate",rule="!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')"
	// +optional
	EBS *BlockDevice `json:"ebs,omitempty"`
	// RootVolume marks the device that holds the kubelet's directory: ephemeral storage has its size.
	// +optional
	RootVolume bool `json:"rootVolume,omitempty"`
}

// BlockDevice is an EBS volume.
type BlockDevice struct {
	// +optional
	DeleteOnTermination *bool `json:"deleteOnTermination,omitempty"`
	// +optional
	Encrypted *bool `json:"encrypted,omitempty"`
	// IOPS; 0 leaves it to EC2.
	// +optional
	IOPS *int64 `json:"iops,omitempty"`
	// KMSKeyID is the ID, alias or ARN of the key to encrypt with.
	// +optional
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// SnapshotID is the snapshot to start from.
	// +optional
	SnapshotID string `json:"snapshotID,omitempty"`
	// Throughput in MiB/s; 0 leaves it to EC2.
	// +optional
	Throughput *int64 `json:"throughput,omitempty"`
	// VolumeInitializationRate states how fast a volume is filled from its snapshot, in MiB/s.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=300
	// +optional
	VolumeInitializationRate *int32 `json:"volumeInitializationRate,omitempty"`
	// VolumeSize as G, Gi, T or Ti; EC2 gets it in GiB, rounded up.
	// +kubebuilder:validation:Pattern:="^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type:=string
	// +optional
	VolumeSize *resource.Quantity `json:"volumeSize,omitempty" hash:"string"`
	// +kubebuilder:validation:Enum:={standard,io1,io2,gp2,sc1,st1,gp3}
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
}

// NetworkInterface is one place in a layout of network interfaces.
type NetworkInterface struct {
	// +kubebuilder:validation:Minimum:=0
	// +required
	NetworkCardIndex int32 `json:"networkCardIndex"`
	// +kubebuilder:validation:Minimum:=0
	// +required
	DeviceIndex int32 `json:"deviceIndex"`
	// +kubebuilder:validation:Enum:={interface,efa-only}
	// +required
	InterfaceType string `json:"interfaceType"`
}

// Values of NetworkInterface.InterfaceType.
const (
	InterfaceTypeInterface = "interface"
	InterfaceTypeEFAOnly   = "efa-only"
)

// ConnectionTracking sets idle timeouts, in seconds.
// +kubebuilder:validation:XValidation:message="connectionTracking needs at least one timeout",rule="has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)"
type ConnectionTracking struct {
	// TCPEstablishedTimeout is for established TCP connections.
	// +kubebuilder:validation:Minimum:=60
	// +kubebuilder:validation:Maximum:=432000
	// +optional
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout,omitempty"`
	// UDPStreamTimeout is for UDP flows with more than one request and answer.
	// +kubebuilder:validation:Minimum:=60
	// +kubebuilder:validation:Maximum:=180
	// +optional
	UDPStreamTimeout *int32 `json:"udpStreamTimeout,omitempty"`
	// UDPTimeout is for other UDP flows.
	// +kubebuilder:validation:Minimum:=30
	// +kubebuilder:validation:Maximum:=60
	// +optional
	UDPTimeout *int32 `json:"udpTimeout,omitempty"`
}

// EnclaveOptions are about Nitro Enclaves.
type EnclaveOptions struct {
	// Enabled lets instances create enclaves. Only instance types that support Nitro Enclaves are launched then.
	// +required
	Enabled bool `json:"enabled"`
}

// CPUOptions choose among instance types by features of their CPU.
type CPUOptions struct {
	// NestedVirtualization, when enabled, keeps only types that can run virtual machines.
	// +kubebuilder:validation:Enum:={enabled,disabled}
	// +optional
	NestedVirtualization string `json:"nestedVirtualization,omitempty"`
}
