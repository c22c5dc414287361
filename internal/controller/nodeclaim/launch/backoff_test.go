package launch

import (
	"errors"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// What an attempt writes to its claim triggers the reconciler. That must not repeat within the same second what EC2 has
// just refused: the backoff holds, and doubles with each further failure.
func TestFailedLaunchIsNotRepeatedWithinTheSameSecond(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{mark: "-", err: &cloudprovider.CreateError{Reason: "LaunchFailed", Message: "You are not authorized"}}
	r := reconciler(f, s)
	attempts := 0
	for _, pause := range []time.Duration{initialBackoff, 2 * initialBackoff, 4 * initialBackoff, 8 * initialBackoff, 16 * initialBackoff, maxBackoff, maxBackoff} {
		if _, err := f.Try(r, "a"); err == nil {
			t.Fatal("the failure is not reported")
		}
		if attempts++; s.launched != attempts {
			t.Fatalf("EC2 was called %d times, want %d", s.launched, attempts)
		}
		left := pause
		for _, rest := range []time.Duration{pause, time.Second} {
			f.Clock = f.Clock.Add(left - rest)
			left = rest
			if result := f.Reconcile(r, "a"); s.launched != attempts || result.RequeueAfter != rest {
				t.Fatalf(
					"after failure %d, with %v to wait: EC2 was called %d times, and the claim is requeued after %v",
					attempts,
					rest,
					s.launched,
					result.RequeueAfter,
				)
			}
		}
		f.Clock = f.Clock.Add(left)
	}
	s.err = nil
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	if n := len(r.backoffs.claims); n > 0 {
		t.Errorf("%d backoffs are kept of claims that have their instances", n)
	}
}

// A claim of the same name is another one, and a conflict is no failure.
func TestPauseIsThatOfOneClaim(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{err: errors.New("boom")}
	r := reconciler(f, s)
	if _, err := f.Try(r, "a"); err == nil {
		t.Fatal("the failure is not reported")
	}
	other := f.Claim("a")
	other.UID = "another"
	if rest := r.backoffs.remaining(other, f.Clock); rest > 0 {
		t.Errorf("another claim of the name rests for %v", rest)
	}
	if rest := r.backoffs.remaining(f.Claim("a"), f.Clock); rest != initialBackoff {
		t.Errorf("the claim rests for %v, want %v", rest, initialBackoff)
	}
	gone := f.Claim("a")
	gone.Finalizers = nil
	f.Do(f.API.Update(f.Context(), gone))
	f.Do(f.API.Delete(f.Context(), gone))
	f.Reconcile(r, "a")
	if len(r.backoffs.claims) > 0 {
		t.Error("the pause of a claim that is gone is kept")
	}
}
