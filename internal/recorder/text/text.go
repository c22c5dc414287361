// Package text prints decisions of a recording: a line each, or one with its rule, alternatives, prices and steps.
package text

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Since returns the time so long before the end of a recording; zero for no duration.
func Since(r *recorder.Recording, since time.Duration) time.Time {
	_, end, ok := r.Span()
	if since <= 0 || !ok {
		return time.Time{}
	}
	return end.Add(-since)
}

// List are decisions, the oldest first.
type List struct {
	Decisions []recorder.Decision `json:"decisions"`
	// Saved is what they have saved together, until the end of the recording.
	Saved recorder.Saved `json:"realized"`
	// Unreadable counts the frames of the recording that are left out.
	Unreadable int `json:"unreadableFrames"`
}

// ListOf is the list of the decisions from a time on; zero is their first.
func ListOf(r *recorder.Recording, from time.Time) List {
	out := List{}
	out.Decisions, out.Unreadable = r.Decisions(recorder.Selection{From: from, Brief: true})
	_, end, _ := r.Span()
	out.Saved = recorder.Account(out.Decisions, end)
	return out
}

// LeftOut returns the note about frames that cannot be read.
func LeftOut(frames int) string {
	return report.Plural(frames, "frame") +
		" of the recording cannot be read, with decisions or steps that are left out: damaged, or written by another version of Dovetail"
}

// JSON prints the decisions without alternatives and prices, which recording show has.
func (l List) JSON(out io.Writer) error {
	l.Decisions = append([]recorder.Decision{}, l.Decisions...)
	return report.JSON(out, "DecisionList", l)
}

// Text prints a line per decision.
func (l List) Text(out io.Writer) error {
	if len(l.Decisions) == 0 {
		_, err := fmt.Fprintln(out, "no decisions")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tID\tWHAT\tWHY\tSAVING\tOUTCOME")
	for i := range l.Decisions {
		d := &l.Decisions[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n",
			d.At.Format(time.RFC3339), d.ID, d.What, d.Why, perHour(savingOf(d)), outcomeOf(d))
	}
	if err := w.Flush(); err != nil || len(l.Saved.NodePools) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "\nSaved until %s: %s, and %s now\n", l.Saved.Until.Format(time.RFC3339),
		report.Grouped(float64(l.Saved.Dollars), 2), report.Hourly(float64(l.Saved.HourlySavings)))
	return err
}

// savingOf is what a decision saves: once that is known, what it really does.
func savingOf(d *recorder.Decision) float64 {
	if d.Realized != nil && d.Realized.HourlySavings != nil {
		return float64(*d.Realized.HourlySavings)
	}
	return float64(d.HourlySavings)
}

// outcomeOf is what became of a decision, and when.
func outcomeOf(d *recorder.Decision) string {
	last := len(d.Steps) - 1
	switch {
	case !d.Ended.IsZero():
		return fmt.Sprintf("%s after %s", d.Outcome, after(d, d.Ended))
	case last >= 0:
		return fmt.Sprintf("%s: %s after %s", d.Outcome, d.Steps[last].What, after(d, d.Steps[last].At))
	}
	return string(d.Outcome)
}

// after is the time since a decision. Kubernetes cuts times to seconds, so that a step may seem to come before its decision.
func after(d *recorder.Decision, at time.Time) time.Duration {
	return max(0, at.Sub(d.At).Round(time.Second))
}

// perHour is an amount of money per hour; unknown amounts are 0.
func perHour(amount float64) string {
	if amount == 0 {
		return "-"
	}
	return report.Hourly(amount)
}

// shownAlternatives and shownPrices are how many the text has; with wide, and in JSON, there are all.
const shownAlternatives, shownPrices = 8, 4

// Page is one decision.
type Page struct{ *recorder.Decision }

// JSON prints all of it.
func (p Page) JSON(out io.Writer) error { return report.JSON(out, "Decision", p.Decision) }

// Text prints what fits a screen: of a decision that has finished, no step states what it waited for.
func (p Page) Text(out io.Writer) error {
	shown := *p.Decision
	if !shown.Ended.IsZero() {
		shown.Steps = slices.DeleteFunc(slices.Clone(shown.Steps), func(s recorder.Step) bool { return s.What == recorder.StepWaiting })
	}
	return writeDecision(out, &shown, shownAlternatives, shownPrices)
}

