// Package placementgroup completes what a claim says of its place in a placement group.
//
// Where EC2 chooses the partition of an instance it tells which only once the instance is there. Until then the claim's label is
// empty, and its node does not count as registered: pods that spread over partitions must not land on a node of an unknown one.
package placementgroup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
)

// again is how soon EC2 is asked again for a partition that it does not know.
const again = time.Second

// cloud tells the partition of an instance, empty while it is not known.
type cloud interface {
	Partition(ctx context.Context, providerID string) (string, error)
}

// Hook is a registration hook that waits for the partition.
type Hook struct{ Cloud cloud }

// Name implements register.Hook.
func (*Hook) Name() string { return "PlacementGroupRegistrationHook" }

// Ask implements register.Hook.
func (h *Hook) Ask(ctx context.Context, claim *karpv1.NodeClaim, _ *corev1.Node) (registration.Answer, error) {
	if known, partitioned := claim.Labels[awsv1.LabelPlacementGroupPartition]; !partitioned || known != "" {
		return registration.Answer{}, nil
	}
	partition, err := h.Cloud.Partition(ctx, claim.Status.ProviderID)
	switch {
	case err != nil:
		return registration.Answer{}, err
	case partition == "":
		return registration.Answer{Wait: again}, nil
	}
	return registration.Answer{Labels: map[string]string{awsv1.LabelPlacementGroupPartition: partition}}, nil
}
