package disrupt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Unlimited states what a pool without an active budget allows.
const Unlimited = math.MaxInt32

// Allowance describes what the budgets of a pool allow for one reason at one instant.
type Allowance struct {
	Pool *karpv1.NodePool
	// Nodes counts how many count as the pool's: managed, initialized or rebooting, and with an instance that is not terminating.
	Nodes int
	// Allowed nodes may be disrupted at once. Disrupting counts those that are already, and those that are not Ready, unless the reason
	// is Unhealthy: what is to be repaired is not ready as a rule, and would use up the budget for its own repair.
	Allowed, Disrupting int
	// Err is the budget that is invalid. Nothing is allowed then.
	Err error
}

// Available returns how many nodes may be disrupted now, never negative.
func (a Allowance) Available() int { return max(a.Allowed-a.Disrupting, 0) }

// Allowances returns, in the order of the snapshot's pools and then of the closed ones, what their budgets
// allow for reason.
func Allowances(s *snapshot.Snapshot, reason karpv1.DisruptionReason) []Allowance {
	out := make([]Allowance, 0, len(s.Pools)+len(s.Closed))
	for i := range s.Pools {
		out = append(out, Allowance{Pool: s.Pools[i].NodePool})
	}
	for _, pool := range s.Closed {
		out = append(out, Allowance{Pool: pool})
	}
	byPool := make(map[string]*Allowance, len(out))
	for i := range out {
		byPool[out[i].Pool.Name] = &out[i]
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		a := byPool[n.Pool]
		if a == nil || n.Claim == "" || !n.Initialized && !n.Rebooting || n.InstanceTerminating {
			continue
		}
		a.Nodes++
		if n.Deleting || n.Disrupting || n.Rebooting || !n.Ready && reason != karpv1.DisruptionUnhealthy {
			a.Disrupting++
		}
	}
	for i := range out {
		out[i].Allowed, out[i].Err = Allowed(out[i].Pool, out[i].Nodes, reason, s.Now)
	}
	return out
}

// Allowed is the minimum of what the pool's active budgets for reason allow; Unlimited if there is none. An invalid
// budget, for any reason, allows nothing: what its author meant to protect is unknown.
func Allowed(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, now time.Time) (int, error) {
	budgets := pool.Spec.Disruption.Budgets
	if budgets == nil { // as the API server fills it in; an empty list states that there is no bound
		budgets = []karpv1.Budget{{Nodes: "10%"}}
	}
	allowed := Unlimited
	var errs []error
	for i, b := range budgets {
		n, err := budgetAllows(b, nodes, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.disruption.budgets[%d]: %w", i, err))
			continue
		}
		if b.Reasons == nil || slices.Contains(b.Reasons, reason) {
			allowed = min(allowed, n)
		}
	}
	if len(errs) > 0 {
		return 0, errors.Join(errs...)
	}
	return allowed, nil
}

// budgetAllows returns what one budget allows, whatever its reasons.
func budgetAllows(b karpv1.Budget, nodes int, now time.Time) (int, error) {
	active, err := windowOpen(b, now)
	if err != nil {
		return 0, err
	}
	n, err := parseNodes(b.Nodes, nodes)
	if err != nil || active {
		return n, err
	}
	return Unlimited, nil
}

// windowOpen reports whether now is within a window of the budget's schedule, which is in UTC. A window begins at
// each hit and lasts for the duration; its end is excluded.
func windowOpen(b karpv1.Budget, now time.Time) (bool, error) {
	if b.Schedule == nil && b.Duration == nil {
		return true, nil
	}
	schedule, err := windows(b)
	if err != nil {
		return false, err
	}
	now = now.UTC()
	hit := schedule.Next(now.Add(-b.Duration.Duration))
	return !hit.IsZero() && !hit.After(now), nil // zero: a date that never comes
}

// windows is the schedule of a budget that has one.
func windows(b karpv1.Budget) (cron.Schedule, error) {
	if b.Schedule == nil || b.Duration == nil {
		return nil, errors.New("schedule and duration come together")
	}
	if strings.Contains(*b.Schedule, "=") || strings.HasPrefix(*b.Schedule, "@every") {
		return nil, fmt.Errorf("schedule %q: only five fields or a macro like @daily, in UTC", *b.Schedule)
	}
	schedule, err := cron.ParseStandard(*b.Schedule)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w", *b.Schedule, err)
	}
	return schedule, nil
}

// NextBudgetChange is the first instant at which a window of a budget begins or stops; zero if no budget has windows.
func NextBudgetChange(s *snapshot.Snapshot) (first time.Time) {
	see := func(pool *karpv1.NodePool) {
		for _, b := range pool.Spec.Disruption.Budgets {
			if at := nextWindowChange(b, s.Now); !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	for i := range s.Pools {
		see(s.Pools[i].NodePool)
	}
	for _, pool := range s.Closed {
		see(pool)
	}
	return first
}

// nextWindowChange is the first instant after now at which a window of the budget begins or stops; zero if there is none. A window may
// end within another one, which changes nothing, but counts.
func nextWindowChange(b karpv1.Budget, now time.Time) time.Time {
	if b.Schedule == nil && b.Duration == nil {
		return time.Time{}
	}
	schedule, err := windows(b)
	if err != nil {
		return time.Time{} // it allows nothing, at any time
	}
	now = now.UTC()
	begin := schedule.Next(now)
	if hit := schedule.Next(now.Add(-b.Duration.Duration)); !hit.IsZero() && !hit.After(now) {
		if end := hit.Add(b.Duration.Duration); begin.IsZero() || end.Before(begin) {
			return end
		}
	}
	return begin
}

// parseNodes parses a number of nodes, or a percentage of them, rounded up.
func parseNodes(text string, nodes int) (int, error) {
	share, isShare := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(share)
	if err != nil || n < 0 || isShare && n > 100 {
		return 0, fmt.Errorf("nodes %q is neither a number nor a percentage", text)
	}
	if isShare {
		return (nodes*n + 99) / 100, nil
	}
	return n, nil
}
