package nodeclass

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// placementGroup finds the group that the class selects. Its ID is not part of the status: each launch looks it up, and the
// condition only reports whether that works.
func (r *resolution) placementGroup(ctx context.Context) {
	const condition = awsv1.ConditionPlacementGroupReady
	_, err := r.Groups.Of(ctx, r.class)
	var none *placement.NotFoundError
	switch {
	case errors.As(err, &none):
		r.set(
			cloudprovider.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "PlacementGroupNotFound", Message: err.Error()},
			retryAfter,
		)
	case err != nil && !awserrors.IsRetryable(err):
		r.set(
			cloudprovider.Condition{
				Type:    condition,
				Status:  metav1.ConditionFalse,
				Reason:  "PlacementGroupResolutionFailed",
				Message: awserrors.WithoutRequestIDs(err).Error(),
			},
			retryAfter,
		)
		r.failed(err)
	case err != nil:
		r.unread(condition, "the placement group", err)
	case r.class.Spec.PlacementGroupSelector != nil:
		r.ready(condition, retryAfter)
	default:
		r.ready(condition, validatedAfter)
	}
}
