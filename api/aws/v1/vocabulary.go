package v1

import (
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Vocabulary is the core's joined with what EC2 adds: all that is known about label keys on EKS.
func Vocabulary() karpv1.Vocabulary {
	v := karpv1.CoreVocabulary()
	for _, key := range ownLabels() {
		v.WellKnown[key] = true
	}
	v.WellKnown[LabelZoneID] = true
	v.RestrictedDomains = append(v.RestrictedDomains, Group)
	v.Normalized[LabelEBSZone] = corev1.LabelTopologyZone
	v.ReservationID = LabelReservationID
	// The cloud controller manager sets these: the checksum of the cluster's tags, and the network nodes that an instance is
	// below, where EC2 reports them.
	v.SetOnJoin = []string{"k8s.io/cloud-provider-aws"}
	v.MaySetOnJoin = []string{
		"topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2", "topology.k8s.aws/network-node-layer-3",
		"topology.k8s.aws/network-node-layer-4", "topology.k8s.aws/ultraserver-id",
	}
	v.KnownValues[LabelInstanceTenancy] = []string{TenancyDedicated, TenancyDefault}
	return v
}

// LabelsAllowedInRequirements are the keys in the domain karpenter.k8s.aws that the API server lets users
// constrain in NodePools and NodeClaims. It lets the node class's through too, which is not well-known and
// so is refused afterwards.
func LabelsAllowedInRequirements() []string {
	return append(ownLabels(), LabelNodeClass)
}

// LabelsAllowedInOverlays is the same for NodeOverlays: without what depends on more than the instance type.
func LabelsAllowedInOverlays() []string {
	return append(instanceTypeLabels(), LabelNodeClass)
}

// ownLabels are the well-known keys in the domain karpenter.k8s.aws.
func ownLabels() []string {
	return append(instanceTypeLabels(),
		LabelInstanceTenancy,
		LabelReservationID,
		LabelReservationType,
		LabelReservationInterruptible,
		LabelPlacementGroupID,
		LabelPlacementGroupPartition,
	)
}

// instanceTypeLabels follow from the instance type alone.
func instanceTypeLabels() []string {
	return []string{
		LabelInstanceCategory,
		LabelInstanceGeneration,
		LabelInstanceFamily,
		LabelInstanceSize,
		LabelInstanceCapabilityFlex,
		LabelInstanceCPU,
		LabelInstanceCPUManufacturer,
		LabelInstanceCPUClockSpeed,
		LabelInstanceMemory,
		LabelInstanceEBSBandwidth,
		LabelInstanceNetworkBandwidth,
		LabelInstanceHypervisor,
		LabelInstanceEncryptionInTransit,
		LabelInstanceLocalNVMe,
		LabelInstanceGPUName,
		LabelInstanceGPUManufacturer,
		LabelInstanceGPUCount,
		LabelInstanceGPUMemory,
		LabelInstanceAcceleratorName,
		LabelInstanceAcceleratorManuf,
		LabelInstanceAcceleratorCount,
	}
}
