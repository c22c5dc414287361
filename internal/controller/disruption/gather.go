package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// input is what a pass on the Snapshot depends on. With an error the pass decides on what is known.
func (l *Loop) input(ctx context.Context, snap *snapshot.Snapshot) (pass.Input, error) {
	in := pass.Input{
		Snapshot: snap, Work: pass.Due | pass.Ahead(snap), Memory: l.Queue.memory.now(),
		Settings: pass.Settings{
			Consolidation: l.Consolidation, Validate: true, ValidationDelay: l.ValidationDelay, MaxDrift: 1,
			MaxDriftRejections: pass.MaxSimulations, Reboots: l.Rebooter != nil,
			TerminateFirstDrift: l.TerminateFirst.Drift, TerminateFirstRepair: l.TerminateFirst.Repair,
		},
		Resting: l.Now().Before(l.restsUntil), Interrupt: l.searchInterrupt(),
	}
	if l.Repairs != nil {
		in.Work |= pass.Repair
	}
	if l.StaticCapacity {
		in.Work |= pass.Replicas
	}
	var err error
	in.Facts, err = l.facts(ctx, &in)
	return in, err
}

// facts are what a pass depends on besides the Snapshot. They are read only where a node may have to be replaced: the room of static
// pools with such nodes, and the limits of all pools for the reasons of such nodes, since a replacement may be of any pool.
func (l *Loop) facts(ctx context.Context, in *pass.Input) (pass.Facts, error) {
	out := pass.Facts{Rooms: map[string]pass.Room{}}
	replaced := map[karpv1.DisruptionReason]bool{}
	pools := map[string]bool{} // with nodes that may have to be replaced
	expirations := disrupt.ExpirationsOf(in.Snapshot)
	for i := range in.Snapshot.Nodes {
		n := &in.Snapshot.Nodes[i]
		if n.Claim == "" || n.Deleting || n.Disrupting {
			continue
		}
		if !n.DriftedAt.IsZero() {
			replaced[karpv1.DisruptionDrifted], pools[n.Pool] = true, true
		}
		if n.Repair != nil {
			replaced[karpv1.DisruptionUnhealthy], pools[n.Pool] = true, true
		}
		if expirations.Due(n, in.Snapshot.Now) {
			replaced[karpv1.DisruptionExpired], pools[n.Pool] = true, true
		}
	}
	for i := range in.Memory.Proposals {
		if p := &in.Memory.Proposals[i]; len(p.Launches) > 0 && !p.Due.After(in.Snapshot.Now) {
			replaced[p.Reason] = true
		}
	}
	var errs []error
	for _, pool := range allPools(in.Snapshot) {
		if l.Queue.Guard.Budget.Paused(ctx, pool.Name) != nil {
			out.Paused = append(out.Paused, pool.Name)
		}
		if pool.Spec.Replicas != nil && pools[pool.Name] {
			room, err := l.State.ReservedRoom(ctx, pool)
			if err != nil {
				out.Rooms[pool.Name] = pass.Room{Error: err.Error()}
				errs = append(errs, fmt.Errorf("read the room of static NodePool %q: %w", pool.Name, err))
				continue
			}
			out.Rooms[pool.Name] = pass.Room{TemplateRoom: room}
		}
		if l.Breaker == nil {
			continue
		}
		for _, reason := range append(l.reasons(), karpv1.DisruptionExpired) {
			if !replaced[reason] {
				continue
			}
			if limit, limited := l.Breaker.Limit(ctx, pool.Name, reason); limited {
				out.Limits = append(out.Limits, limit)
			}
		}
	}
	return out, errors.Join(errs...)
}

// allPools are the pools of the Snapshot, those that launch nothing included.
func allPools(s *snapshot.Snapshot) []*karpv1.NodePool {
	out := make([]*karpv1.NodePool, 0, len(s.Pools)+len(s.Closed))
	for i := range s.Pools {
		out = append(out, s.Pools[i].NodePool)
	}
	return append(out, s.Closed...)
}

// searchInterrupt reports whether a search that begins now is to end early: the pods of a burst come first, and the search is of a cluster
// that changes. It is nil if the search must not be interrupted.
func (l *Loop) searchInterrupt() func() bool {
	if l.Provisioning == nil || l.interrupted || l.Provisioning.InBurst() {
		return nil
	}
	return l.Provisioning.InBurst
}

// reasons are the reasons for which this loop disrupts nodes.
func (l *Loop) reasons() []karpv1.DisruptionReason {
	return slices.DeleteFunc(karpv1.DisruptionReasons(), func(r karpv1.DisruptionReason) bool {
		return r == karpv1.DisruptionUnhealthy && l.Repairs == nil
	})
}
