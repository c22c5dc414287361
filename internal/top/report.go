package top

import (
	"cmp"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Report is the screen as data, for programs and for output that is no terminal.
type Report struct {
	At    time.Time `json:"at"`
	Spend Spend     `json:"cost"`
	// CPU is in millicores, Memory in bytes, over all nodes.
	CPU     Use         `json:"cpuMillicores"`
	Memory  Use         `json:"memoryBytes"`
	Pods    int         `json:"pods"`
	Nodes   []*Node     `json:"nodes"`
	Pending []PodReport `json:"pending"`
	// Changes are the changes in progress, and then what the forecast has that is still to come.
	Changes []Change `json:"changes"`
	// Kept counts the nodes that stay by their reason, those of most nodes first; empty before the first forecast.
	Kept []Kept `json:"kept"`
	// Forecast is null if planning failed.
	Forecast *Forecast `json:"forecast"`
	// Missing are permissions and kinds that are missing, with what is not shown for it.
	Missing []string `json:"missing"`
	// Realized is what decisions have saved; null without a recording.
	Realized *Realized `json:"realized,omitempty"`
}

// PodReport is a pending pod.
type PodReport struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	// CPU is the request in millicores, Memory in bytes.
	CPU    int64 `json:"cpuMillicores"`
	Memory int64 `json:"memoryBytes"`
	// Why holds what becomes of it, or why it gets no node.
	Why string `json:"why"`
	// Fits reports whether there is a node for it, or one would be launched.
	Fits bool `json:"fits"`
	// Waits reports whether nothing is to be done for it: kube-scheduler, or the next plan, decides.
	Waits bool `json:"waits"`

	// Pod is the object. It is shared and must not be changed.
	Pod *corev1.Pod `json:"-"`
}

// NewReport makes the report of a state with a forecast, which may be nil.
func NewReport(o Observed, forecast *Forecast) *Report {
	m := Model{forecast: forecast} // without a screen: its rows would cost more than all of this
	m.observe(o)
	out := &Report{
		At: o.Fleet.At, Spend: m.fleet.spend(forecast, &o), Pods: len(m.fleet.Pods), Nodes: append([]*Node{}, m.fleet.Nodes...),
		Pending: []PodReport{}, Changes: m.fleet.next(forecast), Kept: m.fleet.kept(forecast), Forecast: forecast,
		Missing: append([]string{}, o.Link.Missing...),
	}
	for _, n := range out.Nodes {
		out.CPU.add(n.CPU)
		out.Memory.add(n.Memory)
	}
	for _, p := range m.pending() {
		out.Pending = append(out.Pending, PodReport{
			Namespace: p.Namespace, Name: p.Name, Created: p.CreationTimestamp.Time, CPU: p.CPU, Memory: p.Memory, Why: p.cause,
			Fits: p.fits, Waits: p.waits, Pod: p.Pod.Pod,
		})
	}
	return out
}

// JSON prints the report for programs.
func (r *Report) JSON(w io.Writer) error {
	return report.JSON(w, "Fleet", r)
}

// textWidth is wider than any row: scripts and files need whole names, and the longest column is the last.
const textWidth = 1 << 16

// Text prints the report for people, without styles. Tables have at most width columns, or as many as they need if it is 0.
func (r *Report) Text(w io.Writer, width int) error {
	out := &printer{w: w, width: cmp.Or(width, textWidth)}
	out.printf("%s, %s, %d pending\n", report.Plural(len(r.Nodes), "node"), report.Plural(r.Pods, "pod"), len(r.Pending))
	out.printf("cpu %s of %s requested, memory %s of %s\n",
		r.CPU.percent(), cores(r.CPU.Allocatable), r.Memory.percent(), bytesOf(r.Memory.Allocatable))
	r.spendText(out)
	if r.Realized != nil {
		out.printf("%s\n", r.Realized.text())
	}
	for _, missing := range r.Missing {
		out.printf("missing: %s\n", clean(missing))
	}
	out.printf("\n")
	printTable(out, nodeColumns(r.At, ungroup, r.Nodes), r.Nodes)
	if len(r.Pending) > 0 {
		out.printf("\nPending pods\n")
		lines := report.Page{Width: out.width}
		for _, p := range r.Pending {
			lines.Labeled(fmt.Sprintf("  %s  %s  ", clean(p.Namespace+"/"+p.Name), age(r.At, p.Created)), "    ", clean(p.Why))
		}
		out.printf("%s", lines.String())
	}
	if len(r.Changes) > 0 {
		out.printf("\nPlanned changes\n")
		printTable(out, changeColumns(), r.Changes)
	}
	return out.err
}

func (r *Report) spendText(out *printer) {
	text := fmt.Sprintf("now %s, %s", dollars(r.Spend.HourlyCost), monthly(r.Spend.HourlyCost))
	if r.Spend.Unpriced > 0 {
		text += fmt.Sprintf(" and %s without a price", report.Plural(r.Spend.Unpriced, "node"))
	}
	if r.Spend.PlannedHourlyCost != nil {
		text += fmt.Sprintf(", after %s %s", report.Plural(len(r.Changes), "change"), dollars(*r.Spend.PlannedHourlyCost))
	}
	if r.Spend.LowerBound != nil {
		text += fmt.Sprintf(", lower bound %s", dollars(*r.Spend.LowerBound))
	}
	lines := report.Page{Width: out.width}
	lines.Line("%s", text)
	if r.Spend.Prices != "" {
		lines.Prices(clean(r.Spend.Prices))
	}
	out.printf("%s", lines.String())
}

// text is the same as that of the lists of decisions.
func (r *Realized) text() string {
	return fmt.Sprintf("saved by decisions of the day until %s: %s, and %s now", r.Until.UTC().Format(time.RFC3339),
		report.Grouped(r.TotalSavings, 2), report.Hourly(r.HourlySavings))
}

func printTable[T any](out *printer, columns []column[T], rows []T) {
	if len(rows) == 0 {
		return
	}
	t := newTable(columns, rows, out.width)
	out.printf("%s\n", t.header().text())
	for _, r := range rows {
		out.printf("%s\n", t.row(r).text())
	}
}

// printer keeps the first error.
type printer struct {
	w     io.Writer
	width int
	err   error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
