package join

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// minStuck sets how many nodes of a scope must be stuck at once before its breaker opens. One node may have a fault of
// its own, so the first is replaced without a delay.
const minStuck = 2

// causeNoneJoins is the cause that a pool shows while none of its nodes join and no check explains it.
const causeNoneJoins = "NodesDoNotJoin"

// progressWindow sets how long an initialized node proves that others of its class and pool can be. With hundreds of
// nodes at a time, a component may take longer over one node than its grace period, and fewer launches do not make it
// faster.
const progressWindow = time.Minute

// standstills are the claims that have joined and outlived their grace period, and the evidence that others do not. The
// Reconciler's mutex guards them.
type standstills struct {
	// stuck are the scopes of claims that have outlived their grace period.
	stuck map[types.UID][]string
	// progress is the time when a node of a scope last passed what others of it wait for.
	progress map[string]time.Time
}

// recordProgress records that a node of the scopes has passed at that time.
func (s *standstills) recordProgress(at time.Time, scopes ...string) {
	if s.progress == nil {
		s.progress = map[string]time.Time{}
	}
	for _, scope := range scopes {
		if at.After(s.progress[scope]) {
			s.progress[scope] = at
		}
	}
}

// setStuck records the scopes in which a claim is stuck, none if it is not. It returns whether it was before.
func (s *standstills) setStuck(claim types.UID, scopes []string) (was bool) {
	if s.stuck == nil {
		s.stuck = map[types.UID][]string{}
	}
	_, was = s.stuck[claim]
	delete(s.stuck, claim)
	if len(scopes) > 0 {
		s.stuck[claim] = scopes
	}
	return was
}

// still returns those of the scopes, in their order, in which at least minStuck claims are stuck, and no node has passed within
// progressWindow.
func (s *standstills) still(scopes []string, now time.Time) []string {
	var out []string
	for _, scope := range scopes {
		n := 0
		for _, of := range s.stuck {
			if slices.Contains(of, scope) {
				n++
			}
		}
		if n >= minStuck && now.Sub(s.progress[scope]) >= progressWindow {
			out = append(out, scope)
		}
	}
	return out
}

// checkUsable follows a claim that has joined until its node is initialized. Two stuck claims of a scope open its
// breaker, unless the component that they wait for is at work. A taint holds back the class if no node of it passes, else
// the pool if none of the pool does.
func (r *Reconciler) checkUsable(ctx context.Context, claim *karpv1.NodeClaim, class string) error {
	pool := claim.Labels[karpv1.LabelNodePool]
	taint, poolTaint, notReady := taintScope(class), poolTaintScope(pool, class), notReadyScope(pool, class)
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	var scopes []string
	if claim.DeletionTimestamp == nil {
		scopes = map[string][]string{
			cluster.ReasonTaintStuck: {taint, poolTaint}, cluster.ReasonNotReadyStuck: {notReady},
		}[initialized.Reason]
	}
	passed := initialized.Status == metav1.ConditionTrue
	r.mu.Lock()
	was := r.standstills.setStuck(claim.UID, scopes)
	if passed {
		r.standstills.recordProgress(initialized.LastTransitionTime.Time, taint, poolTaint, notReady)
	}
	still := r.standstills.still(scopes, r.Now())
	r.mu.Unlock()
	switch {
	case passed:
		at := initialized.LastTransitionTime.Time
		if now := r.Now(); was && now.After(at) {
			at = now // it was stuck when the breaker opened, maybe within the same second
		}
		r.Breakers.Joined([]string{taint, poolTaint, notReady}, at)
		return nil
	case len(scopes) == 0:
		return nil
	}
	r.count(claim, initialized.Reason)
	if len(still) > 0 {
		atWork, err := r.removerAtWork(ctx, claim)
		if err != nil {
			return err
		}
		if !atWork {
			r.Breakers.Report(
				cloudprovider.Finding{Cause: initialized.Reason, Certainty: cloudprovider.Certain, Scope: still[0], Message: initialized.Message},
			)
		}
	}
	r.Breakers.Failed(claim.UID)
	return nil
}

// removerAtWork reports whether the taint that the claim's node waits for has been removed from any node in the last
// minutes.
func (r *Reconciler) removerAtWork(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 || !cluster.NodeReady(&nodes[0]) {
		return false, err
	}
	return r.Removals.OwnerActive(claim, &nodes[0], r.Now()), nil
}

// timedOut opens the breaker of a pool and class after the registration timeout of a claim, if its cause holds back
// nothing else. Nodes that have joined since its launch show that the cause is its own.
func (r *Reconciler) timedOut(claim *karpv1.NodeClaim, cause string, launched time.Time) {
	pool, class := claim.Labels[karpv1.LabelNodePool], claim.Spec.NodeClassRef.Name
	scope := joinScope(pool, class)
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	r.mu.Lock()
	others := r.standstills.progress[scope].After(launched)
	covered := r.claims[claim.UID].covered
	r.mu.Unlock()
	if others || covered || claim.DeletionTimestamp.Before(&metav1.Time{Time: registered.LastTransitionTime.Add(r.Timeout)}) {
		return
	}
	if cause == cloudprovider.CauseUnknown {
		cause = causeNoneJoins
	}
	r.Breakers.Report(cloudprovider.Finding{
		Cause: cause, Certainty: cloudprovider.Certain, Scope: scope,
		Message: fmt.Sprintf("no instance of NodePool %s and EC2NodeClass %s has become a node since the launch of NodeClaim %s, "+
			"which was terminated after %v: %s",
			pool, class, claim.Name, r.Timeout, registered.Message),
	})
}
