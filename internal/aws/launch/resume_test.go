package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// successor is the process after one that was killed during a batch launch for two NodeClaims.
type successor struct {
	*process
	w      *fakeEC2
	orders [2]Request
}

// killedDuringBatch has a process launch two NodeClaims of this price in a batch, and returns the next process, which would pay another.
func killedDuringBatch(t *testing.T, w *fakeEC2, price float64, did callOutcome) *successor {
	t.Helper()
	w.callOutcomes = []callOutcome{did}
	first := launchPair(t.Context(), w, func(int) {})
	return w.succeed(first.orders, price)
}

// succeed returns the next process. It makes a call once both NodeClaims have arrived.
func (w *fakeEC2) succeed(orders [2]Request, price float64) *successor {
	return w.succeedGathering(orders, price, batch.Window{Idle: time.Hour, Max: time.Hour, Items: 2})
}

func (w *fakeEC2) succeedGathering(orders [2]Request, price float64, window batch.Window) *successor {
	s := &successor{process: w.startGathering(pricedOrder(price), window), w: w}
	for n, o := range orders {
		s.orders[n] = pricedOrder(price)
		s.orders[n].Claim = o.Claim.DeepCopy()
	}
	return s
}

var errStale = errors.New("the NodeClaim has changed")

// reconcile does what the reconcilers of these NodeClaims do at the same time: adopt, or else resume or launch.
func (s *successor) reconcile(ctx context.Context, stale bool, claims ...int) (got [2]cloudprovider.Instance, errs [2]error) {
	var all sync.WaitGroup
	for _, n := range claims {
		all.Go(func() {
			claim := s.orders[n].Claim
			asRead := s.orders[n]
			asRead.Claim = claim.DeepCopy()
			annotate := func(_ context.Context, mark string) error {
				if stale {
					return errStale
				}
				claim.Annotations[karpv1.AnnotationLaunch] = mark
				return nil
			}
			got[n], errs[n] = s.reconcileClaim(ctx, asRead, annotate)
		})
	}
	all.Wait()
	return got, errs
}

// launched fails unless both NodeClaims have an instance of their own, and there is no third.
func (s *successor) launched(t *testing.T, got [2]cloudprovider.Instance, errs [2]error) {
	t.Helper()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if got[0].ID == got[1].ID || got[0].ID == "" || got[1].ID == "" || len(s.w.instances) != 2 {
		t.Fatalf("the NodeClaims have %q and %q of %d instances, want one each of 2", got[0].ID, got[1].ID, len(s.w.instances))
	}
}

// waits fails unless nothing was launched, and both NodeClaims wait.
func (s *successor) waits(t *testing.T, errs [2]error) {
	t.Helper()
	for n, err := range errs {
		var create *cloudprovider.CreateError
		if !errors.As(err, &create) || create.Reason != ReasonOutcomeUnknown {
			t.Fatalf("NodeClaim %d does not wait: %v", n, err)
		}
	}
}

// A process is killed during a batch launch, before or after its call. The next one has the instances at once, and launches no third.
func TestBatchLaunchIsResumed(t *testing.T) {
	for name, did := range map[string]callOutcome{"killed before the call": requestLost, "killed after the call": responseLost} {
		t.Run(name, func(t *testing.T) {
			w := newFakeEC2()
			s := killedDuringBatch(t, w, 0.05, did)
			got, errs := s.reconcile(t.Context(), false, 0, 1)
			s.launched(t, got, errs)
			// A third process, which sees nothing but EC2, assigns the instances alike.
			w.time = w.time.Add(w.visible)
			again, errs := w.succeed(s.orders, 0.07).reconcile(t.Context(), false, 0, 1)
			s.launched(t, again, errs)
			for n := range got {
				if got[n].ID != again[n].ID {
					t.Errorf("NodeClaim %d had %s, and has %s", n, got[n].ID, again[n].ID)
				}
			}
		})
	}
}

// EC2 knows the token with other parameters, since prices have changed: the NodeClaims wait until EC2 shows the instances.
func TestResumedLaunchWaitsForTheInstancesOfTheOther(t *testing.T) {
	w := newFakeEC2()
	s := killedDuringBatch(t, w, 0.07, responseLost)
	_, errs := s.reconcile(t.Context(), false, 0, 1)
	s.waits(t, errs)
	calls := w.calls
	_, errs = s.reconcile(t.Context(), false, 0, 1)
	if s.waits(t, errs); w.calls != calls {
		t.Errorf("%d more calls were made with a token that EC2 knows", w.calls-calls)
	}
	w.time = w.time.Add(w.visible)
	got, errs := s.reconcile(t.Context(), false, 0, 1)
	s.launched(t, got, errs)
}

