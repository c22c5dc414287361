package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// planBuffers provisions capacity buffers after the claims of plan, which real pods wait for, have been created: it
// reserves capacity on nodes, launches what is missing, and updates the buffers' status.
func (p *Provisioner) planBuffers(ctx context.Context, d outcome) error {
	snap := d.snap
	room, err := p.findBufferCapacity(ctx, d)
	if err != nil {
		return err
	}
	if room.Abandoned {
		return fmt.Errorf("the plan for capacity buffers was abandoned, and nothing was launched for them: %w", ctx.Err())
	}
	p.State.SetBufferPods(room.Nodes)
	if len(room.Launches) > 0 {
		p.Log.Info("computed new nodeclaim(s) to fit capacity buffer(s)", "nodeclaims", len(room.Launches))
	}
	refused, err := p.launch(ctx, room.Launches, snap)
	unitIndex := quarantine.NewUnits()
	for _, r := range refused {
		p.Quarantine.Add(quarantine.Buffers, unitsOf([]invalidClaim{r}, unitIndex), r.message("capacity buffer"))
	}
	errs := []error{err}
	for key, outcome := range room.Buffers {
		errs = append(errs, p.updateBufferStatus(ctx, key, outcome))
	}
	return errors.Join(errs...)
}

// findBufferCapacity plans the capacity of all buffers except quarantined ones: those that make the engine panic, or
// with claims that the API server rejects.
func (p *Provisioner) findBufferCapacity(ctx context.Context, d outcome) (buffer.Placement, error) {
	all, plan := d.snap, d.plan
	if len(all.Virtual) == 0 {
		return buffer.Plan(all, plan, budget(ctx)), nil
	}
	unitIndex := quarantine.NewUnits()
	out, _ := p.Quarantine.Excluded(all, unitIndex, quarantine.Buffers)
	var room buffer.Placement
	planned := all
	find := func(snap *snapshot.Snapshot) *panics.Panic {
		planned = snap
		return panics.Catch(func() { room = p.runBufferPlan(ctx, snap, plan) })
	}
	if caught := find(quarantine.Without(all, out, unitIndex)); caught != nil {
		if err := p.quarantineBuffer(ctx, quarantine.Without(all, out, unitIndex), caught, find); err != nil {
			return buffer.Placement{}, err
		}
		out, _ = p.Quarantine.Excluded(all, unitIndex, quarantine.Buffers)
		if caught := find(quarantine.Without(all, out, unitIndex)); caught != nil {
			return buffer.Placement{}, fmt.Errorf("plan the capacity of capacity buffers: %w", caught)
		}
	}
	p.recordBuffers(d, planned, &room)
	_, why := p.Quarantine.Excluded(all, unitIndex, quarantine.Buffers)
	for _, pod := range all.Virtual {
		if e, left := why[unitIndex.Unit(pod)]; left {
			o := room.Buffers[buffer.BufferOf(pod)]
			o.Unschedulable, o.Why = o.Unschedulable+1, e.Why
			room.Buffers[buffer.BufferOf(pod)] = o
		}
	}
	return room, nil
}

// runBufferPlan calls buffer.Plan, or the replacement that a test has set.
func (p *Provisioner) runBufferPlan(ctx context.Context, snap *snapshot.Snapshot, plan schedule.Plan) buffer.Placement {
	if p.PlanBuffers != nil {
		return p.PlanBuffers(snap, plan, budget(ctx))
	}
	return buffer.Plan(snap, plan, budget(ctx))
}

// quarantineBuffer finds the buffers that make the plan panic and quarantines them. It returns an error if no buffer is
// the cause.
func (p *Provisioner) quarantineBuffer(
	ctx context.Context,
	snap *snapshot.Snapshot,
	caught *panics.Panic,
	find func(*snapshot.Snapshot) *panics.Panic,
) error {
	file := p.Panics.Report(ctx, string(quarantine.Buffers), caught)
	unitIndex := quarantine.NewUnits()
	var units []quarantine.Unit
	for _, pod := range snap.Virtual {
		if u := unitIndex.Unit(pod); !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	suspects := quarantine.Search([][]quarantine.Unit{units}, quarantine.MaxPlans, func(out quarantine.Set) bool {
		return ctx.Err() == nil && find(quarantine.Without(snap, out, unitIndex)) == nil
	})
	if !suspects.Found {
		return fmt.Errorf("planning capacity buffers panics whichever buffers are left out; report it with the stack above: %w", caught)
	}
	p.Quarantine.Add(quarantine.Buffers, suspects.All(), PanicMessage("capacity buffer", caught, file))
	return nil
}

// updateBufferStatus writes whether a buffer has its capacity. A conflict is no error: the change of the buffer
// triggers the next pass, which writes the status.
func (p *Provisioner) updateBufferStatus(ctx context.Context, key types.NamespacedName, o buffer.Outcome) error {
	b := &bufferv1.CapacityBuffer{}
	if err := p.Client.Get(ctx, key, b); err != nil {
		return client.IgnoreNotFound(err)
	}
	c := metav1.Condition{
		Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonFitsExistingCapacity,
		Message: o.Message(), ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(p.Now()),
	}
	if o.NeedNew+o.Unschedulable > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, bufferv1.ReasonRequiresNewCapacity
	}
	_, err := patch.Status(ctx, p.Client, b, func() { meta.SetStatusCondition(&b.Status.Conditions, c) })
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write the status of capacity buffer %s: %w", key, err)
}
