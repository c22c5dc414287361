package assess

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// PerMonth formats a cost a month: in dollars, in cents below $100.
func PerMonth(amount float64) string {
	if math.Abs(amount) < 100 {
		return report.Grouped(amount, 2)
	}
	return report.Grouped(amount, 0)
}

// perHour formats a cost per hour: in cents, with four places below $10.
func perHour(amount float64) string {
	if math.Abs(amount) < 10 {
		return report.Grouped(amount, 4)
	}
	return report.Grouped(amount, 2)
}

// Percent formats a share with a space before the sign.
func Percent(share float64) string { return strings.Replace(report.Share(share), "%", " %", 1) }

// clean is a name or message of the cluster for a terminal: without line breaks and control characters.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

// after formats when something starts, from now.
func after(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Minute)
	switch {
	case d == 0:
		return "at once"
	case d < time.Hour:
		return fmt.Sprintf("after %.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("after %.1f h", d.Hours())
	}
	return fmt.Sprintf("after %.1f days", d.Hours()/24)
}

// protections are the words for all guards.
const protections = "disruption budgets, PodDisruptionBudgets, do-not-disrupt, and consolidation policies that spare nodes with pods."

// outcomeTitles are the words of the report.
var outcomeTitles = map[string]string{
	Consolidated: "Consolidated within all protections",
	Unguarded:    "Without these protections",
	Repacked:     "All pods repacked on new nodes",
	LowerBound:   "Lower bound of any plan",
}

// Headline is the answer in one or two sentences.
func (r *Report) Headline() []string {
	if r.Now.Nodes == 0 {
		return []string{"This cluster has no nodes, so it costs nothing."}
	}
	out := []string{fmt.Sprintf("This fleet costs %s a month: %s with %s, %s/h.",
		PerMonth(r.Now.MonthlyCost), report.Count(r.Now.Nodes, "node"), report.Count(r.Now.Pods, "pod"), perHour(r.Now.HourlyCost))}
	if n := len(r.Now.Unpriced); n > 0 {
		out = append(out, fmt.Sprintf("The price of %s is not known: they count as nothing.", report.Count(n, "node")))
	}
	done, free, repacked := r.Outcome(Consolidated), r.Outcome(Unguarded), r.Outcome(Repacked)
	switch base := r.comparable(); {
	case r.Consolidatable == 0 && r.NodeGroups && repacked.HourlySavings >= leastCost:
		out = append(out, fmt.Sprintf("On nodes of its NodePools, the same pods would cost %s a month: %s (%s) less.",
			PerMonth(repacked.MonthlyCost), PerMonth(repacked.MonthlySavings), Percent(repacked.HourlySavings/base)))
	case r.Consolidatable == 0:
		out = append(out, "None of these nodes belongs to a NodePool, so consolidation changes nothing. To see what a NodePool would save: "+
			"dovetail snapshot | dovetail assess -f - -f nodepool.yaml --node-groups")
	case done.HourlySavings < leastCost && free.HourlySavings >= leastCost:
		out = append(out, fmt.Sprintf("Consolidation finds nothing to save within the protections of pods and nodes; without them it would save "+
			"%s (%s).", PerMonth(free.MonthlySavings), Percent(free.HourlySavings/base)))
	case done.HourlySavings < leastCost || base <= 0:
		out = append(out, "Consolidation finds nothing to save.")
	default:
		out = append(out, fmt.Sprintf("Consolidation would bring it to %s a month: %s (%s) less, in %s.",
			PerMonth(done.MonthlyCost), PerMonth(done.MonthlySavings), Percent(done.HourlySavings/base), report.Count(done.Moves, "move")))
	}
	if largest := r.LargestSwitch(); largest != "" {
		out = append(out, largest)
	}
	return out
}

// bounds state the bounds of the searches.
func (s *Search) bounds() string {
	line := fmt.Sprintf("consolidation stops when a pass saves less than %.2g %% of the cost and %.2g %% of what passes save on "+
		"average, after %d passes", 100*s.LeastSaved, 100*s.LeastShare, s.MaxPasses)
	if s.OutcomeSteps > 0 && s.FreeSteps > 0 {
		line += fmt.Sprintf(", or after %s million steps, without protections %s million", report.Thousands(s.OutcomeSteps/1e6),
			report.Thousands(s.FreeSteps/1e6))
	}
	return line + "."
}

