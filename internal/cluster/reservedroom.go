package cluster

import (
	"context"
	"fmt"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ReservedRoom returns how much room capacity reservations have for nodes of a static pool. If the instance types of its
// class cannot be listed, that is an error: what the pool can launch is not known.
func (s *State) ReservedRoom(ctx context.Context, pool *karpv1.NodePool) (reservation.TemplateRoom, error) {
	if s.cfg.Types == nil {
		return reservation.TemplateRoom{}, nil // without a cloud there are no reservations
	}
	instanceTypes, err := s.typesOfClass(ctx, pool)
	if err == nil && instanceTypes == nil {
		err = fmt.Errorf("the instance types of node class %q cannot be listed", pool.Spec.Template.Spec.NodeClassRef.Name)
	}
	if err != nil {
		return reservation.TemplateRoom{}, fmt.Errorf("room for NodePool %q in capacity reservations: %w", pool.Name, err)
	}
	return reservation.RoomFor(&snapshot.Pool{
		NodePool: pool, NodeClassLabel: [2]string{awsv1.LabelNodeClass, pool.Spec.Template.Spec.NodeClassRef.Name}, InstanceTypes: instanceTypes,
	}, s.cfg.Labels)
}
