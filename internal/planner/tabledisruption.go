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
	"github.com/dovetail-k8s/dovetail/internal/report"
)

func capacityType(n *snapshot.Node) string { return n.Labels[karpv1.LabelCapacityType] }

// below is the indent of details below a line.
const below = "         "

// changes lists how the workloads supplied beside a snapshot change its pods.
func (r *Report) changes(p *report.Page) {
	if len(r.Changes) == 0 {
		return
	}
	p.Printf("Changes to the snapshot\n")
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
		p.Printf("  %s %s: %s instead of %d (%s)\n", c.Kind, c.Name, report.Plural(c.Now, "pod"), c.Was, strings.Join(parts, ", "))
		if len(c.Fields) > 0 {
			p.List(below, some(c.Fields))
		}
	}
	p.Blank()
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
func (r *Report) drift(p *report.Page) {
	if r.Drift == nil {
		return
	}
	var rows [][]string
	var details []string
	replaced := 0
	for _, d := range r.Drift.Nodes {
		rows = append(rows, nodeRow(d.Node, d.Price))
		detail := p.Part()
		detail.List(below, append([]string{d.Why.Reason}, some(d.Why.Fields)...))
		if d.Stays == "" {
			replaced++
		} else {
			detail.Indented(below, "stays: "+d.Stays)
		}
		details = append(details, detail.String())
	}
	p.Section("Nodes that drift", []string{"NODE", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H"}, rows, details...)
	if replaced > 0 {
		p.Line("What replaces them")
		destinations(p, &r.Drift.Plan)
		p.Blank()
	}
	before, after := r.Drift.Costs()
	p.Printf("Drift: %s of %d replaced by %s, for %s instead of %s\n\n",
		report.Plural(replaced, "node"), len(rows), report.Plural(len(r.Drift.Plan.Launches), "new node"), report.Hourly(after),
		report.Hourly(before))
}

func nodeRow(n *snapshot.Node, price float64) []string {
	cost := "?"
	if price > 0 {
		cost = report.Price(price)
	}
	row := []string{n.Name, n.Pool, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone], capacityType(n), cost}
	for i := range row {
		row[i] = cmp.Or(row[i], "-")
	}
	return row
}

// destinations adds the lines with the nodes of a plan's pods.
func destinations(p *report.Page, plan *schedule.Plan) {
	for i := range plan.Launches {
		l := &plan.Launches[i]
		text := fmt.Sprintf("launch %s %s %s at %s of NodePool %s for",
			l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, report.Hourly(l.Offering.Price), l.Pool.Name)
		p.Indented(below, text+" "+strings.Join(workloadNames(l.Pods), ", "))
	}
	for _, pl := range plan.Placements {
		p.Indented(below, "move to "+pl.Node+": "+strings.Join(workloadNames(pl.Pods), ", "))
	}
	if len(plan.Launches)+len(plan.Placements) == 0 {
		p.Indented(below, "nothing takes its place")
	}
}

// consolidation lists what consolidation would do, and why the other nodes remain.
func (r *Report) consolidation(p *report.Page) {
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
		detail := p.Part()
		destinations(detail, &cmd.Plan)
		detail.Printf(below+"saves %s ($%.2f a month)\n", report.Hourly(cmd.Savings), report.HoursPerMonth*cmd.Savings)
		details[len(rows)-1] = detail.String()
		work := "Consolidation"
		switch cmd.Reason {
		case karpv1.DisruptionDrifted:
			work = "Drift"
		case karpv1.DisruptionExpired:
			work = "Expiration"
		}
		title := fmt.Sprintf("%s %d (%s): remove %s", work, i+1, cmd.Reason, report.Plural(len(rows), "node"))
		p.Section(title, []string{"NODE", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H"}, rows, details...)
		saved, removed, launched = saved+cmd.Savings, removed+len(rows), launched+len(cmd.Plan.Launches)
	}
	if len(r.Consolidation.Kept) > 0 {
		p.Printf("Nodes that consolidation keeps\n")
		for _, k := range r.Consolidation.Kept {
			p.Indented("  ", k.Node+": "+k.Message)
		}
		p.Blank()
	}
	p.Printf("Consolidation: %s removed, %s launched, saves %s ($%.2f a month)\n\n",
		report.Plural(removed, "node"), report.Plural(launched, "node"), report.Hourly(saved), report.HoursPerMonth*saved)
}