// A refusal states nothing about the call of the other process: the NodeClaims wait as long as an instance may be invisible.
func TestRefusedResumptionWaits(t *testing.T) {
	for name, did := range map[string]callOutcome{"nothing was launched": requestLost, "two were launched": responseLost} {
		t.Run(name, func(t *testing.T) {
			w := newFakeEC2()
			w.visible = time.Minute
			s := killedDuringBatch(t, w, 0.05, did)
			w.callOutcomes = []callOutcome{rejectedCall}
			_, errs := s.reconcile(t.Context(), false, 0, 1)
			s.waits(t, errs)
			_, errs = s.reconcile(t.Context(), false, 0, 1)
			s.waits(t, errs)
			w.time = w.time.Add(instance.VisibleWithin)
			got, errs := s.reconcile(t.Context(), false, 0, 1)
			s.launched(t, got, errs)
		})
	}
}

// One NodeClaim of two is resumed. The slot of the other is empty from then on, whatever EC2 has done before, and it is launched anew.
func TestOneOfTwoIsResumed(t *testing.T) {
	for name, did := range map[string]callOutcome{"killed before the call": requestLost, "killed after the call": responseLost} {
		t.Run(name, func(t *testing.T) {
			w := newFakeEC2()
			s := w.succeedGathering(killedDuringBatch(t, w, 0.05, did).orders, 0.05, batch.Window{Idle: time.Millisecond, Max: time.Hour, Items: 2})
			one, _ := s.reconcile(t.Context(), false, 1)
			other, errs := s.reconcile(t.Context(), false, 0)
			if errs[0] == nil {
				t.Fatalf("it is believed to be known what the other process has launched: %+v", other[0])
			}
			w.time = w.time.Add(instance.VisibleWithin)
			got, errs := s.reconcile(t.Context(), false, 0, 1)
			s.launched(t, got, errs)
			if one[1].ID != "" && one[1].ID != got[1].ID {
				t.Errorf("the NodeClaim had %s, and has %s", one[1].ID, got[1].ID)
			}
		})
	}
}

// A NodeClaim that is not as it was read may have an instance of a later launch: no call is made.
func TestStaleNodeClaimIsNotResumed(t *testing.T) {
	w := newFakeEC2()
	s := killedDuringBatch(t, w, 0.05, requestLost)
	calls := w.calls
	for range 2 {
		if _, errs := s.reconcile(t.Context(), true, 0, 1); !errors.Is(errs[0], errStale) || !errors.Is(errs[1], errStale) || w.calls != calls {
			t.Fatalf("%d calls for stale NodeClaims: %v", w.calls-calls, errs)
		}
	}
}

// The other process was only slow: its call comes after that of the next one, and EC2 refuses it.
func TestSlowProcessLaunchesNothingAfterAResumption(t *testing.T) {
	w := newFakeEC2()
	w.callOutcomes = []callOutcome{requestLost}
	slow := launchPair(t.Context(), w, func(int) {})
	s := w.succeed(slow.orders, 0.07)
	got, errs := s.reconcile(t.Context(), false, 0, 1)
	s.launched(t, got, errs)
	for n := range slow.orders {
		if i, found, err := slow.Adopt(t.Context(), slow.orders[n].Claim); found && i.ID != got[n].ID || !found && err == nil || len(w.instances) != 2 {
			t.Errorf("NodeClaim %d: found %v %s, %v; %d instances", n, found, i.ID, err, len(w.instances))
		}
	}
}

// The empty slots of a large batch launch do not fit in a tag: nothing is launched under its token.
func TestResumptionOfFewOfMany(t *testing.T) {
	w := newFakeEC2()
	var orders [2]Request
	for n := range orders {
		orders[n] = pricedOrder(0.05)
		orders[n].Claim.Name, orders[n].Claim.UID = fmt.Sprint("claim-", n), types.UID(fmt.Sprint("uid-", n))
		mark := cloudprovider.BatchSlot{Launch: "a1b2", Index: 400 * n, Of: 1000}.String()
		orders[n].Claim.Annotations = map[string]string{karpv1.AnnotationLaunch: mark}
	}
	s := w.succeed(orders, 0.05)
	_, errs := s.reconcile(t.Context(), false, 0, 1)
	s.waits(t, errs)
	_, errs = s.reconcile(t.Context(), false, 0, 1)
	if s.waits(t, errs); w.calls != 0 {
		t.Fatalf("%d calls were made", w.calls)
	}
	w.time = w.time.Add(instance.VisibleWithin)
	got, errs := s.reconcile(t.Context(), false, 0, 1)
	s.launched(t, got, errs)
}

// Two NodeClaims have the same slot, since somebody has copied one: one of them gets the instance.
func TestCopiedSlotIsResumedOnce(t *testing.T) {
	w := newFakeEC2()
	s := killedDuringBatch(t, w, 0.05, requestLost)
	s.orders[1].Claim.Annotations[karpv1.AnnotationLaunch] = s.orders[0].Claim.Annotations[karpv1.AnnotationLaunch]
	_, errs := s.reconcile(t.Context(), false, 0, 1)
	if (errs[0] == nil) == (errs[1] == nil) || len(w.instances) != 1 {
		t.Errorf("%d instances for one slot; errors %v", len(w.instances), errs)
	}
}