// Wide prints all of it.
func (p Page) Wide(out io.Writer) error {
	return writeDecision(out, p.Decision, len(p.Alternatives), len(p.PriceTable))
}

func writeDecision(out io.Writer, d *recorder.Decision, alternatives, prices int) error {
	fmt.Fprintf(out, "%s: %s\n", strings.ToUpper(d.What[:min(1, len(d.What))])+d.What[min(1, len(d.What)):], d.Why)
	for _, write := range []func(w io.Writer){
		func(w io.Writer) { writeSummary(w, d) }, func(w io.Writer) { writeRule(w, &d.Rule) }, func(w io.Writer) { writeMoves(w, d) },
		func(w io.Writer) { writeAlternatives(w, d, alternatives) }, func(w io.Writer) { writePrices(w, d, prices) },
		func(w io.Writer) { writeSteps(w, d) },
	} {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		write(w)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if d.Kind == recorder.KindAdoption {
		return nil // the engine decided nothing
	}
	_, err := fmt.Fprintf(out, "\nReplay it:\n  dovetail replay FILE --at %s\n", d.ID)
	return err
}

func writeSummary(w io.Writer, d *recorder.Decision) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("ID", "%s", d.ID)
	row("Decided", "%s, by version %s", d.At.Format(time.RFC3339), d.Inputs.Version)
	row("Outcome", "%s", outcomeOf(d))
	if d.Kind == recorder.KindAdoption {
		return
	}
	row("Cluster", "%s, %s, %s pending", report.Plural(d.Inputs.Nodes, "node"), report.Plural(d.Inputs.Pods, "pod"),
		report.Plural(d.Inputs.Pending, "pod"))
	if d.NodePool != "" {
		row("NodePool", "%s, generation %d", d.NodePool, d.Inputs.PoolGeneration)
	}
	if d.HourlySavings != 0 {
		row("Saving", "%s", perHour(float64(d.HourlySavings)))
	}
	if d.Kind != recorder.KindLaunch {
		row("Evictions", "%d", d.Evictions)
	}
	if d.HourlyCost > 0 {
		row("New nodes", "%s", perHour(float64(d.HourlyCost)))
	}
	writeRealized(row, d.Realized)
}

// writeRealized states what EC2 gave, and what that has saved.
func writeRealized(row func(name, format string, args ...any), r *recorder.Realized) {
	if r == nil {
		return
	}
	for _, i := range r.Launched {
		price := "price not known"
		if i.HourlyCost > 0 {
			price = perHour(float64(i.HourlyCost))
		}
		row("EC2 launched", "%s %s in %s, %s", i.CapacityType, i.InstanceType, i.Zone, price)
	}
	if r.HourlyCostAbovePlan != nil {
		row("Against the plan", "%s", againstPlan(float64(*r.HourlyCostAbovePlan)))
	}
	if r.HourlySavings != nil {
		row("Realized saving", "%s", report.Hourly(float64(*r.HourlySavings)))
	}
	if r.Saved != nil {
		row("Saved so far", "%s", report.Grouped(float64(*r.Saved), 2))
	}
}

// leastDifference is the least difference from the plan that is named, in $/h: less does not show in four decimals.
const leastDifference = 0.00005

func againstPlan(above float64) string {
	switch {
	case above >= leastDifference:
		return report.Hourly(above) + " more"
	case above <= -leastDifference:
		return report.Hourly(-above) + " less"
	}
	return "the same price"
}

