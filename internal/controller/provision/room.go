package provision

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// keepRoom sees to the capacity buffers once the claims of plan, which real pods wait for, have been created: it says which
// nodes hold their room, buys what is missing, and tells the buffers.
func (p *Provisioner) keepRoom(ctx context.Context, snap *snapshot.Snapshot, plan schedule.Plan) error {
	room := buffer.Plan(snap, plan, schedule.Budget{})
	p.State.KeepRoom(room.Nodes)
	if len(room.Launches) > 0 {
		p.Log.Info("computed new nodeclaim(s) to fit capacity buffer(s)", "nodeclaims", len(room.Launches))
	}
	errs := []error{p.launch(ctx, room.Launches, snap.Labels)}
	for key, outcome := range room.Buffers {
		errs = append(errs, p.tellBuffer(ctx, key, outcome))
	}
	return errors.Join(errs...)
}

// tellBuffer writes whether a buffer has its room. A buffer that has changed meanwhile is told after the next pass, which
// its change brings about.
func (p *Provisioner) tellBuffer(ctx context.Context, key types.NamespacedName, o buffer.Outcome) error {
	b := &bufferv1.CapacityBuffer{}
	if err := p.Client.Get(ctx, key, b); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := b.DeepCopy()
	c := metav1.Condition{
		Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonFitsExistingCapacity,
		Message: o.Message(), ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(p.Now()),
	}
	if o.Coming+o.Nowhere > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, bufferv1.ReasonRequiresNewCapacity
	}
	if !meta.SetStatusCondition(&b.Status.Conditions, c) {
		return nil
	}
	err := p.Client.Status().Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write the status of capacity buffer %s: %w", key, err)
}
