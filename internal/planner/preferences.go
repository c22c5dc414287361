package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// jsonPreference is what has become of one preference of a workload's pods, with --preference-policy=Priced.
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

// maxPreferences is how many preferences a table lists, those that cost the most: as many as fit on a page of a terminal.
const maxPreferences = 40

// preferencesSection lists what the preferences of each workload cost, unless no pod has any.
func (r *Report) preferencesSection(b *strings.Builder, width int) {
	all := r.preferences()
	left := len(all) - maxPreferences
	if left > 0 {
		slices.SortStableFunc(all, func(a, b schedule.PreferenceCost) int { return cmp.Compare(costOf(b), costOf(a)) })
		all = all[:maxPreferences]
	}
	rows := make([][]string, 0, len(all))
	details := make([]string, 0, len(all))
	for i := range all {
		p := &all[i]
		rows = append(rows, []string{count(p.Kept), keptCost(p), count(p.Dropped), droppedCost(p), count(p.Unmet)})
		details = append(details, fold(below, workloadOf(p.Pod).name+": "+p.Text, width))
	}
	if left > 0 {
		rows = append(rows, []string{"", "", "", "", ""})
		details = append(details, fold(below, fmt.Sprintf("%d more with -o json", left), width))
	}
	columns := []string{"KEPT", "FOR $/H", "DROPPED", "SAVES $/H", "UNMET"}
	detailedTable{"Preferences of pods", columns, rows, details}.print(b)
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
	return dollars(p.KeptCost)
}

func droppedCost(p *schedule.PreferenceCost) string {
	if p.Dropped == 0 || math.IsNaN(p.DroppedCost) {
		return "-"
	}
	return dollars(p.DroppedCost)
}
