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
type joint struct {
	id      string
	request *request
	// orders are those of the claims that take part, in the order of their places; that of orders[n] gets bought[n].
	orders []Order

	mu sync.Mutex // held during calls
	// calls counts those that were made, so that claims that have waited for one do not make another.
	calls int

	state sync.Mutex // guards what follows; never held during calls
	// settled is true once the outcome is known.
	settled bool
	// calling is true during a call, doubtful when the last one was made whose outcome is not known.
	calling  bool
	doubtful time.Time
	// givenUp launches make no more calls, and stay as they are.
	givenUp bool
	bought  []cloudprovider.Instance
	// err is what claims without an instance are told.
	err error
}

// of returns what the launch has brought a claim. It is of no use before the launch is settled.
func (j *joint) of(claimUID string) (cloudprovider.Instance, error) {
	for n, o := range j.orders {
		if string(o.Claim.UID) == claimUID && n < len(j.bought) {
			return j.bought[n], nil
		}
	}
	return cloudprovider.Instance{}, j.err
}

// known returns what the launch has brought a claim, if that is known.
func (j *joint) known(claimUID string) (i cloudprovider.Instance, err error, settled bool) {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled {
		return cloudprovider.Instance{}, j.err, false
	}
	i, err = j.of(claimUID)
	return i, err, true
}

// giveUp ends a launch whose outcome nobody has asked for in a while, and reports whether no call can be made any more.
func (j *joint) giveUp(now time.Time) bool {
	j.state.Lock()
	defer j.state.Unlock()
	if !j.settled && !j.calling && !j.doubtful.IsZero() && now.Sub(j.doubtful) >= instance.VisibleWithin {
		j.givenUp = true
	}
	return j.settled || j.givenUp
}

// isGivenUp reports whether giveUp has ended the launch.
func (j *joint) isGivenUp() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return j.givenUp
}

// open reports whether a call may still be made.
func (j *joint) open() bool {
	j.state.Lock()
	defer j.state.Unlock()
	return !j.settled && !j.givenUp
}

// settle makes the call, unless another has made one meanwhile, and reports what is known then.
func (l *Launcher) settle(ctx context.Context, j *joint) {
	j.state.Lock()
	before := j.calls
	j.state.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Lock()
	done := j.settled || j.givenUp || j.calls != before
	j.calling = !done
	first := j.doubtful.IsZero()
	j.state.Unlock()
	if done {
		return
	}
	a := l.ask(ctx, j.request)
	if a.gone && first {
		if err := l.remake(ctx, j); err == nil {
			a = l.ask(ctx, j.request)
		}
	}
	l.outcome(j, a)
	l.endSurplus(ctx, j, a)
}

// outcome writes down what a call has come to.
func (l *Launcher) outcome(j *joint, a answer) {
	j.state.Lock()
	defer j.state.Unlock()
	j.calls++
	j.calling = false
	switch {
	case !a.known:
		j.doubtful, j.err = l.cfg.Now(), lostError(a.err)
	case a.err != nil && !j.doubtful.IsZero():
		// This call had no effect. What the one before did is as it was.
		j.err = whole(a)
	case a.err != nil:
		j.settled, j.err = true, whole(a)
	default:
		j.settled, j.err = true, refusal(a.failed)
		for n := range min(len(a.bought), len(j.orders)) {
			i := a.bought[n]
			l.complete(&i, j.orders[n], j.request)
			l.cfg.Instances.Remember(i)
			j.bought = append(j.bought, i)
		}
	}
}

// endSurplus ends instances that nobody has asked for.
func (l *Launcher) endSurplus(ctx context.Context, j *joint, a answer) {
	for n := len(j.orders); n < len(a.bought); n++ {
		i := a.bought[n]
		l.complete(&i, j.orders[0], j.request)
		i.NodeClaim, i.NodeClaimUID = "", ""
		l.cfg.Instances.Remember(i)
		if err := l.cfg.Instances.Terminate(ctx, i.ProviderID); err != nil {
			l.cfg.Log.Error("EC2 launched more instances than requested, and one was not terminated; garbage collection deletes it", "instance", i.ID, "error", err)
			continue
		}
		l.cfg.Log.Warn("EC2 launched more instances than requested; one was terminated", "instance", i.ID)
	}
}

// remake makes sure of the launch templates of a launch once more.
func (l *Launcher) remake(ctx context.Context, j *joint) error {
	_ = l.forgetTemplates(j.request.CreateFleetInput, nil)
	p, err := l.plan(j.orders[0])
	if err != nil {
		return err
	}
	defer p.choice.Settle("")
	_, err = l.fleet(ctx, j.orders[0], p)
	return err
}

// recall finds what an earlier process, or this one, has launched for the holder of a ticket. The error says that it is not
// known yet.
func (l *Launcher) recall(ctx context.Context, claim *karpv1.NodeClaim, t cloudprovider.Ticket) (i cloudprovider.Instance, found bool, err error) {
	claimUID := string(claim.UID)
	since, looked := l.doubts.Get(claimUID)
	if !looked {
		since = l.cfg.Now()
		l.doubts.Put(claimUID, since)
	}
	// Claims of one launch look at the same time.
	shown, err, _ := l.looking.Do(t.Launch, func() (any, error) {
		return l.cfg.Instances.OfLaunch(context.WithoutCancel(ctx), t.Launch)
	})
	if err != nil {
		return cloudprovider.Instance{}, false, err
	}
	i, found, final := deal(t, shown.([]cloudprovider.Instance), since, l.cfg.Now())
	if !final {
		return cloudprovider.Instance{}, false, inDoubt(nil)
	}
	i.NodeClaim, i.NodeClaimUID = claim.Name, claimUID
	return i, found, nil
}