// stopped reports which searches finished early, and what is missing for it.
func (s *Search) stopped(outcomes []Outcome) []string {
	var out []string
	for _, o := range outcomes {
		if o.Cut {
			out = append(out, fmt.Sprintf("%q stopped at this bound; more can be saved.", outcomeTitles[o.Name]))
		}
	}
	if n := len(s.UnmeasuredRules); n > 0 {
		out = append(out, fmt.Sprintf("%s not measured, since the others took %s million steps: %s.", report.Count(n, "constraint"),
			report.Thousands(s.RuleSteps/1e6), someOf(s.UnmeasuredRules, 5)))
	}
	return out
}

// words report what the protection does now, and how sure its cost is.
func (g *Guard) words() string {
	text := "They bound how many nodes change at once."
	if g.Nodes > 0 {
		text = "They hold " + report.Count(g.Nodes, "node") + " now."
	}
	if g.Cut {
		text += " The cost is rough: a search stopped early."
	}
	return text
}

// summary explains a rule's cost in words.
func (x *Rule) summary() string {
	what := x.Rule
	if x.Owner != "" {
		return what + ": " + x.Owner
	}
	return what + ": all together"
}

// ruleLegend explains the sorts of constraints of package attribution.
var ruleLegend = map[string]string{
	string(attribution.ZoneSpread):    "topology spread over zones",
	string(attribution.ZoneAffinity):  "pod affinity and anti-affinity over zones",
	string(attribution.ZoneSelection): "node selection by zone",
	string(attribution.HostRules):     "topology spread, pod affinity and anti-affinity over hostnames",
	string(attribution.Preferences):   "preferred affinity, and spread with ScheduleAnyway",
	string(attribution.OnDemandOnly):  "a requirement that admits on-demand, but no spot instances",
	string(attribution.ReservedRules): "requirements on capacity reservations",
}

// legend explains the sorts of constraints that are listed, in their order.
func legend(rules []Rule) []string {
	var out []string
	for i := range rules {
		if text := ruleLegend[rules[i].Rule]; text != "" {
			if line := strings.ToUpper(rules[i].Rule[:1]) + rules[i].Rule[1:] + ": " + text + "."; !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	return out
}

// nodesInWords lists nodes by type, those of most nodes first: 3 m5.large, 1 c5.xlarge spot.
func nodesInWords(nodes []Node) string {
	if len(nodes) == 0 {
		return "nothing"
	}
	type kind struct{ instanceType, capacityType string }
	counts := map[kind]int{}
	var order []kind
	for _, n := range nodes {
		k := kind{n.InstanceType, n.CapacityType}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	slices.SortStableFunc(order, func(a, b kind) int { return cmp.Compare(counts[b], counts[a]) })
	const most = 4
	var parts []string
	left := len(nodes)
	for i, k := range order {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d of other types", left))
			break
		}
		left -= counts[k]
		text := fmt.Sprintf("%d %s", counts[k], cmp.Or(k.instanceType, "of unknown type"))
		if k.capacityType != karpv1.CapacityTypeOnDemand && k.capacityType != "" {
			text += " " + k.capacityType
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// grouped returns the moves with those of a pass that only remove nodes without pods as one: of a large fleet there are hundreds.
func grouped(moves []Move) []Move {
	out := make([]Move, 0, len(moves))
	for _, m := range moves {
		last := len(out) - 1
		if last < 0 || out[last].Pass != m.Pass || !m.onlyRemoves() || !out[last].onlyRemoves() {
			out = append(out, m)
			continue
		}
		sum := &out[last]
		sum.Removed = append(sum.Removed[:len(sum.Removed):len(sum.Removed)], m.Removed...)
		sum.HourlySavings, sum.MonthlySavings = sum.HourlySavings+m.HourlySavings, sum.MonthlySavings+m.MonthlySavings
	}
	return out
}

// onlyRemoves reports whether nothing takes the place of the nodes.
func (m *Move) onlyRemoves() bool { return len(m.Launched) == 0 && m.Evictions == 0 }

// example names a node that stays, with the reason in full if that states more.
func (k *Kept) example() string {
	if k.plain {
		return "such as " + k.node
	}
	return "such as " + k.Example
}
