package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func capacityType(n *snapshot.Node) string { return n.Labels[karpv1.LabelCapacityType] }

// below is the indent of details below a line.
const below = "         "

// changes lists how the workloads supplied beside a snapshot change its pods.
func (r *Report) changes(b *strings.Builder, width int) {
	if len(r.Changes) == 0 {
		return
	}
	fmt.Fprintln(b, "Changes to the snapshot")
	for _, c := range r.Changes {
		var parts []string
		for _, part := range []struct {
			pods int
			what string
		}{{c.Added, "added"}, {c.Removed, "removed"}, {c.Replaced, "replaced"}} {
			if part.pods > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", part.pods, part.what))
			}
		}
		fmt.Fprintf(b, "  %s %s: %s instead of %d (%s)\n", c.Kind, c.Name, plural(c.Now, "pod"), c.Was, strings.Join(parts, ", "))
		if len(c.Fields) > 0 {
			b.WriteString(wrap(below, some(c.Fields), width))
		}
	}
	fmt.Fprintln(b)
}

// some returns the first fields of many.
func some(fields []string) []string {
	const most = 5
	if more := len(fields) - most; more > 0 {
		return append(slices.Clone(fields[:most]), fmt.Sprintf("and %d more", more))
	}
	return fields
}

// drift lists the drifted nodes, and their replacements.
func (r *Report) drift(b *strings.Builder, width int) {
	if r.Drift == nil {
		return
	}
	var rows [][]string
	var details []string
	replaced := 0
	for _, d := range r.Drift.Nodes {
		rows = append(rows, nodeRow(d.Node, d.Price))
		detail := wrap(below, append([]string{d.Why.Reason}, some(d.Why.Fields)...), width)
		if d.Stays == "" {
			replaced++
		} else {
			detail += fold(below, "stays: "+d.Stays, width)
		}
		details = append(details, detail)
	}
	detailedTable{"Nodes that drift", []string{"NODE", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H"}, rows, details}.print(b)
	if replaced > 0 {
		fmt.Fprintf(b, "What replaces them\n%s\n", destinations(&r.Drift.Plan, width))
	}
	before, after := r.Drift.Costs()
	fmt.Fprintf(b, "Drift: %s of %d replaced by %s, for $%s/h instead of $%s/h\n\n",
		plural(replaced, "node"), len(rows), plural(len(r.Drift.Plan.Launches), "new node"), dollars(after), dollars(before))
}

func nodeRow(n *snapshot.Node, price float64) []string {
	cost := "?"
	if price > 0 {
		cost = dollars(price)
	}
	row := []string{n.Name, n.Pool, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone], capacityType(n), cost}
	for i := range row {
		row[i] = cmp.Or(row[i], "-")
	}
	return row
}

// destinations returns the lines with the nodes of a plan's pods.
func destinations(plan *schedule.Plan, width int) string {
	var out strings.Builder
	for i := range plan.Launches {
		l := &plan.Launches[i]
		text := fmt.Sprintf("launch %s %s %s at $%s/h of NodePool %s for",
			l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, dollars(l.Offering.Price), l.Pool.Name)
		out.WriteString(fold(below, text+" "+strings.Join(workloadNames(l.Pods), ", "), width))
	}
	for _, pl := range plan.Placements {
		out.WriteString(fold(below, "move to "+pl.Node+": "+strings.Join(workloadNames(pl.Pods), ", "), width))
	}
	if out.Len() == 0 {
		return below + "nothing takes its place\n"
	}
	return out.String()
}

// detailedTable is a table with lines below each of its rows.
type detailedTable struct {
	title   string
	columns []string
	rows    [][]string
	details []string // by row
}

func (t detailedTable) print(b *strings.Builder) {
	var table strings.Builder
	section(&table, t.title, t.columns, t.rows)
	for i, line := range strings.SplitAfter(table.String(), "\n") {
		b.WriteString(line)
		if row := i - 2; row >= 0 && row < len(t.details) { // after the title and the columns
			b.WriteString(t.details[row])
		}
	}
}

// consolidation lists what consolidation would do, and why the other nodes remain.
func (r *Report) consolidation(b *strings.Builder, width int) {
	if r.Consolidation == nil {
		return
	}
	saved, removed, launched := 0.0, 0, 0
	for i := range r.Consolidation.Commands {
		cmd := &r.Consolidation.Commands[i]
		var rows [][]string
		for _, c := range cmd.Candidates {
			rows = append(rows, nodeRow(c.Node, c.Price))
		}
		details := make([]string, len(rows))
		saves := fmt.Sprintf("saves $%s/h ($%.2f a month)\n", dollars(cmd.Savings), hoursPerMonth*cmd.Savings)
		details[len(rows)-1] = destinations(&cmd.Plan, width) + below + saves
		work := "Consolidation"
		if cmd.Reason == karpv1.DisruptionDrifted {
			work = "Drift"
		}
		title := fmt.Sprintf("%s %d (%s): remove %s", work, i+1, cmd.Reason, plural(len(rows), "node"))
		detailedTable{title, []string{"NODE", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H"}, rows, details}.print(b)
		saved, removed, launched = saved+cmd.Savings, removed+len(rows), launched+len(cmd.Plan.Launches)
	}
	if len(r.Consolidation.Kept) > 0 {
		fmt.Fprintln(b, "Nodes that consolidation keeps")
		for _, k := range r.Consolidation.Kept {
			b.WriteString(fold("  ", k.Node+": "+k.Why, width))
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintf(b, "Consolidation: %s removed, %s launched, saves $%s/h ($%.2f a month)\n\n",
		plural(removed, "node"), plural(launched, "node"), dollars(saved), hoursPerMonth*saved)
}
