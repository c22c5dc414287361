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
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// mostPanicPause is the longest pause after passes that panicked without a pod that would be the cause.
	mostPanicPause = 10 * time.Minute
	// causing is for how long the pods with which a pass panics are searched for at a time.
	causing = 2 * time.Minute
	// leastRefusal and mostRefusal bound for how long nodes are kept for which a replacement was refused as invalid.
	leastRefusal, mostRefusal = time.Minute, time.Hour
)

// protected is a pass that survives its panics: it is made again without the pods with which it panics. Where there is no such
// pod the panic is its error, and the next pass comes later each time.
func (l *Loop) protected(ctx context.Context) (acted bool, err error) {
	l.planning = nil
	acted, caught, err := l.caught(ctx)
	if caught != nil && l.searchCause(ctx, caught) {
		acted, caught, err = l.caught(ctx)
	}
	l.Panics.ReportError(ctx, string(quarantine.Disruption), err)
	if caught == nil {
		l.panicked = 0
		return acted, err
	}
	l.Panics.Report(ctx, string(quarantine.Disruption), caught)
	l.panicked++
	return false, errors.Join(err, fmt.Errorf("a pass panicked, whichever pods are left out; report it with the stack above: %w", caught))
}

func (l *Loop) caught(ctx context.Context) (acted bool, caught *panics.Panic, err error) {
	caught = panics.Catch(func() { acted, err = l.pass(ctx) })
	return acted, caught, err
}

// searchCause finds the pods with which the pass panics, and has them left out. It repeats the simulations of the pass, which
// change nothing.
func (l *Loop) searchCause(ctx context.Context, caught *panics.Panic) bool {
	file := l.Panics.Report(ctx, string(quarantine.Disruption), caught)
	l.proposals = nil // what was proposed is looked for anew
	snap := l.planning
	if snap == nil || l.simulate(snap) == nil {
		return false // it was not the engine that panicked
	}
	census, deadline := quarantine.NewCensus(), l.Now().Add(causing)
	suspects := quarantine.Cause(snap, l.Quarantine.Before(quarantine.Disruption), census, func(out quarantine.Set) bool {
		if ctx.Err() != nil || l.Now().After(deadline) {
			return false
		}
		return l.simulate(quarantine.Without(snap, out, census)) == nil
	})
	if !suspects.Found {
		return false
	}
	why := provisioning.Explain("pod", caught, file)
	l.Quarantine.Hold(quarantine.Disruption, suspects.Proven, why)
	l.Quarantine.HoldBriefly(quarantine.Disruption, suspects.Unproven, why)
	l.Log.Info("disruption goes on without the nodes of pods with which planning panics",
		"owners", len(suspects.Proven), "suspected-owners", len(suspects.Unproven))
	return true
}

// simulate has the engine decide what a pass has it decide, and returns its panic.
func (l *Loop) simulate(snap *snapshot.Snapshot) *panics.Panic {
	return panics.Catch(func() {
		r := l.round(snap)
		for _, reason := range []karpv1.DisruptionReason{karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized} {
			r.rooms[reason] = r.Room(disrupt.Allowances(snap, reason))
		}
		r.Empty()
		if drifted := r.Drifted(false); len(drifted) > 0 {
			disrupt.Drift(r.compiled(), r.View, drifted, r.rooms[karpv1.DisruptionDrifted], drifts, schedule.Budget{})
		}
		room := r.rooms[karpv1.DisruptionUnderutilized]
		r.Fingerprint(room)
		totals, _ := (&disrupt.Ledger{}).Update(r.View)
		settings, began := l.Consolidation, l.Now()
		settings.Over = func() bool { return l.Now().Sub(began) > searching }
		consolidate.Find(r.compiled(), snap, r.Candidates, room.Allowances(), consolidate.PoolTotals(snap, r.Candidates, totals), settings)
	})
}

// without is the snapshot without the pods with which planning panics. Their nodes stay as they are; each pod has an event.
func (l *Loop) without(all *snapshot.Snapshot) *snapshot.Snapshot {
	if l.Quarantine == nil {
		l.Quarantine = quarantine.NewBook(l.Now)
	}
	census := quarantine.NewCensus()
	out, why := l.Quarantine.Out(all, census, quarantine.Disruption, quarantine.Provisioning)
	if len(out) == 0 {
		return all
	}
	pods, _ := quarantine.LeftOut(all, out, census)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue // provisioning says it, where it leaves out the pod
		}
		e := why[census.Unit(pod)]
		l.Events.WarnEvery(planningFailedQuiet, pod, provisioning.PlanningFailed,
			"%s. The node of the pod is neither consolidated nor replaced until %s", e.Why, e.Until.UTC().Format(time.RFC3339))
	}
	return quarantine.Without(all, out, census)
}

// planningFailedQuiet is for how long a pod that is left out is not told so again.
const planningFailedQuiet = 5 * time.Minute

// pausing is until when a node is kept, and how often it came to that.
type pausing struct {
	until time.Time
	times int
}

// refuse keeps nodes for a while for which a replacement was refused as invalid: it would be refused again.
func (l *Loop) refuse(cmd *disrupt.Command, err error) {
	if l.refused == nil {
		l.refused = map[types.UID]pausing{}
	}
	now := l.Now()
	for _, c := range cmd.Candidates {
		p := l.refused[c.Node.ClaimUID]
		p.until = now.Add(panics.Backoff(leastRefusal, mostRefusal, p.times))
		p.times++
		l.refused[c.Node.ClaimUID] = p
		l.tellNode(c.Node, fmt.Sprintf("the API server refuses the replacement of the node as invalid: %s. "+
			"Correct the template of NodePool %q, or what the pods of the node request; it is tried again after %s", provisioning.Invalidity(err), c.Pool.Name, p.until.UTC().Format(time.RFC3339)))
	}
}

// accepted are those of the candidates for which no replacement was refused lately.
func (l *Loop) accepted(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	if len(l.refused) == 0 {
		return candidates
	}
	now := l.Now()
	maps.DeleteFunc(l.refused, func(_ types.UID, p pausing) bool { return now.Sub(p.until) > 2*mostRefusal })
	return slices.DeleteFunc(slices.Clone(candidates), func(c *disrupt.Candidate) bool { return now.Before(l.refused[c.Node.ClaimUID].until) })
}
