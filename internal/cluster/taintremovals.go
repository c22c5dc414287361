package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// TaintOwnerWindow sets how long the removal of a startup taint from any node proves that the taint's owner works. A
	// throttled owner may need a minute for one node; one that has removed none for two minutes has most likely
	// stopped.
	TaintOwnerWindow = 2 * time.Minute
	// maxLag limits how much older a node may be than others that the owner has untainted since. Owners process nodes
	// roughly in the order of creation; a node that lags by more has been skipped, however busy the owner is.
	maxLag = 5 * time.Minute
)

// TaintRemovals tracks when each startup taint was last removed from any node. A recent removal proves that the taint's
// owner works: nodes that still have the taint are late, not stuck. It is safe for concurrent use. A nil *TaintRemovals
// has no removals.
type TaintRemovals struct {
	mu     sync.Mutex
	last   map[string]removal // by the taint's key
	primed bool
}

// removal is the last removal of a taint.
type removal struct {
	at time.Time
	// joined is the creation time of the youngest node that the taint was removed from.
	joined time.Time
}

// NewTaintRemovals returns empty TaintRemovals.
func NewTaintRemovals() *TaintRemovals { return &TaintRemovals{last: map[string]removal{}} }

// Observe records the taints that a node had before and no longer has.
func (t *TaintRemovals) Observe(before, after *corev1.Node, now time.Time) {
	if t == nil {
		return
	}
	for i := range before.Spec.Taints {
		gone := &before.Spec.Taints[i]
		if !slices.ContainsFunc(after.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(gone) }) {
			t.record(gone.Key, removal{at: now, joined: after.CreationTimestamp.Time})
		}
	}
}

// Prime records, once, the removals from nodes that were initialized before this process started: they have neither the
// taint of the cloud controller manager nor their startup taints.
func (t *TaintRemovals) Prime(ctx context.Context, r client.Reader) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	primed := t.primed
	t.mu.Unlock()
	if primed {
		return nil
	}
	var claims karpv1.NodeClaimList
	if err := r.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
		if initialized.Status != metav1.ConditionTrue {
			continue
		}
		registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
		seen := removal{at: initialized.LastTransitionTime.Time, joined: registered.LastTransitionTime.Time}
		t.record(snapshot.TaintUninitialized, seen)
		for _, taint := range claim.Spec.StartupTaints {
			t.record(taint.Key, seen)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.primed = true
	return nil
}

func (t *TaintRemovals) record(key string, seen removal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.last[key]
	if seen.at.After(known.at) {
		known.at = seen.at
	}
	if seen.joined.After(known.joined) {
		known.joined = seen.joined
	}
	t.last[key] = known
}

// LateUntil is until when a node that still has the taint counts as late, because the taint's owner has recently
// removed it from another node and has not skipped this one. It is zero otherwise.
func (t *TaintRemovals) LateUntil(node *corev1.Node, taint *corev1.Taint) time.Time {
	if t == nil {
		return time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.last[taint.Key]
	if known.at.IsZero() || known.joined.Sub(node.CreationTimestamp.Time) > maxLag {
		return time.Time{}
	}
	return known.at.Add(TaintOwnerWindow)
}

// OwnerActive reports whether the owner of the node's startup taint has removed that taint from any node within
// TaintOwnerWindow.
func (t *TaintRemovals) OwnerActive(claim *karpv1.NodeClaim, node *corev1.Node, now time.Time) bool {
	if t == nil {
		return false
	}
	taint := StartupTaint(claim, node)
	if taint == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.last[taint.Key].at
	return !at.IsZero() && now.Before(at.Add(TaintOwnerWindow))
}

// StartupTaint returns the first taint of a node that must be removed before the node can be used: one of its
// NodePool's startup taints, or a well-known ephemeral taint; nil if it has none.
func StartupTaint(claim *karpv1.NodeClaim, node *corev1.Node) *corev1.Taint {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		startup := slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(t) })
		if startup || snapshot.KnownEphemeral(t) {
			return t
		}
	}
	return nil
}
