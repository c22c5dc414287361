package assess

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

const (
	// maxRows limits how many rows of a table are printed: a page of a terminal. The other formats have all of them.
	maxRows = 12
)

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	return report.JSON(w, "Assessment", r)
}

// Text writes the report for people, in 80 columns, with the first rows of long tables.
func (r *Report) Text(w io.Writer) error { return r.text(w, maxRows) }

// WideText writes the report for people, with all rows.
func (r *Report) WideText(w io.Writer) error { return r.text(w, 0) }

func (r *Report) text(w io.Writer, rows int) error {
	p := &page{Page: report.Page{Width: report.Width}, rows: rows}
	for _, line := range r.Headline() {
		p.fold("", line)
	}
	p.line("")
	r.outcomesText(p)
	r.fleetText(p)
	r.movesText(p)
	r.guardsText(p)
	r.rulesText(p)
	r.usageText(p)
	r.doctorText(p)
	if len(r.Outcomes) > 0 && r.Now.Nodes > 0 {
		p.fold("Search: ", r.Search.bounds())
	}
	for _, note := range r.Notes {
		p.fold("Note: ", note)
	}
	_, err := p.WriteTo(w)
	return err
}

// page is text that is being written.
type page struct {
	report.Page
	rows int // of a table; 0 means all
}

func (p *page) line(text string) { p.Printf("%s\n", strings.TrimRight(text, " ")) }

// fold writes text in lines of at most the width; those after the first are indented as far as the label.
func (p *page) fold(label, text string) {
	p.Labeled(label, strings.Repeat(" ", len(label)), clean(text))
}

// table writes rows in columns. The first column takes what the others leave of the width; the others are aligned to the right.
func (p *page) table(title string, columns []string, rows [][]string) {
	p.tableWith(title, columns, rows, nil)
}

// tableWith is a table with a text below each row, if there are any.
func (p *page) tableWith(title string, columns []string, rows [][]string, below []string) {
	if len(rows) == 0 {
		return
	}
	left := 0
	if p.rows > 0 && len(rows) > p.rows {
		left = len(rows) - p.rows
		rows = rows[:p.rows]
	}
	all := append([][]string{append([]string{title}, columns...)}, rows...)
	widths := make([]int, len(all[0]))
	used := 0
	for c := 1; c < len(widths); c++ {
		for _, row := range all {
			widths[c] = max(widths[c], utf8.RuneCountInString(clean(row[c])))
		}
		used += widths[c] + 2
	}
	first := max(report.Width-used, 20)
	for i, row := range all {
		indent := "  "
		if i == 0 {
			indent = ""
		}
		name := wrapped(clean(row[0]), first-len(indent))
		line := report.Pad(indent+name[0], first)
		for c := 1; c < len(row); c++ {
			line += "  " + report.PadLeft(clean(row[c]), widths[c])
		}
		p.line(line)
		for _, more := range name[1:] {
			p.line("    " + more)
		}
		if i > 0 && i <= len(below) {
			p.fold("      ", below[i-1])
		}
	}
	if left > 0 {
		p.line(fmt.Sprintf("  and %d more: see -o wide", left))
	}
	p.line("")
}

// wrapped breaks text into lines of at most n columns, those after the first of two less. Words that are longer are shortened.
func wrapped(text string, n int) []string {
	out := []string{""}
	for word := range strings.FieldsSeq(text) {
		last, most := len(out)-1, n
		if last > 0 {
			most = n - 2
		}
		switch have := utf8.RuneCountInString(out[last]); {
		case have == 0:
			out[last] = shortened(word, most)
		case have+1+utf8.RuneCountInString(word) <= most:
			out[last] += " " + word
		default:
			out = append(out, shortened(word, n-2))
		}
	}
	return out
}

// shortened cuts text in its middle: names differ at both limits.
func shortened(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n || n < 5 {
		return text
	}
	head := (n - 2) / 2
	return string(runes[:head]) + ".." + string(runes[len(runes)-(n-2-head):])
}