func writeRule(w io.Writer, r *recorder.Rule) {
	if r.Text == "" && len(r.Budgets) == 0 {
		return
	}
	fmt.Fprintf(w, "\nRule: %s\n", r.Text)
	if r.ConsolidationPolicy != "" {
		fmt.Fprintf(w, "  Policy\t%s, consolidateAfter %s\n", r.ConsolidationPolicy, r.ConsolidateAfter)
	}
	if r.Preferences != "" {
		fmt.Fprintf(w, "  Preferences\t%s\n", r.Preferences)
	}
	for _, b := range r.Budgets {
		allowed := fmt.Sprintf("%d of %s may be disrupted at once, %d are", b.Allowed, report.Plural(b.Nodes, "node"), b.Disrupting)
		if b.Error != "" {
			allowed = b.Error
		}
		fmt.Fprintf(w, "  Budget\tNodePool %s: %s\n", b.NodePool, allowed)
	}
	for _, s := range r.Scores {
		fmt.Fprintf(w, "  Score\tNodePool %s: %.2f, at least %.2f: saves $%.4f of $%.4f/h, and moves %.1f of %.1f pods\n", s.NodePool,
			float64(s.Score), float64(r.Threshold), float64(s.HourlySavings), float64(s.PoolHourlyCost),
			float64(s.Disturbed), float64(s.PoolDisruption))
	}
}

func writeMoves(w io.Writer, d *recorder.Decision) {
	if len(d.Removes) == 0 {
		return
	}
	fmt.Fprintln(w, "\nRemoves:")
	for _, n := range d.Removes {
		fmt.Fprintf(w, "  %s\t%s %s\t%s\t%s\t%s\n", n.Name, n.CapacityType, n.InstanceType, n.Zone, perHour(float64(n.HourlyCost)),
			report.Plural(len(n.Pods), "pod"))
	}
	for _, l := range d.Launches {
		fmt.Fprintf(w, "  launches\t%s %s\t%s\t%s\t%s\n", l.CapacityType, strings.Join(l.InstanceTypes[:min(1, len(l.InstanceTypes))], ""),
			l.Zone, perHour(float64(l.HourlyCost)), report.Plural(len(l.Pods), "pod"))
	}
	for _, m := range d.Moves {
		fmt.Fprintf(w, "  %s takes\t%s\n", m.Node, strings.Join(m.Pods, ", "))
	}
}

func writeAlternatives(w io.Writer, d *recorder.Decision, most int) {
	if len(d.Alternatives) == 0 {
		return
	}
	fmt.Fprintln(w, "\nAlternatives:")
	for _, a := range d.Alternatives[:min(most, len(d.Alternatives))] {
		why := a.WhyNot
		if a.Chosen {
			why = "chosen"
		}
		if d.Kind == recorder.KindLaunch {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", a.What, perHour(float64(a.HourlyCost)), why)
			continue
		}
		fmt.Fprintf(w, "  %s\tsaves %s\t%s\t%s\n", a.What, perHour(float64(a.HourlySavings)), report.Plural(a.Evictions, "eviction"), why)
	}
	if more := max(0, len(d.Alternatives)-most) + d.MoreAlternatives; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

func writePrices(w io.Writer, d *recorder.Decision, most int) {
	if len(d.Prices)+len(d.PriceTable) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%sthose of the controller\n", report.PricesLabel)
	for _, p := range d.Prices {
		age := "built in"
		if !p.Read.IsZero() {
			age = "read " + d.At.Sub(p.Read).Round(time.Second).String() + " before"
		}
		fmt.Fprintf(w, "  %s\t%s\n", p.CapacityType, age)
	}
	for _, r := range d.PriceTable[:min(most, len(d.PriceTable))] {
		var prices []string
		for _, o := range r.Offerings {
			text := fmt.Sprintf("%s %s $%.4f", o.CapacityType, o.Zone, float64(o.Price))
			if o.Unavailable != "" {
				text = fmt.Sprintf("%s %s: %s", o.CapacityType, o.Zone, o.Unavailable)
			}
			prices = append(prices, text)
		}
		fmt.Fprintf(w, "  %s\t%s CPU, %s: %s\n", r.InstanceType, r.CPU.String(), r.Memory.String(), strings.Join(prices, ", "))
	}
}

func writeSteps(w io.Writer, d *recorder.Decision) {
	if len(d.Steps) == 0 {
		return
	}
	fmt.Fprintln(w, "\nOutcome:")
	for _, s := range d.Steps {
		fmt.Fprintf(w, "  +%s\t%s\t%s\n", after(d, s.At), strings.TrimSpace(string(s.What)+" "+s.Object), s.Message)
	}
}
