package assess

import (
	_ "embed" // the style sheet
	"fmt"
	"html"
	"io"
	"strings"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

//go:embed report.css
var style string

// policy forbids the page every request and every script, whatever is in it.
const policy = "default-src 'none'; style-src 'unsafe-inline'"

// HTML writes the report as one page for a browser: it makes no request, needs no script, and prints.
func (r *Report) HTML(w io.Writer) error {
	p := &document{}
	headline := r.Headline()
	title := "Assessment"
	if r.Cluster != "" {
		title += " of " + r.Cluster
	}
	p.add(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="%s"><meta name="referrer" content="no-referrer"><title>%s</title>
<style>%s</style></head><body><main>
`, policy, title, markup(style))
	p.add("<header><b>%s</b><span>%s</span></header>\n<h1>%s</h1>", title, r.TakenAt.Format("2006-01-02 15:04 MST"), headline[0])
	for _, line := range headline[1:] {
		p.add("<p>%s</p>", line)
	}
	for _, section := range []func(*document){
		r.outcomesHTML, r.fleetHTML, r.movesHTML, r.guardsHTML, r.rulesHTML, r.usageHTML, r.doctorHTML, r.footerHTML,
	} {
		section(p)
	}
	p.add("</main></body></html>\n")
	_, err := io.WriteString(w, p.b.String())
	return err
}

// markup is text that is HTML already: none of it comes from the cluster.
type markup string

// document is HTML that is being written.
type document struct{ b strings.Builder }

// add writes a format with its arguments. Texts are escaped, all but markup.
func (p *document) add(format string, args ...any) {
	for i, a := range args {
		switch text := a.(type) {
		case markup:
			args[i] = string(text)
		case string:
			args[i] = escaped(text)
		}
	}
	fmt.Fprintf(&p.b, format, args...)
}

// escaped is a text of the cluster as HTML.
func escaped(text string) string { return html.EscapeString(clean(text)) }

func (r *Report) outcomesHTML(p *document) {
	if r.Now.Nodes == 0 && r.Pending.Pods == 0 {
		return
	}
	most := max(r.comparable(), r.Now.HourlyCost)
	bound := r.Outcome(LowerBound).HourlyCost
	for i := range r.Outcomes {
		most = max(most, r.Outcomes[i].HourlyCost)
	}
	p.add(`<div class="card"><div class="bars"><div class="row k"><span class="t">The same pods cost</span>
<span class="bar"></span><span class="n">a month</span><span class="n s">saves</span></div>`)
	row := func(title string, hourly, saved float64, nodes int) {
		size := ""
		if nodes > 0 {
			size = report.Count(nodes, "node")
		}
		p.add(`<div class="row"><span class="t">%s</span><span class="bar">%s</span><span class="n"><b>%s</b></span>`+
			`<span class="n s save">%s</span></div>`+"\n",
			title, outcomeBar(hourly/most, saved/most, bound/most, title+": "+PerMonth(monthly(hourly))+" a month, "+size),
			PerMonth(monthly(hourly)), savedWords(saved, r.comparable()))
	}
	row("Now", r.Now.HourlyCost, 0, r.Now.Nodes)
	if title, nodes := r.begun(); title != "" {
		row(title, r.comparable(), 0, nodes)
	}
	for _, o := range r.comparableOutcomes() {
		row(outcomeTitles[o.Name], o.HourlyCost, o.HourlySavings, o.Nodes)
	}
	p.add(`</div><small>Protections are ` + protections + `
The line marks the lower bound: no plan for
these pods can cost less. Bars begin at zero.</small></div>`)
}

func savedWords(saved, of float64) string {
	if saved < leastCost {
		return ""
	}
	return PerMonth(monthly(saved)) + " (" + Percent(share(saved, of)) + ")"
}

// outcomeBar is a cost, with what it saves at its end, and a tick at the bound. All are shares of the width.
func outcomeBar(cost, saved, bound float64, label string) markup {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" aria-label="%s">`, escaped(label))
	fmt.Fprintf(&b, `<rect class="cost" width="%.1f" height="16"/>`, 1000*max(0, cost))
	if saved > 0 {
		fmt.Fprintf(&b, `<rect class="saved" x="%.1f" width="%.1f" height="16"/>`, 1000*cost, 1000*saved)
	}
	if bound > 0 {
		fmt.Fprintf(&b, `<line class="tick" x1="%.1f" x2="%.1f" y1="0" y2="16"/>`, 1000*bound, 1000*bound)
	}
	b.WriteString("</svg>")
	return markup(b.String())
}

// shareBar is a share of something.
func shareBar(share float64) markup {
	return markup(fmt.Sprintf(`<svg viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">
<rect class="track" width="1000" height="8"/>`+
		`<rect class="cost" width="%.1f" height="8"/></svg>`, 1000*min(max(share, 0), 1)))
}

func (r *Report) fleetHTML(p *document) {
	if r.Now.Nodes == 0 {
		return
	}
	p.add("<h2>Where the money goes</h2>")
	p.add(`<div class="card">`)
	r.splitHTML(p)
	for _, t := range []struct {
		title string
		parts []Part
	}{{"NodePool", r.Now.ByPool}, {"Instance type", r.Now.ByInstanceType}} {
		p.add(`<h3>By %s</h3>`, lower(t.title))
		p.partsHTML(t.title, t.parts, r.Now.HourlyCost)
	}
	if n := len(r.Now.Unpriced); n > 0 {
		p.add(`<h3>%s without a price</h3><p>They count as nothing here and in all outcomes.</p><ul>`, report.Count(n, "node"))
		for i, u := range r.Now.Unpriced {
			if i == maxListed {
				p.add("<li>and %d more</li>", n-i)
				break
			}
			p.add("<li>%s: %s</li>", u.Node, u.Why)
		}
		p.add("</ul>")
	}
	p.add("</div>")
}

// maxListed limits how many entries a list of the page has: with JSON, a reader gets all.
const maxListed = 20

func lower(title string) string {
	if title == "NodePool" {
		return title
	}
	return strings.ToLower(title)
}

// splitHTML shows the capacity types as shares of the cost.
func (r *Report) splitHTML(p *document) {
	var bar, legend strings.Builder
	at := 0.0
	for i := range r.Now.ByCapacityType {
		x := &r.Now.ByCapacityType[i]
		part := share(x.HourlyCost, r.Now.HourlyCost)
		class := capacityClass(x.Name)
		fmt.Fprintf(&bar, `<rect class="%s" x="%.1f" width="%.1f" height="16"/>`, class, at, 1000*part)
		at += 1000 * part
		fmt.Fprintf(&legend, `<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="%s" width="10" height="10"/>
</svg>%s: %s, %s (%s)</span>`,
			class, escaped(x.Name), report.Count(x.Nodes, "node"), escaped(x.monthly())+" a month", Percent(part))
	}
	p.add(`<div class="split"><svg viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">%s</svg></div>
<div class="legend">%s</div>`,
		markup(bar.String()), markup(legend.String()))
}

// capacityClass is the class of style of a capacity type.
func capacityClass(name string) string {
	switch name {
	case karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot:
		return name
	}
	return karpv1.CapacityTypeOnDemand
}

func (p *document) partsHTML(title string, parts []Part, total float64) {
	p.add(`<div class="scroll"><table><thead><tr><th class="t">%s</th><th class="u"></th><th>a month</th><th>nodes</th><th>CPU requested</th>`+
		`<th>memory requested</th></tr></thead><tbody>`, title)
	for i := range parts {
		if i == maxListed {
			p.add(`<tr><td class="t">and %d more</td><td class="u"></td><td></td><td></td><td></td><td></td></tr>`, len(parts)-i)
			break
		}
		x := &parts[i]
		p.add(`<tr><td class="t">%s</td><td class="u">%s</td><td>%s</td><td>%d</td><td>%s</td><td>%s</td></tr>`+"\n", x.title(),
			shareBar(share(x.HourlyCost, total)), x.monthly(), x.Nodes, Percent(x.RequestedCPU), Percent(x.RequestedMemory))
	}
	p.add("</tbody></table></div>")
}

func (r *Report) movesHTML(p *document) {
	if len(r.Moves) == 0 {
		return
	}
	done := r.Outcome(Consolidated)
	p.add("<h2>How it gets there</h2><p>%s in %d passes, with %s. The commands of a pass start together, as far as budgets allow.</p>",
		report.Count(len(r.Moves), "move"), r.Moves[len(r.Moves)-1].Pass, report.Count(done.Evictions, "eviction"))
	p.add(`<div class="card">`)
	r.curveHTML(p)
	rows := grouped(r.Moves)
	p.movesTable(rows[:min(len(rows), maxListed)])
	if left := len(rows) - maxListed; left > 0 {
		p.add("<details><summary>%d more</summary>", left)
		p.movesTable(rows[maxListed:])
		p.add("</details>")
	}
	p.add("</div>")
}

// curveHTML shows the cost after each move as steps, from zero.
func (r *Report) curveHTML(p *document) {
	base := r.comparable()
	if base <= 0 {
		return
	}
	y := func(hourly float64) float64 { return 140 - 135*max(0, hourly)/base }
	var line strings.Builder
	cost := base
	fmt.Fprintf(&line, "M0,%.1f", y(cost))
	for i := range r.Moves {
		cost -= r.Moves[i].HourlySavings
		x := 1000 * float64(i+1) / float64(len(r.Moves)+1)
		fmt.Fprintf(&line, "H%.1fV%.1f", x, y(cost))
	}
	line.WriteString("H1000")
	bound := y(r.Outcome(LowerBound).HourlyCost)
	label := fmt.Sprintf("cost a month after each move: from %s to %s", PerMonth(monthly(base)), PerMonth(monthly(cost)))
	p.add(`<div class="curve"><svg viewBox="0 0 1000 141" preserveAspectRatio="none" role="img" aria-label="%s">
<path class="area" d="%sV140H0Z"/>`+
		`<path class="l" d="%s"/><line class="b" x1="0" x2="1000" y1="%.1f" y2="%.1f"/></svg></div>`,
		label, markup(line.String()), markup(line.String()), bound, bound)
	p.add(`<div class="axis"><span>%s a month now</span><span>lower bound dashed</span><span>%s at the end</span></div>`,
		PerMonth(monthly(base)), PerMonth(monthly(cost)))
}

func (p *document) movesTable(moves []Move) {
	p.add(`<div class="scroll"><table><thead><tr><th class="t">Removed</th><th class="t">Takes the pods</th><th>pass</th><th>evictions</th>` +
		`<th>saves a month</th></tr></thead><tbody>`)
	for i := range moves {
		m := &moves[i]
		names := make([]string, 0, len(m.Removed))
		for _, n := range m.Removed {
			names = append(names, n.Name)
		}
		p.add(`<tr><td class="t">%s<small>%s</small></td><td class="t">%s</td><td>%d<small>%s</small></td><td>%d</td><td>%s</td></tr>`+"\n",
			nodesInWords(m.Removed), someOf(names, 3), m.takers(), m.Pass, after(m.AfterSeconds), m.Evictions, PerMonth(m.MonthlySavings))
	}
	p.add("</tbody></table></div>")
}

// takers returns what takes the pods of a move.
func (m *Move) takers() string {
	switch {
	case len(m.Launched) > 0 && m.ToExisting > 0:
		return nodesInWords(m.Launched) + ", and room on other nodes"
	case len(m.Launched) > 0:
		return nodesInWords(m.Launched)
	case m.Evictions > 0:
		return "room on other nodes"
	}
	return "nothing: without pods that would move"
}

// someOf lists the first of many names.
func someOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func (r *Report) guardsHTML(p *document) {
	if len(r.Guards)+len(r.Kept) == 0 {
		return
	}
	p.add(`<h2>What keeps nodes</h2><div class="card">`)
	for _, g := range r.Guards {
		p.add(`<h3>%s: %s a month</h3><p>%s</p>`, strings.ToUpper(g.Name[:1])+g.Name[1:], PerMonth(g.MonthlyCost), g.words())
		if len(g.Objects) == 0 {
			continue
		}
		p.add(`<div class="scroll"><table><thead><tr><th class="t">Object</th><th>nodes</th><th>these nodes cost a month</th></tr></thead>
<tbody>`)
		for _, o := range g.Objects {
			p.add(`<tr><td class="t">%s</td><td>%d</td><td>%s</td></tr>`+"\n", o.Object, o.Nodes, PerMonth(monthly(o.HourlyCost)))
		}
		p.add("</tbody></table></div>")
	}
	if len(r.Kept) > 0 {
		p.add(`<h3>Why nodes stay in the end</h3><div class="scroll"><table><thead><tr><th class="t">Reason</th><th>nodes</th>
<th>a month</th></tr></thead><tbody>`)
		for _, k := range r.Kept {
			p.add(`<tr><td class="t">%s<small>%s</small></td><td>%d</td><td>%s</td></tr>`+"\n", k.Reason, k.example(), k.Nodes,
				PerMonth(k.MonthlyCost))
		}
		p.add("</tbody></table></div>")
	}
	p.add("</div>")
}

func (r *Report) rulesHTML(p *document) {
	if len(r.Rules) == 0 {
		return
	}
	p.add(`<h2>What constraints cost</h2><p>How much less the repacked pods would cost without each constraint alone.
Costs overlap, so they do not
add up.</p><div class="card"><div class="scroll"><table><thead><tr><th class="t">Constraint</th><th class="u"></th><th>a month</th>
</tr></thead><tbody>`)
	for i := range r.Rules {
		x := &r.Rules[i]
		p.add(`<tr><td class="t">%s</td><td class="u">%s</td><td>%s</td></tr>`+"\n", x.summary(), shareBar(share(x.HourlyCost,
			r.Rules[0].HourlyCost)), PerMonth(x.MonthlyCost))
	}
	p.add("</tbody></table></div></div>")
}

func (r *Report) usageHTML(p *document) {
	u := r.Usage
	if u == nil {
		return
	}
	p.add(`<h2>Requests and use</h2><p>Pods use %s of the CPUs that they request, and %s of the memory.
Lower requests save more than any move.</p>`,
		Percent(share(u.UsedCPU, u.RequestedCPU)), Percent(share(u.UsedMemory, u.RequestedMemory)))
	p.add(`<div class="card"><div class="scroll"><table><thead><tr><th class="t">Workload</th><th>pods</th><th>CPUs used of requested</th>` +
		`<th>memory used of requested</th></tr></thead><tbody>`)
	for _, x := range u.Workloads {
		p.add(`<tr><td class="t">%s</td><td>%d</td><td>%.1f of %.1f</td><td>%s of %s</td></tr>`+"\n", x.Workload, x.Pods, x.UsedCPU,
			x.RequestedCPU,
			bytesInWords(x.UsedMemory), bytesInWords(x.RequestedMemory))
	}
	p.add("</tbody></table></div></div>")
}

func (r *Report) doctorHTML(p *document) {
	d := r.Doctor
	if d == nil {
		return
	}
	p.add("<h2>What the doctor finds</h2>")
	if d.NotRun != "" {
		p.add("<p>Not run: %s.</p>", d.NotRun)
		return
	}
	p.add("<p>%s made, %s, %d not made.</p>", report.Count(d.Checks, "check"), report.Count(len(d.Findings), "finding"), len(d.NotChecked))
	if len(d.Findings) > 0 {
		p.add(`<div class="card"><div class="scroll"><table><tbody>`)
		for _, f := range d.Findings {
			p.add(`<tr><td class="t"><span class="sev %s">%s</span>%s: %s<small>%s</small>`, severityClass(string(f.Severity)),
				string(f.Severity), f.Check, f.Object, f.Seen)
			if f.Remedy != "" {
				p.add("<code>%s</code>", f.Remedy)
			}
			p.add("</td></tr>\n")
		}
		p.add("</tbody></table></div></div>")
	}
	for _, line := range d.Unchecked() {
		p.add("<p>%s</p>", line)
	}
}

// severityClass is the class of style of a severity.
func severityClass(severity string) string {
	if severity == "error" || severity == "warning" {
		return severity
	}
	return "info"
}

func (r *Report) footerHTML(p *document) {
	p.add(`<footer>Read at %s, without changing anything. Prices: %s. A month is 730 h.
Consolidation is computed as the controller does it, pass after
pass; nodes are launched as their cheapest type, and the workload does not change meanwhile. %s`, r.TakenAt.Format(time.RFC3339), r.Prices,
		"Its search: "+r.Search.bounds()+" "+strings.Join(r.Search.stopped(r.Outcomes), " "))
	if len(r.Notes) > 0 {
		p.add("<ul>")
		for i, note := range r.Notes {
			if i == maxListed {
				p.add("<li>and %d more notes</li>", len(r.Notes)-i)
				break
			}
			p.add("<li>%s</li>", note)
		}
		p.add("</ul>")
	}
	p.add("</footer>\n")
}