func (r *Report) outcomesText(p *page) {
	if r.Now.Nodes == 0 && r.Pending.Pods == 0 {
		p.fold("Prices: ", r.Prices)
		p.line("")
		return
	}
	outcomes := r.comparableOutcomes()
	rows := [][]string{{"Now", perHour(r.Now.HourlyCost), PerMonth(r.Now.MonthlyCost), "", "", fmt.Sprint(r.Now.Nodes)}}
	if title, nodes := r.begun(); title != "" {
		rows = append(rows, []string{title, perHour(r.comparable()), PerMonth(monthly(r.comparable())), "", "", fmt.Sprint(nodes)})
	}
	for _, o := range outcomes {
		nodes := ""
		if o.Nodes > 0 {
			nodes = fmt.Sprint(o.Nodes)
		}
		rows = append(rows, []string{
			outcomeTitles[o.Name], perHour(o.HourlyCost), PerMonth(o.MonthlyCost), PerMonth(o.MonthlySavings),
			Percent(share(o.HourlySavings, r.comparable())), nodes,
		})
	}
	if len(outcomes) > 0 {
		p.table("The same pods cost", []string{"$/H", "$/MONTH", "SAVES", "%", "NODES"}, rows)
	}
	p.fold("Prices: ", r.Prices+". A month is 730 h.")
	if r.Consolidatable > 0 {
		p.fold("Protections: ", protections)
	}
	for _, line := range r.Search.stopped(r.Outcomes) {
		p.fold("Incomplete: ", line)
	}
	p.line("")
}

func (r *Report) fleetText(p *page) {
	columns := []string{"NODES", "$/H", "$/MONTH", "CPU", "MEMORY"}
	for _, t := range []struct {
		title string
		parts []Part
	}{{"By NodePool", r.Now.ByPool}, {"By instance type", r.Now.ByInstanceType}, {"By capacity type", r.Now.ByCapacityType}} {
		var rows [][]string
		for _, x := range t.parts {
			rows = append(rows, []string{
				x.title(), fmt.Sprint(x.Nodes), x.hourly(), x.monthly(), Percent(x.RequestedCPU), Percent(x.RequestedMemory),
			})
		}
		p.table(t.title, columns, rows)
	}
	if n := len(r.Now.Unpriced); n > 0 {
		p.line(report.Count(n, "node") + " without a price, which count as nothing")
		for i, u := range r.Now.Unpriced {
			if p.rows > 0 && i == p.rows {
				p.line(fmt.Sprintf("  and %d more: see -o wide", n-i))
				break
			}
			p.fold("  ", u.Node+": "+u.Why)
		}
		p.line("")
	}
}

// title is the name of a part, with what it is if that is not a NodePool.
func (x *Part) title() string {
	if !x.Managed {
		return x.Name + " (no NodePool)"
	}
	return x.Name
}

// hourly and monthly are a part's costs; a question mark stands for nodes without a price.
func (x *Part) hourly() string  { return perHour(x.HourlyCost) + x.mark() }
func (x *Part) monthly() string { return PerMonth(x.MonthlyCost) + x.mark() }

func (x *Part) mark() string {
	if x.Unpriced > 0 {
		return " + ?"
	}
	return ""
}

func (r *Report) movesText(p *page) {
	var rows [][]string
	var below []string
	moves := grouped(r.Moves)
	for i := range moves {
		m := &moves[i]
		rows = append(rows, []string{m.title(), fmt.Sprint(m.Pass), fmt.Sprint(m.Evictions), PerMonth(m.MonthlySavings)})
		below = append(below, m.words())
	}
	p.tableWith("Moves, in order", []string{"PASS", "PODS", "SAVES A MONTH"}, rows, below)
}

// title counts the nodes of a move.
func (m *Move) title() string {
	if len(m.Launched) == 0 {
		return "remove " + report.Count(len(m.Removed), "node")
	}
	return "replace " + report.Count(len(m.Removed), "node") + " by " + fmt.Sprint(len(m.Launched))
}

