// Package budgets evaluates the disruption budgets of NodePools over time. What holds at an instant is the engine's
// answer (disrupt.Allowed); this package only finds the instants at which it may change.
package budgets

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Unlimited is the number of nodes that a Span allows if no budget is active.
const Unlimited = -1

const (
	// Horizon sets how far ahead budgets are evaluated: a day has the windows that an operator plans for.
	Horizon = 24 * time.Hour
	// margin sets how much more is evaluated on both sides, so that a window that reaches beyond the horizon has its own
	// bounds: two days show those of a weekend.
	margin = 48 * time.Hour
)

// Span is a time in which the budgets of a pool allow the same number of nodes at once.
type Span struct {
	// From is included, To is not. Both are in UTC, and at most two days outside the day that was requested.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Allowed counts how many nodes; Unlimited without a bound.
	Allowed int `json:"allowed"`
	// Budget is the index in spec.disruption.budgets of the budget that allows least; -1 if there is none.
	Budget int `json:"budget"`
}

// Schedule describes what budgets allow for some reasons over the day after an instant.
type Schedule struct {
	Reasons []karpv1.DisruptionReason `json:"reasons"`
	// Now is the Span of the instant.
	Now   Span   `json:"now"`
	Spans []Span `json:"spans"`
	// Text states the same in words.
	Text string `json:"text"`
}

// Schedules evaluates the budgets of a pool with so many nodes over the day after now. Reasons with equal spans share a
// Schedule. It costs at most one evaluation per reason and minute of five days.
func Schedules(pool *karpv1.NodePool, nodes int, now time.Time) ([]Schedule, error) {
	if _, err := disrupt.Allowed(pool, nodes, karpv1.DisruptionEmpty, now); err != nil {
		return nil, err
	}
	var out []Schedule
	for _, reason := range karpv1.DisruptionReasons() {
		spans := of(pool, nodes, reason, now)
		if k := slices.IndexFunc(out, func(s Schedule) bool { return slices.Equal(s.Spans, spans) }); k >= 0 {
			out[k].Reasons = append(out[k].Reasons, reason)
			continue
		}
		out = append(out, Schedule{
			Reasons: []karpv1.DisruptionReason{reason}, Now: at(spans, now), Spans: spans, Text: text(pool, nodes, spans),
		})
	}
	return out, nil
}

// For is the Schedule of one reason; nil if the budgets are invalid.
func For(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, now time.Time) *Schedule {
	all, err := Schedules(pool, nodes, now)
	if err != nil {
		return nil
	}
	for i := range all {
		if slices.Contains(all[i].Reasons, reason) {
			return &all[i]
		}
	}
	return nil
}

// Opens returns when more than n nodes are allowed next, within the spans; false if never.
func (s *Schedule) Opens(n int, now time.Time) (time.Time, bool) {
	for _, span := range s.Spans {
		if span.From.After(now) && (span.Allowed == Unlimited || span.Allowed > n) {
			return span.From, true
		}
	}
	return time.Time{}, false
}

func at(spans []Span, now time.Time) Span {
	for _, s := range spans {
		if !now.Before(s.From) && now.Before(s.To) {
			return s
		}
	}
	return Span{Allowed: Unlimited, Budget: -1}
}

// of are the spans that meet the day after now, merged where they allow the same.
func of(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, now time.Time) []Span {
	start, end := now.UTC().Add(-margin), now.UTC().Add(Horizon+margin)
	times := append([]time.Time{start}, changes(pool, start, end)...)
	var all []Span
	for i, from := range times {
		to := end
		if i+1 < len(times) {
			to = times[i+1]
		}
		span := evaluate(pool, nodes, reason, from)
		span.From, span.To = from, to
		if n := len(all); n > 0 && all[n-1].Allowed == span.Allowed && all[n-1].Budget == span.Budget {
			all[n-1].To = to
			continue
		}
		all = append(all, span)
	}
	return slices.DeleteFunc(all, func(s Span) bool { return !s.To.After(now) || !s.From.Before(now.Add(Horizon)) })
}

// evaluate returns what holds at an instant, by the engine, and the budget that is the reason.
func evaluate(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, at time.Time) Span {
	allowed, err := disrupt.Allowed(pool, nodes, reason, at)
	if err != nil || allowed == disrupt.Unlimited {
		return Span{Allowed: Unlimited, Budget: -1}
	}
	out := Span{Allowed: allowed, Budget: -1}
	one := *pool
	for i, b := range pool.Spec.Disruption.Budgets {
		one.Spec.Disruption.Budgets = []karpv1.Budget{b}
		if n, err := disrupt.Allowed(&one, nodes, reason, at); err == nil && n == allowed {
			out.Budget = i
			break
		}
	}
	return out
}

// changes are the instants between two times at which a window opens or closes, sorted. Schedules are in minutes, so
// there is at most one per minute.
func changes(pool *karpv1.NodePool, start, end time.Time) []time.Time {
	var out []time.Time
	for _, b := range pool.Spec.Disruption.Budgets {
		if b.Schedule == nil || b.Duration == nil {
			continue
		}
		schedule, err := cron.ParseStandard(*b.Schedule)
		if err != nil {
			continue // disrupt.Allowed has reported it
		}
		for _, shift := range []time.Duration{0, b.Duration.Duration} {
			for hit := schedule.Next(start.Add(-shift)); !hit.IsZero() && hit.Add(shift).Before(end); hit = schedule.Next(hit) {
				out = append(out, hit.Add(shift))
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// text is like "22:00-06:00 UTC 0 nodes, otherwise 3 nodes (10% of 27)".
func text(pool *karpv1.NodePool, nodes int, spans []Span) string {
	usual := longest(spans)
	var parts []string
	for _, s := range spans {
		if s.Allowed == usual.Allowed {
			continue
		}
		part := fmt.Sprintf("%s UTC %s", clock(s), amount(pool, nodes, s))
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return amount(pool, nodes, usual) + " at all times"
	}
	return strings.Join(parts, ", ") + ", otherwise " + amount(pool, nodes, usual)
}

// longest is the span with the number that holds longest.
func longest(spans []Span) Span {
	total := map[int]time.Duration{}
	var best Span
	for i, s := range spans {
		total[s.Allowed] += s.To.Sub(s.From)
		if i == 0 || total[s.Allowed] > total[best.Allowed] {
			best = s
		}
	}
	return best
}

// clock is the time of day of a span's bounds, with the weekday if it is longer than a day.
func clock(s Span) string {
	layout := "15:04"
	if s.To.Sub(s.From) > Horizon {
		layout = "Mon 15:04"
	}
	return s.From.Format(layout) + "-" + s.To.Format(layout)
}

// amount is a number of nodes, and its share if the budget is one.
func amount(pool *karpv1.NodePool, nodes int, s Span) string {
	if s.Allowed == Unlimited {
		return "any number of nodes"
	}
	out := report.Plural(s.Allowed, "node")
	share := ""
	switch list := pool.Spec.Disruption.Budgets; {
	case s.Budget >= 0 && s.Budget < len(list):
		share = list[s.Budget].Nodes
	case list == nil:
		share = "10%"
	}
	if strings.HasSuffix(share, "%") {
		out += fmt.Sprintf(" (%s of %d)", share, nodes)
	}
	return out
}
