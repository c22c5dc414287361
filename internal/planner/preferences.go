package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// jsonPreference describes what has become of one preference of a workload's pods, with --preference-policy=Priced.
type jsonPreference struct {
	Workload   string `json:"workload"`
	Preference string `json:"preference"`
	Kept       int    `json:"kept"`
	Dropped    int    `json:"dropped"`
	Unmet      int    `json:"unmet"`
	// KeptHourlyCost is omitted if no pod keeps the preference; DroppedHourlyCost if none drops it, or its cost is not known.
	KeptHourlyCost    *float64 `json:"keptHourlyCost,omitempty"`
	DroppedHourlyCost *float64 `json:"droppedHourlyCost,omitempty"`
}

// preferences are the plan's preferences by workload and text, sorted by workload. Pods of a workload may differ in labels,
// and each then has an entry of its own in the plan.
func (r *Report) preferences() []schedule.PreferenceCost {
	type key struct{ workload, text string }
	at := map[key]int{}
	var out []schedule.PreferenceCost
	for _, p := range r.Plan.Preferences {
		k := key{workloadOf(p.Pod).name, p.Text}
		i, known := at[k]
		if !known {
			at[k] = len(out)
			out = append(out, p)
			continue
		}
		sum := &out[i]
		sum.Kept, sum.Dropped, sum.Unmet = sum.Kept+p.Kept, sum.Dropped+p.Dropped, sum.Unmet+p.Unmet
		sum.KeptCost, sum.DroppedCost = sum.KeptCost+p.KeptCost, sum.DroppedCost+p.DroppedCost
	}
	slices.SortStableFunc(out, func(a, b schedule.PreferenceCost) int {
		return cmp.Compare(workloadOf(a.Pod).name, workloadOf(b.Pod).name)
	})
	return out
}

func newPreference(p *schedule.PreferenceCost) jsonPreference {
	out := jsonPreference{
		Workload: workloadOf(p.Pod).name, Preference: p.Text, Kept: p.Kept, Dropped: p.Dropped, Unmet: p.Unmet,
	}
	if p.Kept > 0 {
		out.KeptHourlyCost = &p.KeptCost
	}
	if p.Dropped > 0 && !math.IsNaN(p.DroppedCost) {
		out.DroppedHourlyCost = &p.DroppedCost
	}
	return out
}

// maxPreferences limits how many preferences a table lists, those that cost the most: as many as fit on a page of a terminal.
const maxPreferences = 40

// preferencesSection lists what the preferences of each workload cost, unless no pod has any.
func (r *Report) preferencesSection(p *report.Page) {
	all := r.preferences()
	left := len(all) - maxPreferences
	if left > 0 {
		slices.SortStableFunc(all, func(a, b schedule.PreferenceCost) int { return cmp.Compare(costOf(b), costOf(a)) })
		all = all[:maxPreferences]
	}
	rows := make([][]string, 0, len(all))
	details := make([]string, 0, len(all))
	detail := func(text string) string {
		part := p.Part()
		part.Indented(below, text)
		return part.String()
	}
	for i := range all {
		cost := &all[i]
		rows = append(rows, []string{count(cost.Kept), keptCost(cost), count(cost.Dropped), droppedCost(cost), count(cost.Unmet)})
		details = append(details, detail(workloadOf(cost.Pod).name+": "+cost.Text))
	}
	if left > 0 {
		rows = append(rows, []string{"", "", "", "", ""})
		details = append(details, detail(fmt.Sprintf("%d more with -o json", left)))
	}
	columns := []string{"KEPT", "FOR $/H", "DROPPED", "SAVES $/H", "UNMET"}
	p.Section("Preferences of pods", columns, rows, details...)
}

// costOf orders preferences by what they cost or would cost.
func costOf(p schedule.PreferenceCost) float64 {
	if math.IsNaN(p.DroppedCost) {
		return p.KeptCost
	}
	return p.KeptCost + p.DroppedCost
}

func count(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func keptCost(p *schedule.PreferenceCost) string {
	if p.Kept == 0 {
		return "-"
	}
	return report.Price(p.KeptCost)
}

func droppedCost(p *schedule.PreferenceCost) string {
	if p.Dropped == 0 || math.IsNaN(p.DroppedCost) {
		return "-"
	}
	return report.Price(p.DroppedCost)
}