// words describe a move: what goes, and what comes.
func (m *Move) words() string {
	removed := nodesInWords(m.Removed)
	switch {
	case len(m.Launched) > 0:
		return removed + " -> " + nodesInWords(m.Launched)
	case m.Evictions > 0:
		return removed + " -> room on others"
	}
	return removed + ", empty"
}

func (r *Report) guardsText(p *page) {
	for _, g := range r.Guards {
		p.fold("", fmt.Sprintf("Protection: %s cost %s a month. %s", g.Name, PerMonth(g.MonthlyCost), g.words()))
		if len(g.Objects) == 0 {
			p.line("")
		}
		var rows [][]string
		for _, o := range g.Objects {
			rows = append(rows, []string{o.Object, fmt.Sprint(o.Nodes), PerMonth(monthly(o.HourlyCost))})
		}
		p.table("Objects that hold nodes", []string{"NODES", "THESE COST A MONTH"}, rows)
	}
	var rows [][]string
	for _, k := range r.Kept {
		rows = append(rows, []string{k.Reason, fmt.Sprint(k.Nodes), PerMonth(k.MonthlyCost)})
	}
	p.table("Why nodes stay in the end", []string{"NODES", "$/MONTH"}, rows)
}

func (r *Report) rulesText(p *page) {
	var rows [][]string
	for i := range r.Rules {
		x := &r.Rules[i]
		rows = append(rows, []string{x.summary(), PerMonth(x.MonthlyCost)})
	}
	p.table("What constraints cost", []string{"A MONTH"}, rows)
	if len(rows) > 0 {
		p.fold("", strings.Join(append([]string{"These costs overlap, so they do not add up."}, legend(r.Rules)...), " "))
		p.line("")
	}
}

func (r *Report) usageText(p *page) {
	u := r.Usage
	if u == nil {
		return
	}
	p.fold("", fmt.Sprintf("Pods use %.1f of %.1f requested CPUs (%s), and %s of %s memory (%s).", u.UsedCPU, u.RequestedCPU,
		Percent(share(u.UsedCPU, u.RequestedCPU)), bytesInWords(u.UsedMemory), bytesInWords(u.RequestedMemory),
		Percent(share(u.UsedMemory, u.RequestedMemory))))
	var rows [][]string
	for _, x := range u.Workloads {
		rows = append(rows, []string{
			x.Workload, fmt.Sprint(x.Pods), fmt.Sprintf("%.1f/%.1f", x.UsedCPU, x.RequestedCPU),
			bytesInWords(x.UsedMemory) + "/" + bytesInWords(x.RequestedMemory),
		})
	}
	p.table("Requests far above use", []string{"PODS", "CPU", "MEMORY"}, rows)
}

// bytesInWords formats an amount of memory in its largest unit.
func bytesInWords(amount float64) string {
	units := []string{"B", "Ki", "Mi", "Gi", "Ti"}
	i := 0
	for amount >= 1024 && i < len(units)-1 {
		amount, i = amount/1024, i+1
	}
	return fmt.Sprintf("%.4g%s", amount, units[i])
}

func (r *Report) doctorText(p *page) {
	d := r.Doctor
	if d == nil {
		return
	}
	if d.NotRun != "" {
		p.fold("Doctor: ", "not run: "+d.NotRun)
		p.line("")
		return
	}
	p.fold("Doctor: ", fmt.Sprintf("%s made, %s, %d not made.", report.Count(d.Checks, "check"), report.Count(len(d.Findings), "finding"),
		len(d.NotChecked)))
	for i, f := range d.Findings {
		if p.rows > 0 && i == p.rows {
			p.line(fmt.Sprintf("  and %d more: see dovetail doctor", len(d.Findings)-i))
			break
		}
		p.fold("  "+strings.ToUpper(string(f.Severity))+" ", fmt.Sprintf("%s: %s: %s", f.Check, f.Object, f.Seen))
	}
	p.line("")
}
