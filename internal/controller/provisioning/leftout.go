package provisioning

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// PlanningFailed is the reason of events on pods that are left out of plans.
	PlanningFailed = "PlanningFailed"
	// planningFailed is their code.
	planningFailed schedule.Code = PlanningFailed
	// searching is for how long one pass searches for the pods with which planning panics. The search goes on in the next.
	searching = time.Minute
	// leastSearchPause and mostSearchPause bound the pause after a search that found nobody: what panics is the planning of
	// whatever there is, and to search again is in vain until something changes.
	leastSearchPause, mostSearchPause = 30 * time.Second, 30 * time.Minute
	// stamp is how events write a time.
	stamp = time.RFC3339
)

// leftOut tells whether a pod is left out of plans.
func leftOut(r *schedule.Rejection) bool { return r.Reasons[0].Code == planningFailed }

// protected is a pass that returns its panics as errors.
func (p *Provisioner) protected(ctx context.Context) error {
	err := panics.Error(func() error { return p.pass(ctx) })
	p.Panics.ReportError(ctx, string(quarantine.Provisioning), err)
	return err
}

// planned is the plan for a snapshot, checked if that is wanted, and the snapshot that it is for: that without the pods with
// which planning panics, or which make claims that are refused.
func (p *Provisioner) planned(ctx context.Context, all *snapshot.Snapshot) (*snapshot.Snapshot, schedule.Plan, time.Duration, error) {
	census := quarantine.NewCensus()
	out, _ := p.Quarantine.Out(all, census, quarantine.Provisioning, quarantine.Refused)
	snap := quarantine.Without(all, out, census)
	plan, took, caught := p.attempt(ctx, snap)
	if caught != nil {
		if err := p.searchCause(ctx, snap, census, caught); err != nil {
			return snap, schedule.Plan{}, 0, err
		}
		out, _ = p.Quarantine.Out(all, census, quarantine.Provisioning, quarantine.Refused)
		snap = quarantine.Without(all, out, census)
		if plan, took, caught = p.attempt(ctx, snap); caught != nil {
			return snap, schedule.Plan{}, 0, fmt.Errorf("plan without %d suspected owners of pods: %w", len(out), caught)
		}
	}
	if plan.Abandoned {
		return snap, plan, took, fmt.Errorf("plan for %d pending pods was abandoned, and nothing was launched: %w", len(snap.Pods), ctx.Err())
	}
	if len(out) > 0 {
		plan.Rejected = append(plan.Rejected, p.recordLeftOut(all, census)...)
	}
	return snap, plan, took, nil
}

// attempt makes a plan and checks it.
func (p *Provisioner) attempt(ctx context.Context, snap *snapshot.Snapshot) (plan schedule.Plan, took time.Duration, caught *panics.Panic) {
	caught = panics.Catch(func() {
		plan, took = p.solve(ctx, snap)
		if p.ValidatePlans && !plan.Abandoned {
			plan = p.vet(snap, plan)
		}
	})
	return plan, took, caught
}

// searchCause finds the pods with which planning panics, and has them left out. Its error is that there are none.
func (p *Provisioner) searchCause(ctx context.Context, snap *snapshot.Snapshot, census *quarantine.Census, caught *panics.Panic) error {
	file := p.Panics.Report(ctx, string(quarantine.Provisioning), caught)
	if p.Now().Before(p.nextSearch) {
		return caught
	}
	deadline := p.Now().Add(searching)
	before := p.Quarantine.Before(quarantine.Provisioning)
	suspects := quarantine.Cause(snap, before, census, func(out quarantine.Set) bool {
		if ctx.Err() != nil || p.Now().After(deadline) {
			return false
		}
		_, _, caught := p.attempt(ctx, quarantine.Without(snap, out, census))
		return caught == nil
	})
	if !suspects.Found {
		p.nextSearch = p.Now().Add(panics.Backoff(leastSearchPause, mostSearchPause, p.fruitless))
		p.fruitless++
		return fmt.Errorf("planning panics whichever pods are left out; report it with the stack above: %w", caught)
	}
	p.fruitless = 0
	why := Explain("pod", caught, file)
	p.Quarantine.Hold(quarantine.Provisioning, suspects.Proven, why)
	p.Quarantine.HoldBriefly(quarantine.Provisioning, suspects.Unproven, why)
	p.Log.Info("planning goes on without the pods with which it panics",
		"owners", len(suspects.Proven), "suspected-owners", len(suspects.Unproven))
	return nil
}

// Explain says what a panic means for the people who own what is left out.
func Explain(what string, caught *panics.Panic, file string) string {
	where := "with what `dovetail snapshot` prints"
	if file != "" {
		where = fmt.Sprintf("with the snapshot %s of the controller", file)
	}
	return fmt.Sprintf("Planning with the %s fails (%v), which is a defect of Dovetail; report it %s, or change what the %s requests",
		what, caught, where, what)
}

// recordLeftOut publishes an event on each pod that is left out, and returns them as rejected.
func (p *Provisioner) recordLeftOut(all *snapshot.Snapshot, census *quarantine.Census) []schedule.Rejection {
	out, why := p.Quarantine.Out(all, census, quarantine.Provisioning, quarantine.Refused)
	pods, daemons := quarantine.LeftOut(all, out, census)
	pending := map[*corev1.Pod]bool{}
	for _, pod := range all.Pods {
		pending[pod] = true
	}
	var rejected []schedule.Rejection
	for _, pod := range pods {
		e := why[census.Unit(pod)]
		message := fmt.Sprintf("%s. The pod is left out of planning until %s", e.Why, e.Until.UTC().Format(stamp))
		if !buffer.IsVirtual(pod) {
			p.Events.WarnEvery(failedSchedulingQuiet, pod, PlanningFailed, "%s", message)
		}
		if pending[pod] {
			rejected = append(rejected, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{Code: planningFailed, Message: message}}})
		}
	}
	for _, d := range daemons {
		e := why[census.Daemons(d)]
		set := &appsv1.DaemonSet{}
		set.Namespace, set.Name = d.Namespace, d.Name
		p.Events.WarnEvery(failedSchedulingQuiet, set, PlanningFailed, "%s. Nodes are planned without room for DaemonSet %s/%s until %s",
			e.Why, d.Namespace, d.Name, e.Until.UTC().Format(stamp))
	}
	return rejected
}
