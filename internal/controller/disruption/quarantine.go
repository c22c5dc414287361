package disruption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// maxPanicBackoff is the longest pause after passes that panicked although no pod was the cause.
	maxPanicBackoff = 10 * time.Minute
	// causeSearchTimeout bounds one search for the pods that make a pass panic.
	causeSearchTimeout = 2 * time.Minute
)

// runPass runs a pass and recovers from its panics: it quarantines the pods that make the pass panic and runs it again.
// If no pod is the cause, it returns the panic as an error, and the pause before the next pass grows each time.
func (l *Loop) runPass(ctx context.Context) (acted bool, err error) {
	defer func() { l.passInput = nil }() // so that it can be collected during the pause
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
	l.Queue.memory.change(func(m *pass.Memory) { m.Proposals = nil }) // the next pass searches again
	if l.passInput == nil {
		return false // the pass had not come to the engine
	}
	in := *l.passInput
	in.Interrupt, in.Step, in.Resting, in.Memory.Search = nil, nil, false, pass.Search{}
	snap := in.Snapshot
	if l.simulate(in) == nil {
		return false // the panic was not in the engine
	}
	unitIndex, deadline := quarantine.NewUnits(), l.Now().Add(causeSearchTimeout)
	suspects := quarantine.FindCause(snap, l.Quarantine.Suspected(quarantine.Disruption), unitIndex, func(out quarantine.Set) bool {
		if ctx.Err() != nil || l.Now().After(deadline) {
			return false
		}
		in.Snapshot = quarantine.Without(snap, out, unitIndex)
		return l.simulate(in) == nil
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
func (l *Loop) simulate(in pass.Input) *panics.Panic {
	return panics.Catch(func() { l.decide(in) })
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
