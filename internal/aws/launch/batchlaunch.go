package launch

import (
	"context"
	"sync"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// joint is a launch for several claims, as the process that makes it knows it.
//
// A call whose outcome is not known is made again as it was, with the same token, by whichever claim asks first: EC2 then
// answers as it did. Until it has answered, none of the claims may be launched in another way. Where nobody has asked for so
// long that EC2 shows what there is, a claim that is to end may give the launch up: no call is made any more, and all its
// claims go by their tickets.
type batchLaunch struct {
	id   string
	call *fleetCall
	// orders are those of the claims that take part, in the order of their places; that of orders[n] gets bought[n].
	requests []Order

	mu sync.Mutex // held during calls
	// calls counts those that were made, so that claims that have waited for one do not make another.
	calls int

	state sync.Mutex // guards what follows; never held during calls
	// settled is true once the outcome is known.
	settled bool
	// calling is true during a call, doubtful when the last one was made whose outcome is not known.
	calling      bool
	unknownSince time.Time
	// abandoned launches make no more calls, and stay as they are.
	abandoned bool
	instances []cloudprovider.Instance
	// err is what claims without an instance are told.
	err error
}

// of returns what the launch has brought a claim. It is of no use before the launch is settled.
func (j *batchLaunch) instanceOf(claimUID string) (cloudprovider.Instance, error) {
	for n, o := range j.requests {
		if string(o.Claim.UID) == claimUID && n < len(j.instances) {
			return j.instances[n], nil
		}
	}
	return cloudprovider.Instance{}, j.err
}

// known returns what the launch has brought a claim, if that is known.
func (j *batchLaunch) outcome(claimUID string) (i cloudprovider.Instance, err error, settled bool) {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled {
		return cloudprovider.Instance{}, j.err, false
	}
	i, err = j.instanceOf(claimUID)
	return i, err, true
}

// abandon ends a launch whose outcome nobody has asked for in a while, and reports whether no call can be made any more.
func (j *batchLaunch) abandon(now time.Time) bool {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled && !j.calling && !j.unknownSince.IsZero() && now.Sub(j.unknownSince) >= instance.VisibleWithin {
		j.abandoned = true
	}
	return j.settled || j.abandoned
}

// isAbandoned reports whether abandon has ended the launch.
func (j *batchLaunch) isAbandoned() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return j.abandoned
}

// open reports whether a call may still be made.
func (j *batchLaunch) unsettled() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return !j.settled && !j.abandoned
}

// settle makes the call, unless another has made one meanwhile, and reports what is known then.
func (l *Launcher) settle(ctx context.Context, j *batchLaunch) {
	j.state.Lock()
	before := j.calls
	j.state.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Lock()
	done := j.settled || j.abandoned || j.calls != before
	j.calling = !done
	first := j.unknownSince.IsZero()
	j.state.Unlock()
	if done {
		return
	}
	a := l.createFleet(ctx, j.call)
	if a.templateGone && first {
		if err := l.recreateTemplates(ctx, j); err == nil {
			a = l.createFleet(ctx, j.call)
		}
	}
	l.recordOutcome(j, a)
	l.terminateSurplus(ctx, j, a)
}

// outcome writes down what a call has come to.
func (l *Launcher) recordOutcome(j *batchLaunch, a fleetResult) {
	j.state.Lock()
	defer j.state.Unlock()
	j.calls++
	j.calling = false
	switch {
	case !a.known:
		j.unknownSince, j.err = l.cfg.Now(), unknownOutcomeError(a.err)
	case a.err != nil && !j.unknownSince.IsZero():
		// This call had no effect. What the one before did is as it was.
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

// terminateSurplus ends instances that nobody has asked for.
func (l *Launcher) terminateSurplus(ctx context.Context, j *batchLaunch, a fleetResult) {
	for n := len(j.requests); n < len(a.instances); n++ {
		i := a.instances[n]
		l.complete(&i, j.requests[0], j.call)
		i.NodeClaim, i.NodeClaimUID = "", ""
		l.cfg.Instances.RecordLaunch(i)
		if err := l.cfg.Instances.Terminate(ctx, i.ProviderID); err != nil {
			l.cfg.Log.Error("EC2 launched more instances than requested, and one was not terminated; garbage collection deletes it", "instance", i.ID, "error", err)
			continue
		}
		l.cfg.Log.Warn("EC2 launched more instances than requested; one was terminated", "instance", i.ID)
	}
}

// remake makes sure of the launch templates of a launch once more.
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

// recall finds what an earlier process, or this one, has launched for the holder of a ticket. The error says that it is not
// known yet.
func (l *Launcher) lookUpSlot(ctx context.Context, claim *karpv1.NodeClaim, t cloudprovider.Ticket) (i cloudprovider.Instance, found bool, err error) {
	claimUID := string(claim.UID)
	since, looked := l.firstLookups.Get(claimUID)
	if !looked {
		since = l.cfg.Now()
		l.firstLookups.Put(claimUID, since)
	}
	// Claims of one launch look at the same time.
	shown, err, _ := l.lookups.Do(t.Launch, func() (any, error) {
		return l.cfg.Instances.ForBatchLaunch(context.WithoutCancel(ctx), t.Launch)
	})
	if err != nil {
		return cloudprovider.Instance{}, false, err
	}
	i, found, final := assign(t, shown.([]cloudprovider.Instance), since, l.cfg.Now())
	if !final {
		return cloudprovider.Instance{}, false, outcomeUnknown(nil)
	}
	i.NodeClaim, i.NodeClaimUID = claim.Name, claimUID
	return i, found, nil
}
