package nodeclaim

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// launched returns what is merged into a claim that has its instance: labels, annotations and resources. hash is that of the node
// class.
func launched(i cloudprovider.Instance, o launch.Request, hash string) cloudprovider.Launched {
	out := cloudprovider.Launched{
		ProviderID: i.ProviderID,
		ImageID:    i.ImageID,
		Labels:     placementLabels(instanceLabels(i, o.Class, o.Types), i, o.Group),
		Annotations: map[string]string{
			awsv1.AnnotationNodeClassHash:        hash,
			awsv1.AnnotationNodeClassHashVersion: awsv1.NodeClassHashVersion,
			awsv1.AnnotationInstanceProfileName:  o.Class.Status.InstanceProfile,
		},
	}
	if t := offerings.Named(o.Types, i.Type); t != nil {
		efa := launch.EFAs(o.Claim, o.Class, t.Capacity) > 0
		out.Capacity = resourcesOf(t.Capacity, efa)
		out.Allocatable = resourcesOf(t.Allocatable, efa)
	}
	return out
}

// perOffering are labels with many values per instance type, and one per instance.
var perOffering = []string{
	corev1.LabelTopologyZone, awsv1.LabelZoneID, karpv1.LabelCapacityType, awsv1.LabelInstanceTenancy,
	awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible,
	awsv1.LabelPlacementGroupID, awsv1.LabelPlacementGroupPartition,
}

// instanceLabels are the labels that follow from the instance and its type.
func instanceLabels(i cloudprovider.Instance, class *awsv1.EC2NodeClass, types []*catalog.InstanceType) map[string]string {
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: i.Type,
		corev1.LabelTopologyZone:       i.Zone,
		karpv1.LabelCapacityType:       i.CapacityType,
		awsv1.LabelInstanceTenancy:     i.Tenancy,
	}
	if r := i.Reservation; r.ID != "" {
		labels[awsv1.LabelReservationID] = r.ID
		labels[awsv1.LabelReservationType] = r.Type
		labels[awsv1.LabelReservationInterruptible] = strconv.FormatBool(r.Interruptible)
	}
	if t := offerings.Named(types, i.Type); t != nil {
		for _, r := range t.Requirements.All() {
			if value, ok := r.Single(); ok && !slices.Contains(perOffering, r.Key()) {
				labels[r.Key()] = value
			}
		}
	}
	for _, s := range class.Status.Subnets {
		if s.Zone == i.Zone && s.ZoneID != "" {
			labels[awsv1.LabelZoneID] = s.ZoneID
			break
		}
	}
	return labels
}

// placementLabels adds where in its placement group an instance is. The partition that EC2 has chosen is not known at first: the
// label is empty then, until the node registers.
func placementLabels(labels map[string]string, i cloudprovider.Instance, group placement.Group) map[string]string {
	if i.Placement.GroupID == "" {
		return labels
	}
	labels[awsv1.LabelPlacementGroupID] = i.Placement.GroupID
	switch {
	case i.Placement.Partition > 0:
		labels[awsv1.LabelPlacementGroupPartition] = strconv.Itoa(i.Placement.Partition)
	case i.Placement.GroupID == group.ID && group.Strategy == placement.Partition:
		labels[awsv1.LabelPlacementGroupPartition] = ""
	}
	return labels
}

// resourcesOf drops resources of which there is none, and EFA where no such interface is attached.
func resourcesOf(list corev1.ResourceList, efa bool) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if !q.IsZero() && (efa || name != awsv1.ResourceEFA) {
			out[name] = q
		}
	}
	return out
}
