package launch

import (
	"context"
	"errors"
	"sync"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// batchLaunch is one CreateFleet call for several NodeClaims, in the process that makes the call.
//
// A call with an unknown outcome is repeated unchanged, with the same client token, by the first NodeClaim that needs
// the outcome: EC2 then returns the same response. Until EC2 has responded, none of the NodeClaims may be launched in
// another way. When nobody has repeated the call for so long that EC2 shows all instances, a NodeClaim in deletion may
// abandon the batch launch: no more calls are made, and all its NodeClaims look up their slots instead.
type batchLaunch struct {
	id   string
	call *fleetCall
	// resumed is true if another process may have made a call with the same client token.
	resumed bool
	// requests are the requests of the members, by slot: requests[n] gets instances[n].
	requests []Request

	mu sync.Mutex // held during calls
	// calls counts the calls, so that NodeClaims that waited for a call do not repeat it.
	calls int

	state sync.Mutex // guards the fields below; never held during calls
	// settled is true once the outcome is known.
	settled bool
	// calling is true during a call. unknownSince is the time of the last call with an unknown outcome.
	calling      bool
	unknownSince time.Time
	// abandoned launches make no more calls.
	abandoned bool
	instances []cloudprovider.Instance
	// err is the error for NodeClaims without an instance.
	err error
}

// instanceOf returns the instance of a NodeClaim. It is valid only after the launch is settled.
func (j *batchLaunch) instanceOf(claimUID string) (cloudprovider.Instance, error) {
	for n, o := range j.requests {
		if string(o.Claim.UID) == claimUID && n < len(j.instances) {
			return j.instances[n], nil
		}
	}
	return cloudprovider.Instance{}, j.err
}

// outcome returns the instance of a NodeClaim, if the outcome is known.
func (j *batchLaunch) outcome(claimUID string) (i cloudprovider.Instance, settled bool, err error) {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled {
		return cloudprovider.Instance{}, false, j.err
	}
	i, err = j.instanceOf(claimUID)
	return i, true, err
}

// abandon gives up a launch that nobody has repeated for a while, and reports whether no call can be made anymore.
func (j *batchLaunch) abandon(now time.Time) bool {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled && !j.calling && !j.unknownSince.IsZero() && now.Sub(j.unknownSince) >= instance.VisibleWithin {
		j.abandoned = true
	}
	return j.settled || j.abandoned
}

// isAbandoned reports whether abandon has given up the launch.
func (j *batchLaunch) isAbandoned() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return j.abandoned
}

// unsettled reports whether another call may still be made.
func (j *batchLaunch) unsettled() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return !j.settled && !j.abandoned
}

// settle makes the call, unless another goroutine has made one meanwhile, and records the outcome.
func (l *Launcher) settle(ctx context.Context, j *batchLaunch) {
	j.state.Lock()
	before := j.calls
	j.state.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Lock()
	done := j.settled || j.abandoned || j.calls != before
	j.calling = !done
	j.state.Unlock()
	if done {
		return
	}
	a := l.createFleet(ctx, j.call)
	if a.templateGone {
		if err := l.recreateTemplates(ctx, j); err == nil {
			a = l.createFleet(ctx, j.call)
		}
	}
	l.recordOutcome(j, a)
	l.terminateSurplus(ctx, j, a)
}

// recordOutcome records the outcome of a call.
func (l *Launcher) recordOutcome(j *batchLaunch, a fleetResult) {
	j.state.Lock()
	defer j.state.Unlock()
	j.calls++
	j.calling = false
	switch {
	case j.resumed && (a.tokenMismatch || a.known && a.err != nil):
		// EC2 knows the token from the call of another process, or may have refused this call before it read the token.
		j.abandoned, j.err = true, outcomeUnknown(a.err)
	case !a.known:
		j.unknownSince, j.err = l.cfg.Now(), unknownOutcomeError(a.err)
	case a.err != nil && !j.unknownSince.IsZero():
		// This call had no effect. The outcome of the earlier call is still unknown.
		j.err = rejectionError(a)
	case a.err != nil:
		j.settled, j.err = true, rejectionError(a)
	default:
		j.settled, j.err = true, failureError(a.failures)
		for n := range min(len(a.instances), len(j.requests)) {
			i := a.instances[n]
			l.complete(&i, j.requests[n], j.call)
			l.cfg.Instances.RecordLaunch(i)
			j.instances = append(j.instances, i)
		}
	}
}

// terminateSurplus terminates instances that no NodeClaim requested.
func (l *Launcher) terminateSurplus(ctx context.Context, j *batchLaunch, a fleetResult) {
	for n := len(j.requests); n < len(a.instances); n++ {
		i := a.instances[n]
		l.complete(&i, j.requests[0], j.call)
		i.NodeClaim, i.NodeClaimUID = "", ""
		l.cfg.Instances.RecordLaunch(i)
		if err := l.terminateSurplusInstance(ctx, i); err != nil {
			l.cfg.Log.Error(
				"EC2 launched more instances than requested, and one was not terminated; garbage collection deletes it",
				"instance",
				i.ID,
				"error",
				err,
			)
			continue
		}
		l.cfg.Log.Warn("EC2 launched more instances than requested; one was terminated", "instance", i.ID)
	}
}

// terminateSurplusInstance terminates an instance that no NodeClaim has, with a permit.
func (l *Launcher) terminateSurplusInstance(ctx context.Context, i cloudprovider.Instance) error {
	if l.cfg.Surplus == nil {
		return errors.New("nothing here may terminate it")
	}
	permit, err := l.cfg.Surplus(ctx, i)
	if err != nil {
		return err
	}
	return l.cfg.Instances.Terminate(ctx, permit)
}

// recreateTemplates ensures the launch templates of a batch launch again.
func (l *Launcher) recreateTemplates(ctx context.Context, j *batchLaunch) error {
	_ = l.forgetTemplates(j.call.CreateFleetInput, nil)
	p, err := l.plan(j.requests[0])
	if err != nil {
		return err
	}
	defer p.choice.Settle("")
	_, err = l.fleet(ctx, j.requests[0], p)
	return err
}

// lookUpSlot finds the instance in the slot of a NodeClaim, launched by this process or an earlier one. The error means
// that the outcome is not known yet.
func (l *Launcher) lookUpSlot(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	t cloudprovider.BatchSlot,
) (i cloudprovider.Instance, found bool, err error) {
	claimUID := string(claim.UID)
	since, looked := l.firstLookups.Get(claimUID)
	if !looked {
		since = l.cfg.Now()
		l.firstLookups.Set(claimUID, since)
	}
	// NodeClaims of one batch look up their slots at the same time.
	shown, err, _ := l.lookups.Do(t.Launch, func() (any, error) {
		return l.cfg.Instances.ForBatchLaunch(context.WithoutCancel(ctx), t.Launch)
	})
	if err != nil {
		return cloudprovider.Instance{}, false, err
	}
	i, found, final := assign(t, shown.([]cloudprovider.Instance), since, l.cfg.Now())
	if !final && len(shown.([]cloudprovider.Instance)) == 0 {
		return cloudprovider.Instance{}, false, outcomeUnknown(errNothingShown)
	}
	if !final {
		return cloudprovider.Instance{}, false, outcomeUnknown(nil)
	}
	i.NodeClaim, i.NodeClaimUID = claim.Name, claimUID
	return i, found, nil
}
