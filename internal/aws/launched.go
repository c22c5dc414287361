package aws

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// launched is what is merged into a claim that has its instance.
func launched(i cloudprovider.Instance, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, types []*catalog.InstanceType, group placement.Group, cluster bootstrap.Cluster) (cloudprovider.Launched, error) {
	hash, err := nodeClassHash(class, cluster)
	if err != nil {
		return cloudprovider.Launched{}, fmt.Errorf("hash node class %s: %w", class.Name, err)
	}
	out := cloudprovider.Launched{
		ProviderID: i.ProviderID,
		ImageID:    i.ImageID,
		Labels:     placedLabels(instanceLabels(i, class, types), i, group),
		Annotations: map[string]string{
			awsv1.AnnotationNodeClassHash:        hash,
			awsv1.AnnotationNodeClassHashVersion: awsv1.NodeClassHashVersion,
			awsv1.AnnotationInstanceProfileName:  class.Status.InstanceProfile,
		},
	}
	if t := typeOf(i, types); t != nil {
		efa := launch.EFAs(claim, class, t.Capacity) > 0
		out.Capacity = resourcesOf(t.Capacity, efa)
		out.Allocatable = resourcesOf(t.Allocatable, efa)
	}
	return out, nil
}

func typeOf(i cloudprovider.Instance, types []*catalog.InstanceType) *catalog.InstanceType {
	n := slices.IndexFunc(types, func(t *catalog.InstanceType) bool { return t.Name == i.Type })
	if n < 0 {
		return nil
	}
	return types[n]
}

// perOffering are labels whose values a type has many of, and an instance one.
var perOffering = []string{
	corev1.LabelTopologyZone, awsv1.LabelZoneID, karpv1.LabelCapacityType, awsv1.LabelInstanceTenancy,
	awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible,
	awsv1.LabelPlacementGroupID, awsv1.LabelPlacementGroupPartition,
}

// instanceLabels are those that follow from what the instance is.
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
	if t := typeOf(i, types); t != nil {
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

// placedLabels adds where in its placement group an instance is. Which partition EC2 has chosen is not known at first: the label is
// there then, and empty, until the node registers.
func placedLabels(labels map[string]string, i cloudprovider.Instance, group placement.Group) map[string]string {
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

// resourcesOf drops what there is none of, and EFA where no such interface was attached.
func resourcesOf(list corev1.ResourceList, efa bool) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if !q.IsZero() && (efa || name != awsv1.ResourceEFA) {
			out[name] = q
		}
	}
	return out
}
