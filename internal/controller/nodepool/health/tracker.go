// Package health keeps the condition NodeRegistrationHealthy of each NodePool: whether its nodes register, judged by
// its last four NodeClaims with an outcome, of which at most one may have failed.
//
// The condition blocks no launches. It shows people, and tools that look for a working pool, that this one does not
// work.
package health

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// window sets how many outcomes count, and tolerated how many of them may be failures in a healthy pool. A pool with
// fewer outcomes is judged as if the others were successes. The values are Karpenter's.
const window, tolerated = 4, 1

// outcomes are the last outcomes of a pool's claims, oldest first: true for a registered node.
type outcomes []bool

func (o outcomes) with(registered bool) outcomes {
	out := append(append(outcomes{}, o...), registered)
	return out[max(0, len(out)-window):]
}

func (o outcomes) healthy() bool {
	failures := 0
	for _, registered := range o {
		if !registered {
			failures++
		}
	}
	return failures <= tolerated
}

// Tracker counts outcomes by pool. It is safe for concurrent use.
type Tracker struct {
	client client.Client
	now    func() time.Time

	mu    sync.Mutex
	pools map[types.UID]outcomes
}

// NewTracker returns a Tracker without outcomes.
func NewTracker(c client.Client, now func() time.Time) *Tracker {
	return &Tracker{client: c, now: now, pools: map[types.UID]outcomes{}}
}

// Registered counts a claim with a node that has registered.
func (t *Tracker) Registered(ctx context.Context, claim *karpv1.NodeClaim) error {
	return t.count(ctx, claim, true)
}

// Failed counts a claim that was deleted because its launch or its registration took too long.
func (t *Tracker) Failed(ctx context.Context, claim *karpv1.NodeClaim) error {
	return t.count(ctx, claim, false)
}

func (t *Tracker) count(ctx context.Context, claim *karpv1.NodeClaim, registered bool) error {
	name := claim.Labels[karpv1.LabelNodePool]
	uid := owner(claim)
	if name == "" || uid == "" {
		return nil
	}
	pool := &karpv1.NodePool{}
	if err := t.client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pool.UID != uid {
		return nil // the claim's pool was deleted, and this one reuses its name
	}
	healthy := t.add(uid, registered)
	return t.writeStatus(ctx, pool, func(pool *karpv1.NodePool) {
		switch {
		case registered && healthy:
			condition.SetTrue(pool, karpv1.ConditionNodeRegistrationHealthy, t.now())
		case !registered && !healthy && !condition.IsFalse(pool, karpv1.ConditionNodeRegistrationHealthy):
			reason, message := cause(claim)
			condition.SetFalse(pool, karpv1.ConditionNodeRegistrationHealthy, condition.Because(reason, message), t.now())
		}
	})
}

// owner returns the UID of the pool that created the claim; empty if none did.
func owner(claim *karpv1.NodeClaim) types.UID {
	for _, o := range claim.OwnerReferences {
		if o.Kind == "NodePool" {
			return o.UID
		}
	}
	return ""
}

// cause returns why a claim failed.
func cause(claim *karpv1.NodeClaim) (reason, message string) {
	launched, _ := condition.Get(claim, karpv1.ConditionLaunched)
	if launched.Status == metav1.ConditionTrue {
		return "RegistrationFailed", "Failed to register node"
	}
	return launched.Reason, launched.Message
}

// conflictBackoff gives the cache the time to show what another writer has written.
var conflictBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Steps: 5}

// writeStatus changes a pool's status, and repeats that on the current pool after a conflict: the outcome is counted
// already, and no later reconcile of the claim would write it.
func (t *Tracker) writeStatus(ctx context.Context, pool *karpv1.NodePool, change func(*karpv1.NodePool)) error {
	var conflict error
	err := wait.ExponentialBackoffWithContext(ctx, conflictBackoff, func(ctx context.Context) (done bool, err error) {
		if conflict != nil {
			if err := t.client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
				return false, err
			}
		}
		before := pool.DeepCopy()
		change(pool)
		if unchanged(before, pool) {
			return true, nil
		}
		_, err = patch.StatusFrom(ctx, t.client, before, pool)
		if apierrors.IsConflict(err) {
			conflict = err
			return false, nil
		}
		return true, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return conflict // in every attempt
	}
	return client.IgnoreNotFound(err)
}

func unchanged(a, b *karpv1.NodePool) bool {
	x, hadX := condition.Get(a, karpv1.ConditionNodeRegistrationHealthy)
	y, hadY := condition.Get(b, karpv1.ConditionNodeRegistrationHealthy)
	return hadX == hadY && x == y && a.Status.NodeClassObservedGeneration == b.Status.NodeClassObservedGeneration
}

// add counts an outcome, and reports whether the pool is healthy now.
func (t *Tracker) add(pool types.UID, registered bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pools[pool] = t.pools[pool].with(registered)
	return t.pools[pool].healthy()
}

// restore derives outcomes from the condition if there are none: after a restart of the process.
func (t *Tracker) restore(pool types.UID, status metav1.ConditionStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pools[pool]) > 0 {
		return
	}
	switch status {
	case metav1.ConditionTrue:
		t.pools[pool] = outcomes{true}
	case metav1.ConditionFalse:
		t.pools[pool] = outcomes{false, false}
	}
}

// forget removes the outcomes of a pool.
func (t *Tracker) forget(pool types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pools, pool)
}
