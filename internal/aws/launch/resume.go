package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// errNothingShown means that EC2 shows no instance of a batch launch that another process may have made.
var errNothingShown = errors.New("EC2 shows no instance of the batch launch")

// resumption identifies what is resumed in one call: NodeClaims of one batch launch that need the same.
type resumption struct{ launch, fleet string }

// Resumable reports whether Resume may launch the NodeClaim, given the error of Adopt: another process has given it a slot of a batch
// launch, and EC2 shows no instance of that launch. This process resumes a launch once; after that, it waits.
func (l *Launcher) Resumable(claim *karpv1.NodeClaim, err error) bool {
	made, _ := l.batches.Get(string(claim.UID))
	return errors.Is(err, errNothingShown) && len(made) == 0
}

// Resume launches an instance for a NodeClaim that is Resumable. A process that was killed may have made the call, or not. Resume makes it
// for all NodeClaims of the batch launch that arrive at about the same time, with the client token that the other process uses:
//
//   - EC2 does not know the token: it launches the instances, and if the other process lives on and makes its call, EC2 refuses that.
//   - EC2 knows the token with the same parameters: it returns the instances that the other process has launched.
//   - EC2 knows the token with other parameters, or refuses the call for another reason: nothing is launched. The NodeClaims wait until EC2
//     shows all instances, and look up their slots.
//
// The slots of NodeClaims that do not arrive are marked as empty on the instances, so that every process assigns the instances alike.
// annotate must fail if the NodeClaim is not as it was read: a stale one may have an instance of a later launch.
func (l *Launcher) Resume(ctx context.Context, o Request, annotate Annotate) (cloudprovider.Instance, error) {
	slot, ok := cloudprovider.ParseBatchSlot(l.launchAnnotation(o.Claim))
	if !ok {
		return cloudprovider.Instance{}, outcomeUnknown(nil)
	}
	m, key, err := l.member(ctx, o, annotate)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	m.slot = slot
	return l.resumer.Do(ctx, resumption{slot.Launch, key}, m)
}

// resumeBatch makes the call of another process for the NodeClaims that have arrived.
func (l *Launcher) resumeBatch(ctx context.Context, of resumption, members []*batchMember) []launchResult {
	out := make([]launchResult, len(members))
	for _, m := range members {
		defer m.plan.choice.Settle("") // no effect for members that get an instance
	}
	e, errs := l.confirmSlots(ctx, of.launch, members)
	var j *batchLaunch
	if len(e.members) > 0 {
		resumed, fits := l.batchCall(e)
		resumed.resumed = true
		if !fits {
			resumed.abandoned, resumed.err = true, outcomeUnknown(nil)
		}
		l.recordMembers(resumed, e.members)
		l.settle(ctx, resumed)
		j = resumed
	}
	for n, m := range members {
		if out[n].Err = errs[n]; out[n].Err != nil {
			continue
		}
		i, settled, err := j.outcome(m.uid())
		if err == nil && !settled {
			err = outcomeUnknown(nil)
		}
		if out[n].Value, out[n].Err = i, err; err == nil {
			m.plan.choice.Settle(i.SubnetID)
		}
	}
	return out
}

// confirmSlots makes sure that the NodeClaims still have their slots. The errors are those of the members, by their order. A NodeClaim
// that arrived twice is one member.
func (l *Launcher) confirmSlots(ctx context.Context, launch string, members []*batchMember) (slotAssignment, []error) {
	e := slotAssignment{launch: launch}
	errs, late := l.writeSlots(ctx, members, func(n int) cloudprovider.BatchSlot { return members[n].slot })
	empty := make([]bool, members[0].slot.Of)
	for n := range empty {
		empty[n] = true
	}
	for n, m := range members {
		switch {
		case errs[n] != nil:
		case late || m.slot.Of != len(empty):
			errs[n] = outcomeUnknown(nil)
		case empty[m.slot.Index]:
			empty[m.slot.Index] = false
			e.members = append(e.members, m)
		case !slices.ContainsFunc(e.members, func(o *batchMember) bool { return o.uid() == m.uid() }):
			errs[n] = outcomeUnknown(fmt.Errorf("another NodeClaim has slot %s, too", m.slot))
		}
	}
	slices.SortFunc(e.members, func(a, b *batchMember) int { return cmp.Compare(a.slot.Index, b.slot.Index) })
	for n, unused := range empty {
		if unused {
			e.emptySlots = append(e.emptySlots, n)
		}
	}
	return e, errs
}
