package podreport

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
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
		out = append(out, PoolReason{NodePool: pool.Name, Code: string(own[0].Code), Message: own[0].Message, More: len(own) - 1})
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
			return inShort(sentence(r.Message))
		}
	}
	if len(e.view.NodePools) == 0 {
		return "there is no NodePool, and no existing node has room for it"
	}
	best := closest(e.NodePools, now.rejection.Reasons)
	if best == nil {
		return sentence(now.rejection.Reasons[0].Message)
	}
	out := inShort(inWords(best))
	others := ""
	switch more := len(e.NodePools) - 1; {
	case more <= 0:
		return out
	case more == 1:
		others = "the other NodePool is listed below)"
	default:
		others = fmt.Sprintf("%d more NodePools are listed below)", more)
	}
	if named := " (NodePool " + best.NodePool + ")"; strings.HasSuffix(out, named) {
		return strings.TrimSuffix(out, ")") + "; " + others
	}
	return out + " (" + others
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

// inWords is the reason of a pool as a sentence that names the pool.
func inWords(p *PoolReason) string {
	text := p.Message
	if strings.HasPrefix(text, "fits ") {
		_, text, _ = strings.Cut(text, ", but ")
	}
	name := "NodePool " + p.NodePool
	for _, begin := range []struct{ old, new string }{
		{"the pool's ", name + "'s "},
		{"the pool ", name + " "},
		{"it is ", name + " is "},
		{"its own ", name + "'s own "},
		{"its ", name + "'s "},
		{"spec.", name + "'s spec."},
	} {
		if rest, ok := strings.CutPrefix(text, begin.old); ok {
			return begin.new + rest
		}
	}
	if rest, ok := strings.CutPrefix(text, "the pod "); ok {
		return "it " + rest + " (" + name + ")"
	}
	return name + ": " + text
}

// shortKey names a well-known label as people do.
func shortKey(key string) string {
	switch key {
	case corev1.LabelTopologyZone:
		return "zone"
	case karpv1.LabelCapacityType:
		return "capacity type"
	case corev1.LabelArchStable:
		return "architecture"
	case corev1.LabelInstanceTypeStable:
		return "instance type"
	}
	return key
}

// inShort names well-known labels as people do, where a value or a list of them follows.
func inShort(text string) string {
	return strings.NewReplacer(
		corev1.LabelTopologyZone+"=", "zone ", corev1.LabelTopologyZone+" in (", "zone in (",
		corev1.LabelTopologyZone+" not in (", "zone not in (", " over "+corev1.LabelTopologyZone, " over zones",
		karpv1.LabelCapacityType+"=", "capacity type ", corev1.LabelArchStable+"=", "architecture ",
		corev1.LabelInstanceTypeStable+"=", "instance type ", corev1.LabelInstanceTypeStable+" in (", "instance type in (",
		" over "+corev1.LabelHostname, " over nodes",
	).Replace(text)
}

// sentence is a message without its last full stop.
func sentence(message string) string { return strings.TrimSuffix(message, ".") }
