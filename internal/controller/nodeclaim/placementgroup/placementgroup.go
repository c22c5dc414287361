// Package placementgroup completes the partition label of claims in placement groups.
//
// Where EC2 chooses the partition of an instance, it reports the partition only once the instance exists. Until then
// the claim's label is empty, and its node does not count as registered: pods that spread over partitions must not be
// scheduled to a node in an unknown one.
package placementgroup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
)

// pollInterval is the time between two reads of a partition that EC2 does not report yet.
const pollInterval = time.Second

// cloud returns the partition of an instance, empty while it is not known.
type cloud interface {
	Partition(ctx context.Context, providerID string) (string, error)
}

// Hook is a registration hook that waits for the partition.
type Hook struct{ Cloud cloud }

// Name implements registration.Hook.
func (*Hook) Name() string { return "PlacementGroupRegistrationHook" }

// Check implements registration.Hook.
func (h *Hook) Check(ctx context.Context, claim *karpv1.NodeClaim, _ *corev1.Node) (registration.HookResult, error) {
	if known, partitioned := claim.Labels[awsv1.LabelPlacementGroupPartition]; !partitioned || known != "" {
		return registration.HookResult{}, nil
	}
	partition, err := h.Cloud.Partition(ctx, claim.Status.ProviderID)
	switch {
	case err != nil:
		return registration.HookResult{}, err
	case partition == "":
		return registration.HookResult{RequeueAfter: pollInterval}, nil
	}
	return registration.HookResult{Labels: map[string]string{awsv1.LabelPlacementGroupPartition: partition}}, nil
}
