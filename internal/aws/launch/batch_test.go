package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// batchOfTwo is two NodeClaims of one batch launch, and the result of each.
type batchOfTwo struct {
	*process
	orders [2]Request
	errs   [2]error
}

// launchPair launches two NodeClaims in one batch. written is called after each annotation is written.
func launchPair(ctx context.Context, w *fakeEC2, written func(n int)) *batchOfTwo {
	p := &batchOfTwo{process: w.startGathering(pricedOrder(0.05), batch.Window{Idle: time.Hour, Max: time.Hour, Items: 2})}
	var launches sync.WaitGroup
	for n := range p.orders {
		p.orders[n] = pricedOrder(0.05)
		claim := p.orders[n].Claim
		claim.Name, claim.UID = fmt.Sprint("claim-", n), types.UID(fmt.Sprint("uid-", n))
		claim.Annotations = map[string]string{karpv1.AnnotationLaunch: cloudprovider.Unlaunched}
		asRead := p.orders[n]
		asRead.Claim = claim.DeepCopy()
		launches.Go(func() {
			_, p.errs[n] = p.LaunchInBatch(ctx, asRead, func(_ context.Context, mark string) error {
				claim.Annotations[karpv1.AnnotationLaunch] = mark
				written(n)
				return nil
			})
		})
	}
	launches.Wait()
	return p
}

// The response of a call is lost, although EC2 has launched both instances, and EC2 rejects the next call. The
// rejection proves nothing about the first call: neither NodeClaim may be launched again.
func TestRejectionAfterALostResponseLaunchesNothingTwice(t *testing.T) {
	w := newFakeEC2()
	w.visible = time.Minute
	w.callOutcomes = []callOutcome{responseLost, rejectedCall}
	p := launchPair(t.Context(), w, func(int) {})
	for n, err := range p.errs {
		if err == nil {
			t.Fatalf("claim %d read the lost answer", n)
		}
	}
	if _, found, err := p.Adopt(t.Context(), p.orders[0].Claim); found || err == nil {
		t.Errorf("after the refusal it is believed to be known that nothing was launched: found %v, %v", found, err)
	}
	for n, o := range p.orders {
		if !p.InProgress(string(o.Claim.UID)) {
			t.Errorf("claim %d: its instance, once EC2 shows it, would be collected", n)
		}
		if found, err := p.Find(t.Context(), o.Claim); err == nil {
			t.Errorf("claim %d: it is believed to be known what was launched: %d instances", n, len(found))
		}
	}
	ids := map[string]bool{}
	for n, o := range p.orders { // EC2 returns the same response
		i, found, err := p.Adopt(t.Context(), o.Claim)
		if !found || err != nil {
			t.Fatalf("claim %d has no instance: %v", n, err)
		}
		ids[i.ID] = true
	}
	if len(w.instances) != 2 || len(ids) != 2 {
		t.Errorf("%d instances were launched for two claims, which have %v", len(w.instances), ids)
	}
}

// Annotating takes so long that another process may conclude that no call was made: then none is made.
func TestBatchLaunchIsSkippedWhenAnnotatingTakesTooLong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		calls int
	}{
		{"30 s", annotateTimeout, 1},
		{"longer than 30 s", annotateTimeout + time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFakeEC2()
			p := launchPair(t.Context(), w, func(n int) {
				if n == 0 {
					w.time = w.time.Add(tt.takes)
				}
			})
			if w.calls != tt.calls || len(w.instances) != 2*tt.calls {
				t.Fatalf("EC2 was called %d times and launched %d instances, want %d calls", w.calls, len(w.instances), tt.calls)
			}
			for n, err := range p.errs {
				if late := err != nil && strings.Contains(err.Error(), "took too long"); late != (tt.calls == 0) || !late && err != nil {
					t.Errorf("claim %d: %v", n, err)
				}
				if tt.calls > 0 {
					continue
				}
				if _, found, err := p.Adopt(t.Context(), p.orders[n].Claim); found || err != nil {
					t.Errorf("claim %d cannot be launched anew: found %v, %v", n, found, err)
				}
				var create *cloudprovider.CreateError
				if _, err := p.Launch(t.Context(), p.orders[n], nil); errors.As(err, &create) {
					t.Errorf("claim %d is not launched anew: %v", n, err)
				}
			}
		})
	}
}
