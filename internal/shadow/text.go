package shadow

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// shownActions sets how many actions of each controller the text shows.
const shownActions = 10

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	t := &textWriter{w: w}
	t.line("Since %s (%s, %d passes), until %s.", r.Since.UTC().Format(time.RFC3339), r.At.Sub(r.Since).Round(time.Second),
		r.Passes, r.At.UTC().Format(time.RFC3339))
	t.line("Prices: those of the controller in shadow mode, in $.")
	t.line("")
	t.totals(r)
	if r.RemovedByBoth > 0 {
		t.line("\nBoth removed %d of these nodes.", r.RemovedByBoth)
	}
	if r.Unschedulable > 0 {
		t.line("\n%d pending pods fit on no node, existing or new. See dovetail explain pod.", r.Unschedulable)
	}
	if r.RefusedWrites > 0 {
		t.line("\n%d writes were refused, which is a bug in Dovetail: its log names them.", r.RefusedWrites)
	}
	t.actions("Dovetail would have", r.Decisions)
	t.actions("The acting controller", r.Actions)
	return t.err
}

// textWriter writes until the first error.
type textWriter struct {
	w   io.Writer
	err error
}

func (t *textWriter) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

// totals writes the table that compares the two.
func (t *textWriter) totals(r Report) {
	const columns = "%-14s  %10s  %10s"
	t.line(columns, "", "DOVETAIL", "ACTING")
	row := func(name, format string, ours, theirs any) {
		t.line(columns, name, fmt.Sprintf(format, ours), fmt.Sprintf(format, theirs))
	}
	s, a := r.Shadow, r.Acting
	row("launched nodes", "%d", s.Launches, a.Launches)
	hourly := func(ours, theirs float64) { row("  $/h", "%s", report.Amount(ours), report.Amount(theirs)) }
	hourly(s.LaunchedHourlyCost, a.LaunchedHourlyCost)
	row("removed nodes", "%d", s.Removed, a.Removed)
	hourly(s.RemovedHourlyCost, a.RemovedHourlyCost)
	row("evicted pods", "%d", s.Evictions, a.Evictions)
	row("nodes now", "%d", s.Nodes, a.Nodes)
	hourly(s.HourlyCost, a.HourlyCost)
	row("spent, $", "%s", report.Rounded(s.TotalCost, 2), report.Rounded(a.TotalCost, 2))
}

// actions writes the latest actions.
func (t *textWriter) actions(who string, all []Action) {
	if len(all) == 0 {
		return
	}
	t.line("\n%s:", who)
	for _, a := range all[max(0, len(all)-shownActions):] {
		t.line("  %s  %s", a.At.UTC().Format("Jan 02 15:04:05"), a.words())
	}
}

// words is the action in one line.
func (a Action) words() string {
	var parts []string
	past := map[string]string{ActionLaunch: "launched", ActionRemove: "removed", ActionReplace: "replaced"}[a.What]
	if len(a.Nodes) > 0 {
		parts = append(parts, past+" "+strings.Join(a.Nodes, ", ")+more(a.More))
	}
	for _, l := range a.Launches {
		verb := "by"
		if a.What == ActionLaunch {
			verb = past
		}
		parts = append(parts, fmt.Sprintf("%s %s %s in %s", verb, l.InstanceType, l.CapacityType, l.Zone))
	}
	if a.MoreLaunches > 0 {
		parts = append(parts, strings.TrimSpace(more(a.MoreLaunches)))
	}
	var notes []string
	if a.Reason != "" {
		notes = append(notes, a.Reason)
	}
	if a.Pods > 0 {
		notes = append(notes, fmt.Sprintf("%d pods", a.Pods))
	}
	notes = append(notes, fmt.Sprintf("%+.3f $/h", 0-a.HourlySavings))
	text := strings.Join(parts, " ") + " (" + strings.Join(notes, ", ") + ")"
	return strings.Join(strings.Fields(text), " ") // names are text of the ConfigMap, and begin no line
}

// more returns how many of a list are left out.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
