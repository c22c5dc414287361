// Package drift decides whether an instance still matches its node class.
//
// It is pure and compares facts that others have read. A missing fact is an error, not a reason: a node is replaced for
// a known difference, never for something that could not be read.
package drift

import (
	"errors"
	"fmt"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// The reasons, in the order in which they are checked.
const (
	NodeClass           = "NodeClassDrift"
	AMI                 = "AMIDrift"
	SecurityGroup       = "SecurityGroupDrift"
	Subnet              = "SubnetDrift"
	CapacityReservation = "CapacityReservationDrift"
	PlacementGroup      = "PlacementGroupDrift"
)

// Static reports whether the spec of a class has changed since a NodeClaim was launched from it. Hashes are compared
// only if both have the same version.
func Static(class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) bool {
	hashes := [2]string{class.Annotations[awsv1.AnnotationNodeClassHash], claim.Annotations[awsv1.AnnotationNodeClassHash]}
	versions := [2]string{class.Annotations[awsv1.AnnotationNodeClassHashVersion], claim.Annotations[awsv1.AnnotationNodeClassHashVersion]}
	if slices.Contains(hashes[:], "") || slices.Contains(versions[:], "") || versions[0] != versions[1] {
		return false
	}
	return hashes[0] != hashes[1]
}

// Image reports whether the instance of a NodeClaim boots another image than mapped, the one that the class would use
// for its type now.
func Image(class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim, mapped string) (bool, error) {
	switch {
	case len(class.Status.AMIs) == 0:
		return false, fmt.Errorf("EC2NodeClass %s has no images in its status", class.Name)
	case claim.Status.ImageID == "":
		return false, fmt.Errorf("NodeClaim %s has no status.imageID", claim.Name)
	}
	return claim.Status.ImageID != mapped, nil
}

// Facts are the inputs of the comparison.
type Facts struct {
	Class    *awsv1.EC2NodeClass
	Claim    *karpv1.NodeClaim
	Instance cloudprovider.Instance
	// GroupID is the placement group of the class; empty if none.
	GroupID string
}

// Dynamic returns the first reason for which an instance no longer matches its class, among those that EC2 shows; empty
// if there is none. If one cannot be checked, it returns an error and no reason.
func Dynamic(f Facts) (string, error) {
	groups, err1 := f.securityGroups()
	subnet, err2 := f.subnet()
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	for _, found := range []struct {
		differs bool
		reason  string
	}{
		{groups, SecurityGroup},
		{subnet, Subnet},
		{f.reservation(), CapacityReservation},
		{f.Claim.Labels[awsv1.LabelPlacementGroupID] != f.GroupID, PlacementGroup},
	} {
		if found.differs {
			return found.reason, nil
		}
	}
	return "", nil
}

func (f Facts) securityGroups() (bool, error) {
	wanted := make([]string, 0, len(f.Class.Status.SecurityGroups))
	for _, g := range f.Class.Status.SecurityGroups {
		wanted = append(wanted, g.ID)
	}
	switch {
	case len(wanted) == 0:
		return false, fmt.Errorf("EC2NodeClass %s has no security groups in its status", f.Class.Name)
	case len(f.Instance.SecurityGroupIDs) == 0:
		return false, fmt.Errorf("EC2 reports no security groups for instance %s", f.Instance.ID)
	}
	return !slices.Equal(sortedUnique(wanted), sortedUnique(f.Instance.SecurityGroupIDs)), nil
}

func sortedUnique(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

func (f Facts) subnet() (bool, error) {
	switch {
	case len(f.Class.Status.Subnets) == 0:
		return false, fmt.Errorf("EC2NodeClass %s has no subnets in its status", f.Class.Name)
	case f.Instance.SubnetID == "":
		return false, fmt.Errorf("EC2 reports no subnet for instance %s", f.Instance.ID)
	}
	return !slices.ContainsFunc(f.Class.Status.Subnets, func(s awsv1.Subnet) bool { return s.ID == f.Instance.SubnetID }), nil
}

// reservation: an instance that outlives its reservation is on-demand, and is not in a wrong reservation.
func (f Facts) reservation() bool {
	id := f.Instance.Reservation.ID
	return id != "" && !slices.ContainsFunc(f.Class.Status.CapacityReservations, func(r awsv1.CapacityReservation) bool { return r.ID == id })
}
