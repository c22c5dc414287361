package launch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// claims are NodeClaims as in the API server, with their launch annotations.
type claims struct {
	mu          sync.Mutex
	annotations map[types.UID]string
	// conflict holds those that change before they are annotated.
	conflict map[types.UID]bool
}

// order is the launch request for a NodeClaim as it is now.
func (c *claims) order(uid types.UID, price float64) Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := pricedOrder(price)
	o.Claim.Name, o.Claim.UID = string(uid), uid
	o.Claim.Annotations = map[string]string{karpv1.AnnotationLaunch: c.annotations[uid]}
	return o
}

// attempt does what a reconciler does with each NodeClaim, with all at the same time.
func (c *claims) attempt(ctx context.Context, l *Launcher, price float64, uids ...types.UID) map[types.UID]error {
	out := map[types.UID]error{}
	var group sync.WaitGroup
	for _, uid := range uids {
		o := c.order(uid, price)
		group.Go(func() {
			err := c.launch(ctx, l, o)
			c.mu.Lock()
			defer c.mu.Unlock()
			out[uid] = err
		})
	}
	group.Wait()
	return out
}

func (c *claims) launch(ctx context.Context, l *Launcher, o Request) error {
	mark := o.Claim.Annotations[karpv1.AnnotationLaunch]
	if _, adopted, err := l.Adopt(ctx, o.Claim); err != nil || adopted {
		return err
	}
	if mark == "" {
		_, err := l.Launch(ctx, o, nil)
		return err
	}
	_, err := l.LaunchInBatch(ctx, o, func(_ context.Context, next string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conflict[o.Claim.UID] || c.annotations[o.Claim.UID] != mark {
			return errors.New("conflict: the claim has changed")
		}
		c.annotations[o.Claim.UID] = next
		return nil
	})
	return err
}

// gathering is a launcher that launches n NodeClaims in one call; fewer if no other arrives for that long.
func (w *fakeEC2) gathering(n int, idle time.Duration) *Launcher {
	p := w.start(pricedOrder(0.05))
	cfg := p.cfg
	cfg.Window = batch.Window{Idle: idle, Max: idle, Items: n}
	return New(cfg)
}

func isOutcomeUnknown(err error) bool {
	var create *cloudprovider.CreateError
	return errors.As(err, &create) && create.Reason == ReasonOutcomeUnknown
}

// EC2 rejects a call for two NodeClaims, and one of them changes before the retry. This process knows the outcome
// itself and need not wait two minutes.
func TestRejectedClaimCanLaunchAfterAConflict(t *testing.T) {
	w := newFakeEC2()
	l := w.gathering(2, time.Minute)
	c := &claims{
		annotations: map[types.UID]string{"a": cloudprovider.Unlaunched, "b": cloudprovider.Unlaunched},
		conflict:    map[types.UID]bool{},
	}
	w.callOutcomes = []callOutcome{rejectedCall, rejectedCall}
	for uid, err := range c.attempt(t.Context(), l, 0.05, "a", "b") {
		if err == nil || isOutcomeUnknown(err) || c.annotations[uid] == cloudprovider.Unlaunched {
			t.Fatalf("claim %s says %q: %v", uid, c.annotations[uid], err)
		}
	}
	c.conflict["a"] = true
	for uid, err := range c.attempt(t.Context(), l, 0.05, "a", "b") {
		if err == nil || isOutcomeUnknown(err) {
			t.Fatalf("second attempt for %s: %v", uid, err)
		}
	}
	c.conflict["a"] = false
	w.callOutcomes = nil
	for uid, err := range c.attempt(t.Context(), l, 0.05, "a", "b") {
		if err != nil {
			t.Errorf("third attempt for %s: %v", uid, err)
		}
	}
	if len(w.instances) != 2 {
		t.Errorf("%d instances, want one for each claim", len(w.instances))
	}
}

// A single launch that was rejected can be retried with other prices at once, even if EC2 remembers the token of a
// rejected call. The cache may still show the slot of an earlier batch launch.
func TestRejectedClaimCanLaunchWithOtherPrices(t *testing.T) {
	w := newFakeEC2()
	l := w.gathering(1, time.Minute)
	c := &claims{annotations: map[types.UID]string{"a": cloudprovider.Unlaunched}, conflict: map[types.UID]bool{}}
	stale := c.order("a", 0.06)
	stale.Claim.Annotations[karpv1.AnnotationLaunch] = cloudprovider.BatchSlot{Launch: "earlier", Index: 0, Of: 2}.String()
	w.callOutcomes = []callOutcome{rejectedWithToken}
	if err := c.attempt(t.Context(), l, 0.05, "a")["a"]; err == nil || isOutcomeUnknown(err) {
		t.Fatalf("first attempt: %v", err)
	}
	if err := c.launch(t.Context(), l, stale); err == nil || isOutcomeUnknown(err) {
		t.Fatalf("attempt by a cache that lags: %v", err)
	}
	if err := c.attempt(t.Context(), l, 0.07, "a")["a"]; err != nil || len(w.instances) != 1 {
		t.Errorf("%d instances: %v", len(w.instances), err)
	}
}

// Whatever EC2 rejects, and however NodeClaims change in between: while each call is answered and the process lives, no
// outcome is unknown, and no NodeClaim gets two instances.
func TestNoOutcomeIsUnknownWhileEachCallIsAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newFakeEC2()
		w.visible = time.Minute
		l := w.gathering(3, 5*time.Millisecond)
		all := []types.UID{"a", "b", "c"}
		c := &claims{annotations: map[types.UID]string{}, conflict: map[types.UID]bool{}}
		for _, uid := range all {
			c.annotations[uid] = cloudprovider.Unlaunched
		}
		bad := []callOutcome{rejectedCall, rejectedWithToken, noCapacity, templateGone}
		for range rapid.IntRange(1, 6).Draw(t, "attempts") {
			w.callOutcomes = rapid.SliceOfN(rapid.SampledFrom(append(bad, served)), 0, 4).Draw(t, "fates")
			var now []types.UID
			for _, uid := range all {
				if rapid.Bool().Draw(t, "try "+string(uid)) {
					now = append(now, uid)
				}
				c.conflict[uid] = rapid.Bool().Draw(t, "change "+string(uid))
			}
			price := rapid.SampledFrom([]float64{0.05, 0.06}).Draw(t, "price")
			for uid, err := range c.attempt(context.Background(), l, price, now...) {
				if isOutcomeUnknown(err) {
					t.Fatalf("the outcome for claim %s is unknown: %v", uid, err)
				}
			}
			w.time = w.time.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "seconds")) * time.Second)
		}
		w.callOutcomes, c.conflict = nil, map[types.UID]bool{}
		for range 2 {
			c.attempt(context.Background(), l, 0.05, all...)
		}
		if len(w.instances) != len(all) {
			t.Fatalf("%d instances for %d claims", len(w.instances), len(all))
		}
	})
}
