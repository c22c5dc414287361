// Package health says of each NodePool whether its nodes register: by the last four of its NodeClaims that came
// to a decision, two of which may not have failed.
//
// The condition, NodeRegistrationHealthy, keeps nobody from launching. It tells people, and tools that look for a
// pool that works, that this one does not.
package health

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// remembered is how many outcomes count, and tolerated how many of them may be failures for the pool to be healthy. A
// pool that has fewer outcomes yet is judged as if the rest were successes.
const remembered, tolerated = 4, 1

// outcomes are the last registrations of a pool's claims, oldest first: true for those that came to be.
type outcomes []bool

func (o outcomes) with(registered bool) outcomes {
	out := append(append(outcomes{}, o...), registered)
	return out[max(0, len(out)-remembered):]
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

// NewTracker returns a Tracker that knows of none.
func NewTracker(c client.Client, now func() time.Time) *Tracker {
	return &Tracker{client: c, now: now, pools: map[types.UID]outcomes{}}
}

// Registered counts a claim whose node has registered.
func (t *Tracker) Registered(ctx context.Context, claim *karpv1.NodeClaim) error {
	return t.count(ctx, claim, true)
}

// Failed counts a claim that was given up because its launch or its registration took too long.
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
		return nil // the claim's pool has gone, and this is another of its name
	}
	healthy := t.add(uid, registered)
	return t.write(ctx, pool, func(pool *karpv1.NodePool) {
		switch {
		case registered && healthy:
			condition.SetTrue(pool, karpv1.ConditionNodeRegistrationHealthy, t.now())
		case !registered && !healthy && !condition.IsFalse(pool, karpv1.ConditionNodeRegistrationHealthy):
			reason, message := cause(claim)
			condition.SetFalse(pool, karpv1.ConditionNodeRegistrationHealthy, reason, message, t.now())
		}
	})
}

// owner is the UID of the pool that made the claim; empty if none did.
func owner(claim *karpv1.NodeClaim) types.UID {
	for _, o := range claim.OwnerReferences {
		if o.Kind == "NodePool" {
			return o.UID
		}
	}
	return ""
}

// cause is why a claim came to nothing.
func cause(claim *karpv1.NodeClaim) (reason, message string) {
	launched, _ := condition.Get(claim, karpv1.ConditionLaunched)
	if launched.Status == metav1.ConditionTrue {
		return "RegistrationFailed", "Failed to register node"
	}
	return launched.Reason, launched.Message
}

// write changes a pool's status, and reads the pool anew when somebody else was faster: the outcome is counted
// already, and the claim will not come to tell of it again.
func (t *Tracker) write(ctx context.Context, pool *karpv1.NodePool, change func(*karpv1.NodePool)) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		before := pool.DeepCopy()
		change(pool)
		if same(before, pool) {
			return nil
		}
		err := t.client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) || attempt == attempts {
			return client.IgnoreNotFound(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // for the cache to show what the other one wrote
		}
		if err := t.client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
}

func same(a, b *karpv1.NodePool) bool {
	x, hadX := condition.Get(a, karpv1.ConditionNodeRegistrationHealthy)
	y, hadY := condition.Get(b, karpv1.ConditionNodeRegistrationHealthy)
	return hadX == hadY && x == y && a.Status.NodeClassObservedGeneration == b.Status.NodeClassObservedGeneration
}

// add counts an outcome, and reports whether the pool is healthy with it.
func (t *Tracker) add(pool types.UID, registered bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pools[pool] = t.pools[pool].with(registered)
	return t.pools[pool].healthy()
}

// restore makes of a condition the outcomes that have led to it, if none are known: the process has started since.
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

// forget begins anew.
func (t *Tracker) forget(pool types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pools, pool)
}
