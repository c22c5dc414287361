package v1

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// Labels that describe an instance type. All are well-known but LabelNodeClass.
const (
	LabelInstanceCategory            = Group + "/instance-category"
	LabelInstanceGeneration          = Group + "/instance-generation"
	LabelInstanceFamily              = Group + "/instance-family"
	LabelInstanceSize                = Group + "/instance-size"
	LabelInstanceCapabilityFlex      = Group + "/instance-capability-flex"
	LabelInstanceCPU                 = Group + "/instance-cpu"
	LabelInstanceCPUManufacturer     = Group + "/instance-cpu-manufacturer"
	LabelInstanceCPUClockSpeed       = Group + "/instance-cpu-sustained-clock-speed-mhz" // MHz
	LabelInstanceMemory              = Group + "/instance-memory"                        // MiB
	LabelInstanceEBSBandwidth        = Group + "/instance-ebs-bandwidth"                 // Mbps
	LabelInstanceNetworkBandwidth    = Group + "/instance-network-bandwidth"             // Mbps
	LabelInstanceHypervisor          = Group + "/instance-hypervisor"
	LabelInstanceEncryptionInTransit = Group + "/instance-encryption-in-transit-supported"
	LabelInstanceLocalNVMe           = Group + "/instance-local-nvme" // GB
	LabelInstanceGPUName             = Group + "/instance-gpu-name"
	LabelInstanceGPUManufacturer     = Group + "/instance-gpu-manufacturer"
	LabelInstanceGPUCount            = Group + "/instance-gpu-count"
	LabelInstanceGPUMemory           = Group + "/instance-gpu-memory" // MiB
	LabelInstanceAcceleratorName     = Group + "/instance-accelerator-name"
	LabelInstanceAcceleratorManuf    = Group + "/instance-accelerator-manufacturer"
	LabelInstanceAcceleratorCount    = Group + "/instance-accelerator-count"
	LabelInstanceTenancy             = Group + "/instance-tenancy"
	LabelReservationID               = Group + "/capacity-reservation-id"
	LabelReservationType             = Group + "/capacity-reservation-type"
	LabelReservationInterruptible    = Group + "/capacity-reservation-interruptible"
	LabelPlacementGroupID            = Group + "/placement-group-id"
	LabelPlacementGroupPartition     = Group + "/placement-group-partition"
	// LabelNodeClass is the EC2NodeClass of a NodeClaim or Node. A Node that carries it is managed.
	LabelNodeClass = Group + "/ec2nodeclass"
	// LabelZoneID is the zone's name that means the same zone in every account, for example euw1-az2.
	LabelZoneID = "topology.k8s.aws/zone-id"
	// LabelEBSZone sets how the EBS CSI driver spells the zone in volumes' node affinity.
	LabelEBSZone = "topology.ebs.csi.aws.com/zone"
)

// Values of LabelInstanceTenancy.
const (
	TenancyDefault   = "default"
	TenancyDedicated = "dedicated"
)

// Annotations.
const (
	AnnotationNodeClassHash        = Group + "/ec2nodeclass-hash"
	AnnotationNodeClassHashVersion = Group + "/ec2nodeclass-hash-version"
	// AnnotationInstanceProfileName is the profile a claim was launched with; it protects the profile from collection.
	AnnotationInstanceProfileName = Group + "/instance-profile-name"
	// AnnotationTagged is "true" on a claim with an instance that got its tags after registration.
	AnnotationTagged = Group + "/tagged"
	// AnnotationNVIDIAConsumableCapacity is, on an EC2NodeClass, how resource claims share an NVIDIA GPU: one of the
	// GPUSharing modes, or the number of claims that may share one. It is not part of the hash.
	AnnotationNVIDIAConsumableCapacity = Group + "/nvidia-consumable-capacity"
	AnnotationClusterNameTagged        = "compatibility." + Group + "/cluster-name-tagged"
)

