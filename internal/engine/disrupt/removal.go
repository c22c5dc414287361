package disrupt

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// maxNamedPods limits how many pods a message names: an event holds 1 kB.
const maxNamedPods = 5

// RemovalOutcome describes what a plan without the candidates means for their pods.
type RemovalOutcome struct {
	// Plan is the part of the plan that concerns the candidates' pods.
	Plan plan.Plan
	// Unschedulable are the candidates' pods that cannot be scheduled.
	Unschedulable []plan.Rejection
	// SharedPending are pending pods for which a node would be launched that the candidates' pods share. Provisioning
	// launches it first: otherwise there would be two nodes for one pod.
	SharedPending []*corev1.Pod
}

// Why returns why the candidates cannot be removed; the zero value if they can.
func (o *RemovalOutcome) Why() Why {
	if pods := o.WithoutNode(); pods != "" {
		return Why{Reason: Unschedulable, Message: "Not all pods would schedule, " + pods}
	}
	if len(o.SharedPending) > 0 {
		p := o.SharedPending[0]
		return Because(SharedPending, "Pod %s/%s waits for a node that would be shared", p.Namespace, p.Name)
	}
	return Why{}
}

// WithoutNode names the pods that would not be scheduled, with the reason of each; empty if there are none.
func (o *RemovalOutcome) WithoutNode() string {
	var parts []string
	for i := range o.Unschedulable[:min(maxNamedPods, len(o.Unschedulable))] {
		r := &o.Unschedulable[i]
		parts = append(parts, fmt.Sprintf("%s/%s => %s", r.Pod.Namespace, r.Pod.Name, wording.Reason(r.Reasons[0])))
	}
	more := ""
	if n := len(o.Unschedulable) - maxNamedPods; n > 0 {
		more = fmt.Sprintf(" and %d other(s)", n)
	}
	return strings.Join(parts, ", ") + more
}

// EvaluateRemoval extracts from a plan for s without the candidates what it means for their pods. An uninitialized node is no
// destination: if it does not come up, the pods would have no node. Pods of nodes that are deleting anyway may wait
// there.
func EvaluateRemoval(s *snapshot.Snapshot, candidates []*Candidate, all plan.Plan) RemovalOutcome {
	unready := map[string]*snapshot.Node{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Usable() {
			unready[n.Name] = n
		}
	}
	return evaluate(candidates, all, unready)
}

// EvaluateRepair is EvaluateRemoval for nodes that do not run their pods: any node is a destination, since waiting gains nothing.
func EvaluateRepair(candidates []*Candidate, all plan.Plan) RemovalOutcome {
	return evaluate(candidates, all, nil)
}

// Uninitialized is the rejection of a pod that fits only on a node that is not initialized.
func Uninitialized(p *corev1.Pod, claim, node string) plan.Rejection {
	return plan.Rejection{Pod: p, Reasons: []rejection.Reason{{
		Code: rejection.Requirement, Rule: &rejection.Rule{Node: &rejection.Node{NodeClaim: claim, Name: node}},
	}}}
}

// evaluate is EvaluateRemoval with the nodes that are no destinations.
func evaluate(candidates []*Candidate, all plan.Plan, unready map[string]*snapshot.Node) RemovalOutcome {
	ours := map[types.UID]bool{}
	for _, c := range candidates {
		for _, p := range c.Pods {
			ours[p.UID] = true
		}
	}
	isOurs := func(p *corev1.Pod) bool { return ours[p.UID] }
	o := RemovalOutcome{Plan: plan.Plan{Stats: all.Stats}}
	for _, pl := range all.Placements {
		pods := slices.DeleteFunc(slices.Clone(pl.Pods), func(p *corev1.Pod) bool { return !isOurs(p) })
		if len(pods) == 0 {
			continue
		}
		if n := unready[pl.Node]; n != nil {
			for _, p := range pods {
				o.Unschedulable = append(o.Unschedulable, Uninitialized(p, n.Claim, n.Name))
			}
			continue
		}
		pl.Pods = pods
		o.Plan.Placements = append(o.Plan.Placements, pl)
	}
	for i := range all.Launches {
		l := &all.Launches[i]
		if !slices.ContainsFunc(l.Pods, isOurs) {
			continue
		}
		o.Plan.Launches = append(o.Plan.Launches, *l)
		for _, p := range l.Pods {
			if !isOurs(p) && !snapshot.IsVirtual(p) {
				o.SharedPending = append(o.SharedPending, p)
			}
		}
	}
	for i := range all.Rejected {
		if isOurs(all.Rejected[i].Pod) {
			o.Unschedulable = append(o.Unschedulable, all.Rejected[i])
		}
	}
	return o
}
