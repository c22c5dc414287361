package provisioning

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// PlanningFailed is the reason of events on pods that are left out of plans.
	PlanningFailed = "PlanningFailed"
	// codePlanningFailed is the rejection code of those pods.
	codePlanningFailed schedule.Code = PlanningFailed
	// searchTimeout bounds the search of one pass for the pods that make planning panic: other pods wait for it. The
	// next pass continues the search.
	searchTimeout = time.Minute
	// minSearchBackoff and maxSearchBackoff bound the backoff after a search that found no pod: planning then panics
	// whatever is left out, and another search is useless until the cluster changes.
	minSearchBackoff, maxSearchBackoff = 30 * time.Second, 30 * time.Minute
	// eventTimeFormat is the format of times in events.
	eventTimeFormat = time.RFC3339
)

// isQuarantined reports whether a pod was rejected because it is left out of plans.
func isQuarantined(r *schedule.Rejection) bool { return r.Reasons[0].Code == codePlanningFailed }

// runPass runs a pass and returns its panics as errors.
func (p *Provisioner) runPass(ctx context.Context) error {
	err := panics.Error(func() error { return p.pass(ctx) })
	p.Panics.ReportError(ctx, string(quarantine.Provisioning), err)
	return err
}

// planWithoutQuarantined computes the plan for a snapshot without its quarantined pods: those that make planning panic,
// or with claims that the API server rejects. It returns that smaller snapshot as well. New causes of a panic are
// quarantined. It also leaves out the pods that wait for their next attempt, since they cost much: see CostlyPods.
func (p *Provisioner) planWithoutQuarantined(
	ctx context.Context,
	all *snapshot.Snapshot,
) (*snapshot.Snapshot, schedule.Plan, time.Duration, error) {
	postponed := p.Costly.postponed(all, p.Now())
	snap, plan, took, err := p.planTenable(ctx, without(all, postponed))
	if err == nil {
		p.Costly.record(all, &plan, p.Now())
		plan.Rejected = append(plan.Rejected, rejections(all, postponed)...)
	}
	return snap, plan, took, err
}

// planTenable is planWithoutQuarantined for a snapshot without the pods that wait for their next attempt.
func (p *Provisioner) planTenable(
	ctx context.Context,
	all *snapshot.Snapshot,
) (*snapshot.Snapshot, schedule.Plan, time.Duration, error) {
	unitIndex := quarantine.NewUnits()
	out, _ := p.Quarantine.Excluded(all, unitIndex, quarantine.Provisioning, quarantine.Refused)
	snap := quarantine.Without(all, out, unitIndex)
	plan, took, caught := p.planAndValidate(ctx, snap)
	if caught != nil {
		if err := p.quarantineCause(ctx, snap, unitIndex, caught); err != nil {
			return snap, schedule.Plan{}, 0, err
		}
		out, _ = p.Quarantine.Excluded(all, unitIndex, quarantine.Provisioning, quarantine.Refused)
		snap = quarantine.Without(all, out, unitIndex)
		if plan, took, caught = p.planAndValidate(ctx, snap); caught != nil {
			return snap, schedule.Plan{}, 0, fmt.Errorf("plan without %d suspected owners of pods: %w", len(out), caught)
		}
	}
	if plan.Abandoned {
		return snap, plan, took, fmt.Errorf(
			"the plan for %d pending pods was abandoned, and nothing was launched: %w",
			len(snap.Pods),
			ctx.Err(),
		)
	}
	if len(out) > 0 {
		plan.Rejected = append(plan.Rejected, p.recordQuarantined(all, unitIndex)...)
	} else {
		p.countQuarantined(nil)
	}
	return snap, plan, took, nil
}

// planAndValidate computes a plan and, if configured, validates it. It catches panics of both.
func (p *Provisioner) planAndValidate(
	ctx context.Context,
	snap *snapshot.Snapshot,
) (plan schedule.Plan, took time.Duration, caught *panics.Panic) {
	caught = panics.Catch(func() {
		plan, took = p.solve(ctx, snap)
		if p.ValidatePlans && !plan.Abandoned {
			plan = p.withholdInvalid(snap, plan)
		}
	})
	return plan, took, caught
}

