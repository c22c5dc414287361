package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// The kinds of switches.
const (
	GateSwitch       = "feature gate"
	ProtectionSwitch = "protection"
	ConstraintSwitch = "constraint"
)

// Switch is one change of the configuration, and what the nodes would cost less with it.
type Switch struct {
	// Kind is GateSwitch, ProtectionSwitch or ConstraintSwitch.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Text states what it does, and how sure the saving is.
	Text string `json:"text"`
	// HourlySavings is in $/h, MonthlySavings in $ for 730 h.
	HourlySavings  float64 `json:"hourlySavings"`
	MonthlySavings float64 `json:"monthlySavings"`
}

// Switches are all changes of the configuration that save something, the largest saving first. Those of gates and protections come on top
// of the outcome Consolidated. They overlap, so they do not add up.
func (r *Report) Switches() []Switch {
	out := []Switch{}
	if g := r.Gate; g != nil {
		text := "Consolidation then comes to " + report.Count(g.Nodes, "node") + "."
		if g.Cut {
			text += " Its search stopped early: more can be saved."
		}
		out = append(out, Switch{GateSwitch, g.Name, text, g.HourlySavings, g.MonthlySavings})
	}
	for i := range r.Guards {
		if g := &r.Guards[i]; g.HourlyCost >= leastCost {
			out = append(out, Switch{ProtectionSwitch, g.Name, g.words(), g.HourlyCost, g.MonthlyCost})
		}
	}
	for i := range r.Rules {
		if x := &r.Rules[i]; x.HourlyCost >= leastCost {
			text := ""
			if words := ruleLegend[x.Rule]; words != "" {
				text = strings.ToUpper(words[:1]) + words[1:] + "."
			}
			out = append(out, Switch{ConstraintSwitch, x.summary(), text, x.HourlyCost, x.MonthlyCost})
		}
	}
	slices.SortStableFunc(out, func(a, b Switch) int { return cmp.Compare(b.HourlySavings, a.HourlySavings) })
	return out
}

// LargestSwitch is what one change of the configuration saves beyond consolidation as it is configured, in one sentence: the largest,
// which is a feature gate or a protection. It is empty if none saves anything.
func (r *Report) LargestSwitch() string {
	var most Guard
	if len(r.Guards) > 0 {
		most = r.Guards[0] // those that cost most come first
	}
	switch base := r.comparable(); {
	case r.Gate != nil && base > 0 && r.Gate.HourlySavings >= most.HourlyCost:
		return fmt.Sprintf("One switch saves most beyond consolidation, the feature gate %s: %s a month (%s) less, with %s in the end.",
			r.Gate.Name, PerMonth(r.Gate.MonthlySavings), Percent(r.Gate.HourlySavings/base), report.Count(r.Gate.Nodes, "node"))
	case most.HourlyCost >= leastCost:
		return fmt.Sprintf("Of the protections, %s cost most: %s a month.", most.Name, PerMonth(most.MonthlyCost))
	}
	return ""
}

// TitledOutcome is an outcome with the words of the report.
type TitledOutcome struct {
	Title string `json:"title"`
	Outcome
}

// TitledOutcomes are what the cluster costs now, and the outcomes that can differ from that, with the words of the report.
func (r *Report) TitledOutcomes() []TitledOutcome {
	now := Outcome{Name: "now", HourlyCost: r.Now.HourlyCost, MonthlyCost: r.Now.MonthlyCost, Nodes: r.Now.Nodes}
	out := []TitledOutcome{{"Now", now}}
	if title, nodes := r.begun(); title != "" {
		hourly := r.comparable()
		out = append(out, TitledOutcome{title, Outcome{Name: "begun", HourlyCost: hourly, MonthlyCost: monthly(hourly), Nodes: nodes}})
	}
	for _, o := range r.comparableOutcomes() {
		out = append(out, TitledOutcome{outcomeTitles[o.Name], o})
	}
	return out
}
