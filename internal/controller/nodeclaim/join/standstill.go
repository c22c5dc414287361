package join

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// enoughStuck is how many nodes of a scope wait beyond their time at once before no more are launched: the first is replaced
// once, since it may be its own fault.
const enoughStuck = 2

// causeNoneJoins is the cause that a pool shows while none of its nodes join and nothing explains it.
const causeNoneJoins = "NodesDoNotJoin"

// atWork is for how long a node that was initialized shows that others of its class and pool can be. With hundreds of nodes at
// a time it may well take longer over one than that node is given, and launching less does not make it faster.
const atWork = time.Minute

// standstills are the claims that have joined and wait beyond their time, and what shows that others do not. They are guarded by
// the Reconciler's mutex.
type standstills struct {
	// stuck are the scopes of claims that wait beyond their time.
	stuck map[types.UID]string
	// done is when a node of a scope last passed what others of it wait for.
	done map[string]time.Time
}

// pass notes that a node of the scopes has passed at that time.
func (s *standstills) pass(at time.Time, scopes ...string) {
	if s.done == nil {
		s.done = map[string]time.Time{}
	}
	for _, scope := range scopes {
		if at.After(s.done[scope]) {
			s.done[scope] = at
		}
	}
}

// wait notes the scope of a claim that waits beyond its time, empty if it does not, and returns how many of the scope do, and
// whether the claim did when it was last looked at.
func (s *standstills) wait(claim types.UID, scope string) (n int, did bool) {
	if s.stuck == nil {
		s.stuck = map[types.UID]string{}
	}
	_, did = s.stuck[claim]
	delete(s.stuck, claim)
	if scope == "" {
		return 0, did
	}
	s.stuck[claim] = scope
	for _, other := range s.stuck {
		if other == scope {
			n++
		}
	}
	return n, did
}

// usable follows a claim that has joined until its node is initialized. Two of a scope that wait beyond their time open its breaker,
// unless whoever they wait for is at work.
func (r *Reconciler) usable(ctx context.Context, claim *karpv1.NodeClaim, class string) error {
	taint, notReady := taintScope(class), notReadyScope(claim.Labels[karpv1.LabelNodePool], class)
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	scope := ""
	if claim.DeletionTimestamp == nil {
		scope = map[string]string{cluster.ReasonTaintStuck: taint, cluster.ReasonNotReadyStuck: notReady}[initialized.Reason]
	}
	passed := initialized.Status == metav1.ConditionTrue
	r.mu.Lock()
	n, did := r.standstills.wait(claim.UID, scope)
	if passed {
		r.standstills.pass(initialized.LastTransitionTime.Time, taint, notReady)
	}
	slow := r.Now().Sub(r.standstills.done[scope]) < atWork
	r.mu.Unlock()
	switch {
	case passed:
		at := initialized.LastTransitionTime.Time
		if now := r.Now(); did && now.After(at) {
			at = now // it has waited until after the breaker was opened, though maybe not for a whole second
		}
		r.Breakers.Joined([]string{taint, notReady}, at)
		return nil
	case scope == "":
		return nil
	}
	r.count(claim, initialized.Reason)
	if n >= enoughStuck && !slow {
		working, err := r.removing(ctx, claim)
		if err != nil {
			return err
		}
		if !working {
			r.Breakers.Report(cloudprovider.Finding{Cause: initialized.Reason, Certainty: cloudprovider.Certain, Scope: scope, Message: initialized.Message})
		}
	}
	r.Breakers.Failed(claim.UID)
	return nil
}

// removing reports whether the taint that the claim's node waits for has been removed from any node in the last minutes.
func (r *Reconciler) removing(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 || !cluster.NodeReady(&nodes[0]) {
		return false, err
	}
	return r.Removals.AtWork(claim, &nodes[0], r.Now()), nil
}

// timedOut backs off from launching for a pool and class where a claim has ended because its instance did not become a node in
// time, for a cause that holds nothing else back. Nodes that have joined since it was launched show that it was this one's own affair.
func (r *Reconciler) timedOut(claim *karpv1.NodeClaim, cause string, launched time.Time) {
	pool, class := claim.Labels[karpv1.LabelNodePool], claim.Spec.NodeClassRef.Name
	scope := joinScope(pool, class)
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	r.mu.Lock()
	others := r.standstills.done[scope].After(launched)
	covered := r.cases[claim.UID].covered
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
			"which was ended after %v: %s",
			pool, class, claim.Name, r.Timeout, registered.Message),
	})
}
