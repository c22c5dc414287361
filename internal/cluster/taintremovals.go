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
	// RemoverAtWork is for how long the removal of a startup taint from any node shows that its owner works. An owner that is
	// throttled may well need a minute for one node; one that has done nothing for two has most likely stopped.
	RemoverAtWork = 2 * time.Minute
	// overtakenBy is by how much a node may be older than others that the owner has finished since. Owners take nodes more or less
	// in the order in which they come; one that is left behind by this much is left out, however busy the owner is.
	overtakenBy = 5 * time.Minute
)

// TaintRemovals remembers when each startup taint was last removed from a node, whatever node that was. Its owner is at work then:
// nodes that still have the taint are late, not lost. It is safe for concurrent use. A nil *TaintRemovals knows of none.
type TaintRemovals struct {
	mu     sync.Mutex
	last   map[string]removal // by the taint's key
	primed bool
}

// removal is what is known of the removals of a taint.
type removal struct {
	at time.Time
	// joined is when the youngest node was created that the taint was removed from.
	joined time.Time
}

// NewTaintRemovals returns TaintRemovals of which none is known yet.
func NewTaintRemovals() *TaintRemovals { return &TaintRemovals{last: map[string]removal{}} }

// Observe notes the taints that a node had before, and has not after.
func (t *TaintRemovals) Observe(before, after *corev1.Node, now time.Time) {
	if t == nil {
		return
	}
	for i := range before.Spec.Taints {
		gone := &before.Spec.Taints[i]
		if !slices.ContainsFunc(after.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(gone) }) {
			t.note(gone.Key, removal{at: now, joined: after.CreationTimestamp.Time})
		}
	}
}

// Prime learns, once, from the claims that were initialized before this process began: their nodes are free of the taint of the cloud
// controller manager and of their startup taints.
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
		t.note(snapshot.TaintUninitialized, seen)
		for _, taint := range claim.Spec.StartupTaints {
			t.note(taint.Key, seen)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.primed = true
	return nil
}

func (t *TaintRemovals) note(key string, seen removal) {
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

// LateUntil is until when a node that still has the taint counts as late: the owner of the taint has removed it from another node
// in the last minutes, and has not left this one behind. It is zero where that is not so.
func (t *TaintRemovals) LateUntil(node *corev1.Node, taint *corev1.Taint) time.Time {
	if t == nil {
		return time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.last[taint.Key]
	if known.at.IsZero() || known.joined.Sub(node.CreationTimestamp.Time) > overtakenBy {
		return time.Time{}
	}
	return known.at.Add(RemoverAtWork)
}

// AtWork reports whether the owner of any taint of the node that is one of its startup taints has removed it from a node in the
// last minutes.
func (t *TaintRemovals) AtWork(claim *karpv1.NodeClaim, node *corev1.Node, now time.Time) bool {
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
	return !at.IsZero() && now.Before(at.Add(RemoverAtWork))
}

// StartupTaint returns the first taint of a node that is to go before it can be used, one of its NodePool's startup taints or of
// those that are known to go; nil if it has none.
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