// Values of AnnotationNVIDIAConsumableCapacity besides a number. Empty is GPUSharingDisabled.
const (
	GPUSharingDisabled  = "disabled"
	GPUSharingMemory    = "memory"
	GPUSharingUnlimited = "unlimited"
)

// DRA drivers with devices that instance types come with.
const (
	DRADriverNVIDIA = "gpu.nvidia.com"
	DRADriverEFA    = "dra.net"
)

// FinalizerTermination is on every EC2NodeClass until what was made for it in AWS is gone.
const FinalizerTermination = Group + "/termination"

// Tags on AWS resources.
const (
	// TagClusterUID has the UID of the cluster's kube-system namespace: which cluster the resource belongs to, even
	// when two clusters have one name.
	TagClusterUID  = "dovetail.sh/cluster-uid"
	TagClusterName = "eks:eks-cluster-name"
	TagNodePool    = "karpenter.sh/nodepool"
	TagNodeClaim   = "karpenter.sh/nodeclaim"
	TagNodeClass   = LabelNodeClass
	TagName        = "Name"
	TagRegion      = corev1.LabelTopologyRegion
	// TagClusterPrefix followed by the cluster's name, with value TagOwned, is the tag of resources that
	// live and die with the cluster.
	TagClusterPrefix = "kubernetes.io/cluster/"
	TagOwned         = "owned"
)

// Extended resources of EC2 instances.
const (
	ResourcePodENI      corev1.ResourceName = "vpc.amazonaws.com/pod-eni"
	ResourceEFA         corev1.ResourceName = "vpc.amazonaws.com/efa"
	ResourcePrivateIPv4 corev1.ResourceName = "vpc.amazonaws.com/PrivateIPv4Address"
	ResourceNVIDIAGPU   corev1.ResourceName = "nvidia.com/gpu"
	ResourceAMDGPU      corev1.ResourceName = "amd.com/gpu"
	ResourceNeuron      corev1.ResourceName = "aws.amazon.com/neuron"
	ResourceNeuronCore  corev1.ResourceName = "aws.amazon.com/neuroncore"
	ResourceHabanaGaudi corev1.ResourceName = "habana.ai/gaudi"
)

// Condition types of EC2NodeClass. All decide about Ready.
const (
	ConditionReady                = condition.Ready
	ConditionAMIsReady            = "AMIsReady"
	ConditionSubnetsReady         = "SubnetsReady"
	ConditionSecurityGroupsReady  = "SecurityGroupsReady"
	ConditionInstanceProfileReady = "InstanceProfileReady"
	ConditionPlacementGroupReady  = "PlacementGroupReady"
	ConditionValidationSucceeded  = "ValidationSucceeded"
	// ConditionCapacityReservationsReady exists only while capacity reservations are in use.
	ConditionCapacityReservationsReady = "CapacityReservationsReady"
	// ConditionAWSReachable is False while the controller waits for what launches need of AWS after its start, or launches use what AWS has
	// returned before. Ready does not depend on it; it is missing otherwise.
	ConditionAWSReachable = "AWSReachable"
	// ConditionNodesCanJoin is False, and Ready with it, while it is certain that no node of the class can join the
	// cluster; its reason is the cause. It is Unknown where that could not be checked, which stops nothing.
	ConditionNodesCanJoin = "NodesCanJoin"
	// ConditionDisruptionPaused is True while healthy nodes of a NodePool are not replaced by nodes of the class, because those fail soon
	// after they have become ready; it is missing otherwise. Ready does not depend on it: pending pods get nodes.
	ConditionDisruptionPaused = "DisruptionPaused"
)

// Resources returns those that instance types have by themselves, beside the core's.
func Resources() []corev1.ResourceName {
	return []corev1.ResourceName{
		ResourcePodENI, ResourceEFA, ResourcePrivateIPv4, ResourceNVIDIAGPU, ResourceAMDGPU, ResourceNeuron, ResourceNeuronCore,
		ResourceHabanaGaudi,
	}
}
