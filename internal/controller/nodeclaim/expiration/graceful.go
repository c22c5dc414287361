package expiration

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// graceful is how long an expired claim waits for the sake of its pool's annotation; 0 if it goes now. An annotation that cannot be read
// states no grace, but those who wrote it did not want all nodes to go at once: the limit of a minute holds.
func (r *Reconciler) graceful(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	pool := &karpv1.NodePool{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.LabelNodePool]}, pool)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	e, invalid := pool.Expiration()
	if err != nil || invalid == nil && (e == nil || e.Mode != karpv1.ExpirationGraceful) {
		return 0, nil
	}
	var grace time.Duration
	if e != nil {
		grace = e.Grace
	}
	now := r.Now()
	if wait := claim.CreationTimestamp.Add(*claim.Spec.ExpireAfter.Duration + grace).Sub(now); wait > 0 {
		return min(wait, heldRecheck), nil // the annotation may change
	}
	if r.Most == (disrupt.Forced{}) || claim.Status.NodeName == "" { // nothing runs on a node that has not come
		return 0, nil
	}
	var list karpv1.NodeClaimList
	if err := r.Client.List(ctx, &list, client.MatchingLabels{karpv1.LabelNodePool: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	gone, err := r.Guard.Budget.DeletedThisMinute(ctx, pool.Name, destroy.Expired)
	if err != nil {
		return 0, err
	}
	left := slices.DeleteFunc(slices.Clone(list.Items), func(c karpv1.NodeClaim) bool { return c.DeletionTimestamp != nil })
	most := r.Most.PerMinute(len(left) + gone)
	if earlier(left, claim) < most-gone {
		return 0, nil
	}
	r.Events.WarnEvery(heldEventWindow, pool, "ExpirationBehind",
		"Expired nodes stay for minutes: at most %d nodes of the NodePool are deleted per minute (--max-forced-expirations), the oldest first", most)
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now), nil
}

// earlier counts the claims that expire before another. Claims that have not expired come later in any case.
func earlier(claims []karpv1.NodeClaim, than *karpv1.NodeClaim) (n int) {
	expires := func(c *karpv1.NodeClaim) time.Time { return c.CreationTimestamp.Add(*c.Spec.ExpireAfter.Duration) }
	for i := range claims {
		c := &claims[i]
		if c.Spec.ExpireAfter.Duration == nil || c.Status.NodeName == "" || c.Name == than.Name {
			continue
		}
		if cmp.Or(expires(c).Compare(expires(than)), strings.Compare(c.Name, than.Name)) < 0 {
			n++
		}
	}
	return n
}
