package rolecheck

import (
	"cmp"
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// PodIdentity reads the associations of EKS Pod Identity.
type PodIdentity interface {
	ListPodIdentityAssociations(
		ctx context.Context, in *eks.ListPodIdentityAssociationsInput, opts ...func(*eks.Options),
	) (*eks.ListPodIdentityAssociationsOutput, error)
	DescribePodIdentityAssociation(
		ctx context.Context, in *eks.DescribePodIdentityAssociationInput, opts ...func(*eks.Options),
	) (*eks.DescribePodIdentityAssociationOutput, error)
}

// ServiceAccount is one of an EKS cluster.
type ServiceAccount struct{ Cluster, Namespace, Name string }

// RoleOf returns the ARN of the role that EKS Pod Identity gives to the pods of a ServiceAccount; empty if it gives none.
func RoleOf(ctx context.Context, api PodIdentity, of ServiceAccount) (roleARN string, err error) {
	found, err := api.ListPodIdentityAssociations(ctx, &eks.ListPodIdentityAssociationsInput{
		ClusterName: &of.Cluster, Namespace: &of.Namespace, ServiceAccount: &of.Name,
	})
	if err != nil {
		return "", fmt.Errorf("list the pod identity associations of cluster %s: %w", of.Cluster, awserrors.WithoutRequestIDs(err))
	}
	if len(found.Associations) == 0 {
		return "", nil
	}
	id := found.Associations[0].AssociationId // a ServiceAccount has one at most
	one, err := api.DescribePodIdentityAssociation(ctx, &eks.DescribePodIdentityAssociationInput{
		ClusterName: &of.Cluster, AssociationId: id,
	})
	if err != nil {
		return "", fmt.Errorf("describe pod identity association %s: %w", aws.ToString(id), awserrors.WithoutRequestIDs(err))
	}
	// A target role is assumed by the other one, and what the pods may do is what it may do.
	return cmp.Or(aws.ToString(one.Association.TargetRoleArn), aws.ToString(one.Association.RoleArn)), nil
}
