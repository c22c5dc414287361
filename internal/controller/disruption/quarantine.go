package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// maxPanicBackoff is the longest pause after passes that panicked although no pod was the cause.
	maxPanicBackoff = 10 * time.Minute
	// causeSearchTimeout bounds one search for the pods that make a pass panic.
	causeSearchTimeout = 2 * time.Minute
	// minRefusalBackoff and maxRefusalBackoff bound the backoff of nodes with a replacement that was rejected as
	// invalid. A minute lets other nodes go first; an hour is soon enough for a mistake that a person must correct.
	minRefusalBackoff, maxRefusalBackoff = time.Minute, time.Hour
)

// runPass runs a pass and recovers from its panics: it quarantines the pods that make the pass panic and runs it again.
// If no pod is the cause, it returns the panic as an error, and the pause before the next pass grows each time.
func (l *Loop) runPass(ctx context.Context) (acted bool, err error) {
	defer func() { l.passSnapshot = nil }() // so that it can be collected during the pause
	acted, caught, err := l.tryPass(ctx)
	if caught != nil && l.quarantineCause(ctx, caught) {
		acted, caught, err = l.tryPass(ctx)
	}
	l.Panics.ReportError(ctx, string(quarantine.Disruption), err)
	if caught == nil {
		l.panicsInARow = 0
		return acted, err
	}
	l.Panics.Report(ctx, string(quarantine.Disruption), caught)
	l.panicsInARow++
	return false, errors.Join(err, fmt.Errorf("a pass panicked, whichever pods are left out; report it with the stack above: %w", caught))
}

func (l *Loop) tryPass(ctx context.Context) (acted bool, caught *panics.Panic, err error) {
	caught = panics.Catch(func() { acted, err = l.pass(ctx) })
	return acted, caught, err
}

// quarantineCause finds the pods that make the pass panic and quarantines them. It repeats the simulations of the pass,
// which have no side effects.
func (l *Loop) quarantineCause(ctx context.Context, caught *panics.Panic) bool {
	file := l.Panics.Report(ctx, string(quarantine.Disruption), caught)
	l.proposals = nil // the next pass searches again
	snap := l.passSnapshot
	if snap == nil || l.simulate(snap) == nil {
		return false // the panic was not in the engine
	}
	unitIndex, deadline := quarantine.NewUnits(), l.Now().Add(causeSearchTimeout)
	suspects := quarantine.FindCause(snap, l.Quarantine.Suspected(quarantine.Disruption), unitIndex, func(out quarantine.Set) bool {
		if ctx.Err() != nil || l.Now().After(deadline) {
			return false
		}
		return l.simulate(quarantine.Without(snap, out, unitIndex)) == nil
	})
	if !suspects.Found {
		return false
	}
	why := provisioning.PanicMessage("pod", caught, file)
	l.Quarantine.Add(quarantine.Disruption, suspects.Proven, why)
	l.Quarantine.AddBriefly(quarantine.Disruption, suspects.Unproven, why)
	l.Log.Info("disruption continues without the nodes of pods that make planning panic",
		"owners", len(suspects.Proven), "suspected-owners", len(suspects.Unproven))
	return true
}

// simulate has the engine decide what a pass has it decide, and returns its panic.
func (l *Loop) simulate(snap *snapshot.Snapshot) *panics.Panic {
	return panics.Catch(func() {
		r := l.newPassState(snap)
		for _, reason := range l.reasons() {
			r.budgets[reason] = r.RemainingBudgets(disrupt.Allowances(snap, reason))
		}
		if l.Repairs != nil {
			due, _ := r.Unhealthy()
			search := r.repairSearch(due, schedule.Budget{})
			for _, c := range due {
				search.Evaluate(r.compiled, c)
			}
		}
		r.Empty()
		if drifted := r.Drifted(false); len(drifted) > 0 {
			replace.Drift(
				r.compiled(),
				r.View,
				replace.DriftSearch{
					Order:         drifted,
					Remaining:     r.budgets[karpv1.DisruptionDrifted],
					MaxRejections: maxDriftSimulations,
					Budget:        schedule.Budget{},
				},
			)
		}
		room := r.budgets[karpv1.DisruptionUnderutilized]
		r.Fingerprint(room)
		totals, _ := (&disrupt.PoolCosts{}).Update(r.View)
		consolidate.Find(
			consolidate.Input{
				Problem:    r.compiled(),
				Snapshot:   snap,
				Candidates: r.Candidates,
				Budgets:    room.Allowances(),
				Totals:     consolidate.PoolTotals(snap, r.Candidates, totals),
			},
			l.Consolidation,
		)
	})
}

// withoutQuarantined returns the snapshot without quarantined pods, and publishes an event on each. Their nodes are not
// disrupted.
func (l *Loop) withoutQuarantined(all *snapshot.Snapshot) *snapshot.Snapshot {
	if l.Quarantine == nil {
		l.Quarantine = quarantine.NewRegistry(l.Now)
	}
	unitIndex := quarantine.NewUnits()
	out, why := l.Quarantine.Excluded(all, unitIndex, quarantine.Disruption, quarantine.Provisioning)
	if len(out) == 0 {
		return all
	}
	pods, _ := quarantine.ExcludedPods(all, out, unitIndex)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue // provisioning publishes the event on pending pods
		}
		e := why[unitIndex.Unit(pod)]
		l.Events.WarnEvery(planningFailedDedupe, pod, provisioning.PlanningFailed,
			"%s. The node of the pod is neither consolidated nor replaced until %s", e.Why, e.Until.UTC().Format(time.RFC3339))
	}
	return quarantine.Without(all, out, unitIndex)
}

// planningFailedDedupe is the window in which the event on a quarantined pod is not repeated.
const planningFailedDedupe = 5 * time.Minute

// refusalBackoff is until when a node is not disrupted, and how many replacements were rejected.
type refusalBackoff struct {
	until time.Time
	times int
}

// backOffRefused excludes nodes from disruption for a while after a replacement was rejected as invalid: the next would
// be, too.
func (l *Loop) backOffRefused(cmd *disrupt.Command, err error) {
	if l.refusedReplacements == nil {
		l.refusedReplacements = map[types.UID]refusalBackoff{}
	}
	now := l.Now()
	for _, c := range cmd.Candidates {
		p := l.refusedReplacements[c.Node.ClaimUID]
		p.until = now.Add(panics.Backoff(minRefusalBackoff, maxRefusalBackoff, p.times))
		p.times++
		l.refusedReplacements[c.Node.ClaimUID] = p
		l.recordBlocked(c.Node, fmt.Sprintf("the API server rejects the replacement of the node as invalid: %s. "+
			"Correct the template of NodePool %q, or what the pods of the node request; the next attempt is after %s", provisioning.InvalidCauses(err), c.Pool.Name, p.until.UTC().Format(time.RFC3339)))
	}
}

// withoutBackedOff returns the candidates without a recently rejected replacement.
func (l *Loop) withoutBackedOff(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	if len(l.refusedReplacements) == 0 {
		return candidates
	}
	now := l.Now()
	maps.DeleteFunc(l.refusedReplacements, func(_ types.UID, p refusalBackoff) bool { return now.Sub(p.until) > 2*maxRefusalBackoff })
	return slices.DeleteFunc(
		slices.Clone(candidates),
		func(c *disrupt.Candidate) bool { return now.Before(l.refusedReplacements[c.Node.ClaimUID].until) },
	)
}