// quarantineCause finds the pods that make planning panic and quarantines them. It returns an error if no pod is the
// cause.
func (p *Provisioner) quarantineCause(
	ctx context.Context,
	snap *snapshot.Snapshot,
	unitIndex *quarantine.Units,
	caught *panics.Panic,
) error {
	file := p.Panics.Report(ctx, string(quarantine.Provisioning), caught)
	if p.Now().Before(p.nextSearch) {
		return caught
	}
	deadline := p.Now().Add(searchTimeout)
	before := p.Quarantine.Suspected(quarantine.Provisioning)
	suspects := quarantine.FindCause(snap, before, unitIndex, func(out quarantine.Set) bool {
		if ctx.Err() != nil || p.Now().After(deadline) {
			return false
		}
		_, _, caught := p.planAndValidate(ctx, quarantine.Without(snap, out, unitIndex))
		return caught == nil
	})
	if !suspects.Found {
		p.nextSearch = p.Now().Add(backoff.Doubling{First: minSearchBackoff, Max: maxSearchBackoff}.After(p.failedSearches))
		p.failedSearches++
		return fmt.Errorf("planning panics whichever pods are left out; report it with the stack above: %w", caught)
	}
	p.failedSearches = 0
	why := PanicMessage("pod", caught, file)
	p.Quarantine.Add(quarantine.Provisioning, suspects.Proven, why)
	p.Quarantine.AddBriefly(quarantine.Provisioning, suspects.Unproven, why)
	p.Log.Info("planning continues without the pods that make it panic",
		"owners", len(suspects.Proven), "suspected-owners", len(suspects.Unproven))
	return nil
}

// PanicMessage explains a panic to the owners of what is left out.
func PanicMessage(what string, caught *panics.Panic, file string) string {
	where := "with what `dovetail snapshot` prints"
	if file != "" {
		where = fmt.Sprintf("with the snapshot %s of the controller", file)
	}
	return fmt.Sprintf("Planning with the %s fails (%v), which is a defect of Dovetail; report it %s, or change what the %s requests",
		what, caught, where, what)
}

// recordQuarantined publishes an event on each pod that is left out, and returns the pending ones as rejections.
func (p *Provisioner) recordQuarantined(all *snapshot.Snapshot, unitIndex *quarantine.Units) []schedule.Rejection {
	out, why := p.Quarantine.Excluded(all, unitIndex, quarantine.Provisioning, quarantine.Refused)
	pods, daemons := quarantine.ExcludedPods(all, out, unitIndex)
	pending := map[*corev1.Pod]bool{}
	for _, pod := range all.Pods {
		pending[pod] = true
	}
	var rejected []schedule.Rejection
	counts := map[quarantine.Pass]int{}
	for _, pod := range pods {
		e := why[unitIndex.Unit(pod)]
		counts[e.Pass]++
		message := fmt.Sprintf("%s. The pod is left out of planning until %s", e.Why, e.Until.UTC().Format(eventTimeFormat))
		if !snapshot.IsVirtual(pod) {
			p.Events.WarnEvery(failedSchedulingDedupe, pod, PlanningFailed, "%s", message)
		}
		if pending[pod] {
			rejected = append(rejected, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{
				Code: codePlanningFailed, Rule: stated("%s", message),
			}}})
		}
	}
	for _, d := range daemons {
		e := why[unitIndex.DaemonSetUnit(d)]
		set := &appsv1.DaemonSet{}
		set.Namespace, set.Name = d.Namespace, d.Name
		p.Events.WarnEvery(failedSchedulingDedupe, set, PlanningFailed, "%s. Nodes are planned without room for DaemonSet %s/%s until %s",
			e.Why, d.Namespace, d.Name, e.Until.UTC().Format(eventTimeFormat))
	}
	p.countQuarantined(counts)
	return rejected
}

// countQuarantined sets how many pods a plan leaves out, by why.
func (p *Provisioner) countQuarantined(counts map[quarantine.Pass]int) {
	p.Metrics.Quarantined.WithLabelValues(metrics.QuarantinedForPanic).Set(float64(counts[quarantine.Provisioning]))
	p.Metrics.Quarantined.WithLabelValues(metrics.QuarantinedForClaim).Set(float64(counts[quarantine.Refused]))
}
