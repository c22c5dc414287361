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
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// keepRoom sees to the capacity buffers once the claims of plan, which real pods wait for, have been created: it says which
// nodes hold their room, buys what is missing, and tells the buffers.
func (p *Provisioner) keepRoom(ctx context.Context, snap *snapshot.Snapshot, plan schedule.Plan) error {
	room, err := p.room(ctx, snap, plan)
	if err != nil {
		return err
	}
	if room.Abandoned {
		return fmt.Errorf("plan for the room of capacity buffers was abandoned, and nothing was launched: %w", ctx.Err())
	}
	p.State.KeepRoom(room.Nodes)
	if len(room.Launches) > 0 {
		p.Log.Info("computed new nodeclaim(s) to fit capacity buffer(s)", "nodeclaims", len(room.Launches))
	}
	refused, err := p.launch(ctx, room.Launches, snap.Labels)
	census := quarantine.NewCensus()
	for _, r := range refused {
		p.Quarantine.Hold(quarantine.Buffers, unitsOf([]refusal{r}, census), r.why("capacity buffer"))
	}
	errs := []error{err}
	for key, outcome := range room.Buffers {
		errs = append(errs, p.tellBuffer(ctx, key, outcome))
	}
	return errors.Join(errs...)
}

// room finds room for the buffers but for those with which that panics, or for which claims are refused.
func (p *Provisioner) room(ctx context.Context, all *snapshot.Snapshot, plan schedule.Plan) (buffer.Room, error) {
	if len(all.Virtual) == 0 {
		return buffer.Plan(all, plan, budget(ctx)), nil
	}
	census := quarantine.NewCensus()
	out, _ := p.Quarantine.Out(all, census, quarantine.Buffers)
	var room buffer.Room
	find := func(snap *snapshot.Snapshot) *panics.Panic {
		return panics.Catch(func() { room = p.findRoom(ctx, snap, plan) })
	}
	if caught := find(quarantine.Without(all, out, census)); caught != nil {
		if err := p.searchBuffer(ctx, quarantine.Without(all, out, census), caught, find); err != nil {
			return buffer.Room{}, err
		}
		out, _ = p.Quarantine.Out(all, census, quarantine.Buffers)
		if caught := find(quarantine.Without(all, out, census)); caught != nil {
			return buffer.Room{}, fmt.Errorf("find room for capacity buffers: %w", caught)
		}
	}
	_, why := p.Quarantine.Out(all, census, quarantine.Buffers)
	for _, pod := range all.Virtual {
		if e, left := why[census.Unit(pod)]; left {
			o := room.Buffers[buffer.Of(pod)]
			o.Nowhere, o.Why = o.Nowhere+1, e.Why
			room.Buffers[buffer.Of(pod)] = o
		}
	}
	return room, nil
}

// findRoom is buffer.Plan, unless a test has another.
func (p *Provisioner) findRoom(ctx context.Context, snap *snapshot.Snapshot, plan schedule.Plan) buffer.Room {
	if p.FindRoom != nil {
		return p.FindRoom(snap, plan, budget(ctx))
	}
	return buffer.Plan(snap, plan, budget(ctx))
}

// searchBuffer finds out with which buffers the search for room panics, and has them left out. Its error is that there is none.
func (p *Provisioner) searchBuffer(ctx context.Context, snap *snapshot.Snapshot, caught *panics.Panic, find func(*snapshot.Snapshot) *panics.Panic) error {
	file := p.Panics.Report(ctx, string(quarantine.Buffers), caught)
	census := quarantine.NewCensus()
	var units []quarantine.Unit
	for _, pod := range snap.Virtual {
		if u := census.Unit(pod); !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	suspects := quarantine.Search([][]quarantine.Unit{units}, quarantine.Tests, func(out quarantine.Set) bool {
		return ctx.Err() == nil && find(quarantine.Without(snap, out, census)) == nil
	})
	if !suspects.Found {
		return fmt.Errorf("finding room for capacity buffers panics whichever are left out; report it with the stack above: %w", caught)
	}
	p.Quarantine.Hold(quarantine.Buffers, suspects.All(), Explain("capacity buffer", caught, file))
	return nil
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
