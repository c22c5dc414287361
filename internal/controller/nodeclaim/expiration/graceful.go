package expiration

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// DefaultMost is Most without a setting: the last nodes of a pool are gone within some ten minutes of their deadline.
const DefaultMost = "10%"

// Most is how many expired nodes of a pool with karpv1.AnnotationExpiration are deleted in a minute of the clock, whatever budgets allow.
// The zero value does not limit it.
type Most struct {
	// Percent is of the pool's nodes, at least one node. Nodes is used where it is 0.
	Percent, Nodes int
}

// ParseMost reads the setting max-forced-expirations: a number of nodes, or a share of the pool such as 10%; 0 for no limit.
func ParseMost(text string) (Most, error) {
	number, isShare := strings.CutSuffix(cmp.Or(text, DefaultMost), "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || isShare && n > 100 {
		return Most{}, fmt.Errorf("%q is neither a number of nodes nor a share such as %s", text, DefaultMost)
	}
	if isShare {
		return Most{Percent: n}, nil
	}
	return Most{Nodes: n}, nil
}

// of is how many nodes of a pool with so many may be deleted in a minute; 0 for any number.
func (m Most) of(nodes int) int {
	if m.Percent > 0 {
		return max(1, nodes*m.Percent/100)
	}
	return m.Nodes
}

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
	if r.Most == (Most{}) || claim.Status.NodeName == "" { // nothing runs on a node that has not come
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
	most := r.Most.of(len(list.Items))
	if earlier(list.Items, claim) < most-gone {
		return 0, nil
	}
	r.Events.WarnEvery(heldEventWindow, pool, "ExpirationBehind",
		"Expired nodes stay for minutes: at most %d nodes of the NodePool are deleted per minute (--max-forced-expirations), the oldest first", most)
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now), nil
}

// earlier counts the claims that are not being deleted and expire before another. Claims that have not expired come later in any case.
func earlier(claims []karpv1.NodeClaim, than *karpv1.NodeClaim) (n int) {
	expires := func(c *karpv1.NodeClaim) time.Time { return c.CreationTimestamp.Add(*c.Spec.ExpireAfter.Duration) }
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil || c.Spec.ExpireAfter.Duration == nil || c.Status.NodeName == "" || c.Name == than.Name {
			continue
		}
		if cmp.Or(expires(c).Compare(expires(than)), strings.Compare(c.Name, than.Name)) < 0 {
			n++
		}
	}
	return n
}
