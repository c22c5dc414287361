package provisioning

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

const (
	// noInstanceTypesDedupe and failedSchedulingDedupe are the windows in which the same event is not repeated on a
	// pool without matching instance types and on a pod that fails to schedule.
	noInstanceTypesDedupe  = time.Minute
	failedSchedulingDedupe = 5 * time.Minute
)

// recordPodEvents publishes an event on each pod: the node that it should schedule on, or why it fails to schedule. It
// also nominates those nodes, which protects them from disruption.
func (p *Provisioner) recordPodEvents(plan schedule.Plan, closed []*karpv1.NodePool) {
	for _, placement := range plan.Placements {
		p.State.Nominate(placement.Node)
		target := "node/" + placement.Node
		if placement.Claim != "" {
			target = "nodeclaim/" + placement.Claim
			if placement.Node != placement.Claim {
				target += ", node/" + placement.Node
			}
		}
		for _, pod := range placement.Pods {
			if pod.Spec.NodeName == "" {
				p.Events.Normal(pod, event.Nominated, "Pod should schedule on: %s", target)
			}
		}
	}
	for _, t := range plan.Ignored {
		p.Events.WarnEvery(failedSchedulingDedupe, t.Pod, "InvalidNodeAffinity", "%s", ignoredTermsMessage(t))
	}
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		if r.Reasons[0].Code == schedule.NotManaged || r.Deferred() {
			continue
		}
		if isQuarantined(r) || isPostponed(r) || isRefused(r) {
			continue // recordQuarantined and refusals.report publish theirs, and of a postponed pod the last plan with it did
		}
		if r.Reasons[0].Code == schedule.DeviceClaims {
			p.Log.Info("pod with resource claims is ignored", "Pod", r.Pod.Namespace+"/"+r.Pod.Name)
		}
		p.Events.WarnEvery(
			failedSchedulingDedupe,
			r.Pod,
			"FailedScheduling",
			"Failed to schedule pod, %s",
			joinReasons(mostRelevantFirst(r.Reasons, closed)),
		)
	}
}

// recordGroupEvents publishes on each PodGroup without nodes why it gets none: the field that is wrong is often one of the group, and its
// owner need not look at the pods.
func (p *Provisioner) recordGroupEvents(plan schedule.Plan, groups []snapshot.PodGroup) {
	why := map[types.NamespacedName]schedule.Reason{} // all pods of a group have the same
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		if of, grouped := snapshot.PodGroupOf(r.Pod); grouped && !r.Deferred() && r.Reasons[0].Code == schedule.PodGroup {
			why[of] = r.Reasons[0]
		}
	}
	for i := range groups {
		g := &groups[i]
		if reason, rejected := why[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}]; rejected && g.Object != nil {
			p.Events.WarnEvery(failedSchedulingDedupe, g.Object, "FailedScheduling", "No nodes are launched: %s", wording.Reason(reason))
		}
	}
}

// ignoredTermsMessage names the affinity terms of a pod that are ignored, and the remedy.
func ignoredTermsMessage(t schedule.IgnoredTerms) string {
	reasons := make([]schedule.Reason, len(t.Why))
	for i, why := range t.Why {
		reasons[i].Rule = stated("%s", why)
	}
	return "Terms of the pod's node affinity are ignored; correct or remove them: " + joinReasons(reasons)
}

// recordPoolEvents publishes an event on each pool with requirements that no instance type meets.
func (p *Provisioner) recordPoolEvents(plan schedule.Plan, snap *snapshot.Snapshot) {
	for _, why := range plan.UnusablePools {
		if pool := poolByName(snap, why.NodePool); pool != nil {
			p.Events.WarnEvery(noInstanceTypesDedupe, pool, "NoCompatibleInstanceTypes", "The pool can launch nothing: %s", wording.Reason(why))
		}
	}
}

// mostRelevantFirst orders reasons for a reader. Reasons of pools that simply do not match the pod's requirements come
// last, since most pools do not. Pools that are not Ready come before those: the engine does not see them, but the pod
// may be waiting for one.
func mostRelevantFirst(reasons []schedule.Reason, closed []*karpv1.NodePool) []schedule.Reason {
	other := rejection.Mismatched(reasons)
	var out, mismatched []schedule.Reason
	for _, r := range reasons {
		if other[r.NodePool] {
			mismatched = append(mismatched, r)
		} else {
			out = append(out, r)
		}
	}
	for _, pool := range closed {
		if ready, found := condition.Get(pool, condition.Ready); cluster.LaunchesForPods(pool) && found &&
			ready.Status != metav1.ConditionTrue {
			out = append(out, schedule.Reason{NodePool: pool.Name, Rule: stated("not ready: %s", notReadyMessage(pool, ready.Message))})
		}
	}
	return append(out, mismatched...)
}

// notReadyMessage joins the conditions that keep a pool from being ready; message if there are none.
func notReadyMessage(pool *karpv1.NodePool, message string) string {
	var why []string
	for _, typ := range pool.ConditionTypes().Dependents {
		if c, found := condition.Get(pool, typ); found && c.Status == metav1.ConditionFalse {
			why = append(why, c.Reason+": "+c.Message)
		}
	}
	return cmp.Or(strings.Join(why, "; "), message)
}

// stated is the rule of a reason of this controller, which has no other data than its sentence.
func stated(format string, args ...any) *rejection.Rule {
	return &rejection.Rule{Stated: fmt.Sprintf(format, args...)}
}

// joinReasons joins reasons to one text for an event.
func joinReasons(reasons []schedule.Reason) string {
	const limit = 900 // the API server accepts messages of 1024 bytes; the rest is for the text around
	var b strings.Builder
	for i, r := range reasons {
		part := wording.Reason(r)
		if r.NodePool != "" && (i == 0 || reasons[i-1].NodePool != r.NodePool) {
			part = fmt.Sprintf("nodepool %q: %s", r.NodePool, part)
		}
		if b.Len()+len(part) > limit {
			fmt.Fprintf(&b, "; and %d more", len(reasons)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return b.String()
}
