package podreport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// pending explains a pod that kube-scheduler could not schedule.
func (e *explanation) pending() {
	closed := closedPools(e.view)
	e.lab = newWhatIf(e.view, e.pod, closed)
	now := e.lab.solve(e.lab.base)
	if now.place != nil {
		e.schedulable(now)
		return
	}
	e.NodePools = e.poolReasons(now, closed)
	e.conclude(Unschedulable, "is pending: %s.", e.cause(now))
	g := &generator{
		explanation: e, now: now, closed: closed, workload: workloadOf(e.view, e.pod), words: vocabularyOf(e.lab.base),
	}
	g.search()
}

// schedulable explains a pending pod that the engine has a node for.
func (e *explanation) schedulable(now outcome) {
	e.Node = now.place
	waited := prefixed(" for ", e.since(e.pod.CreationTimestamp.Time))
	if now.place.New {
		e.conclude(Schedulable, "is pending%s: the next plan launches a node for it (%s).", waited, strings.Trim(described(now.place), " ()"))
		e.launchTroubles(now.place.NodePool)
		return
	}
	claim := e.claimNamed(now.place.Claim)
	if claim != nil && !condition.IsTrue(claim, karpv1.ConditionInitialized) {
		why := "NodeClaim " + claim.Name + ", on which it fits,"
		if slices.Contains(claim.Nominated(karpv1.AnnotationNominatedPods), e.pod.UID) {
			why = "NodeClaim " + claim.Name + ", launched for it,"
		}
		e.conclude(NodePending, "is pending%s: %s %s.", waited, why, e.claimState(claim))
		return
	}
	e.conclude(Schedulable, "is pending%s: it fits on node %s, which exists; kube-scheduler has not scheduled it yet.",
		waited, now.place.Name)
}

// launchTroubles notes NodeClaims of a pool that are not launched: what keeps them back probably keeps back the pod's, too.
func (e *explanation) launchTroubles(pool string) {
	for _, c := range e.view.NodeClaims {
		if c.Labels[karpv1.LabelNodePool] != pool || condition.IsTrue(c, karpv1.ConditionLaunched) || c.DeletionTimestamp != nil {
			continue
		}
		e.Notes = append(e.Notes, fmt.Sprintf("NodeClaim %s of the same NodePool %s", c.Name, e.claimState(c)))
		return
	}
}

// poolReasons are the pools with the first rule of each that excludes the pod.
func (e *explanation) poolReasons(now outcome, closed []PoolReason) []PoolReason {
	out := []PoolReason{}
	for _, pool := range byWeight(e.view.NodePools) {
		if i := slices.IndexFunc(closed, func(r PoolReason) bool { return r.NodePool == pool.Name }); i >= 0 {
			out = append(out, closed[i])
			continue
		}
		var own []rejection.Reason
		if now.rejection != nil {
			for _, r := range now.rejection.Reasons {
				if r.NodePool == pool.Name {
					own = append(own, r)
				}
			}
		}
		if len(own) == 0 {
			continue
		}
		out = append(out, PoolReason{
			NodePool: pool.Name, Code: string(own[0].Code), Message: wording.Reason(own[0]), Rule: own[0].Rule, More: len(own) - 1,
			short: wording.LabelWords.Reason(own[0]), bare: wording.LabelWords.Clause(own[0]),
		})
	}
	return out
}

// cause is the rest of the sentence "the pod is pending: ".
func (e *explanation) cause(now outcome) string {
	if now.rejection == nil {
		return "the plan does not mention it"
	}
	for _, r := range now.rejection.Reasons {
		if r.NodePool == "" && r.Code != rejection.NoPools {
			return wording.LabelWords.Reason(r)
		}
	}
	if len(e.view.NodePools) == 0 {
		return "there is no NodePool, and no existing node has room for it"
	}
	best := closest(e.NodePools, now.rejection.Reasons)
	if best == nil {
		return wording.Reason(now.rejection.Reasons[0])
	}
	others := ""
	switch more := len(e.NodePools) - 1; {
	case more == 1:
		others = "the other NodePool is listed below"
	case more > 1:
		others = fmt.Sprintf("%d more NodePools are listed below", more)
	}
	return best.bare.Naming(best.NodePool, others)
}

// closest is the pool that excludes the pod by the fewest rules; of equal ones rather one that is meant for such pods, then the
// first, and one that launches nothing at all only if there is no other.
func closest(pools []PoolReason, reasons []rejection.Reason) *PoolReason {
	var best *PoolReason
	rank := func(p *PoolReason) int {
		out := 10 * (1 + p.More)
		switch rejection.Code(p.Code) {
		case rejection.Requirement, rejection.Resources, rejection.Devices: // its nodes are of another kind
			out += 5
		}
		if slices.ContainsFunc(reasons, func(r rejection.Reason) bool { return r.NodePool == p.NodePool && r.Nearest != nil }) {
			return out
		}
		switch p.Code {
		case codeNotReady:
			return 1000
		case codeStatic, codeDeleting:
			return 2000
		}
		return out + 100
	}
	for i := range pools {
		if best == nil || rank(&pools[i]) < rank(best) {
			best = &pools[i]
		}
	}
	return best
}
