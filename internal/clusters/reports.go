package clusters

import (
	"fmt"
	"io"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/report"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Doctor writes a row for each cluster: how much its doctor has found, and the worst of it.
func Doctor(w io.Writer, results []Result[doctor.Report]) error {
	columns := []column{{"CONTEXT", true}, {"ERRORS", false}, {"WARNINGS", false}, {"NOT CHECKED", false}, {"WORST", true}}
	return table[doctor.Report]{columns: columns, row: func(r *doctor.Report) []string {
		count := map[doctor.Severity]int{}
		for i := range r.Findings {
			count[r.Findings[i].Severity]++
		}
		worst := "nothing found"
		switch {
		case len(r.Findings) > 0: // sorted, worst first
			worst = r.Findings[0].Check + ": " + r.Findings[0].Object
		case len(r.NotChecked) > 0:
			worst = "nothing found by the checks that ran"
		}
		return []string{number(count[doctor.Error]), number(count[doctor.Warning]), number(len(r.NotChecked)), worst}
	}}.write(w, results)
}

// Assess writes a row for each cluster, and their sum: what it costs a month, and what consolidation would save.
func Assess(w io.Writer, results []Result[assess.Report]) error {
	columns := []column{
		{"CONTEXT", true},
		{"NODES", false},
		{"PODS", false},
		{"$/MONTH", false},
		{"CONSOLIDATED", false},
		{"SAVES", false},
		{"%", false},
		{"LOWER BOUND", false},
		{"UNPRICED", false},
	}
	var sum costs
	counted, twice := map[string]string{}, ""
	for _, r := range results {
		if r.Report == nil {
			continue
		}
		if first, again := counted[r.Server]; again && r.Server != "" {
			twice += fmt.Sprintf("%s is the cluster of %s: counted once\n", printable(r.Context), printable(first))
			continue
		}
		counted[r.Server] = r.Context
		sum.add(costsOf(r.Report))
	}
	var sums []string
	if len(results)-Failed(results) > 1 {
		sums = sum.cells()
	}
	row := func(r *assess.Report) []string { return costsOf(r).cells() }
	if err := (table[assess.Report]{columns, row, sums, pricesOfAssess}).write(w, results); err != nil || twice == "" {
		return err
	}
	_, err := io.WriteString(w, "\n"+twice)
	return err
}

func pricesOfAssess(r *assess.Report) string { return r.Prices }

// costs are in $ a month.
type costs struct {
	nodes, pods, unpriced           int
	now, consolidated, saved, bound float64
}

func costsOf(r *assess.Report) costs {
	done := r.Outcome(assess.Consolidated)
	return costs{
		nodes: r.Now.Nodes, pods: r.Now.Pods, unpriced: len(r.Now.Unpriced), now: r.Now.MonthlyCost,
		consolidated: done.MonthlyCost, saved: done.MonthlySavings, bound: r.Outcome(assess.LowerBound).MonthlyCost,
	}
}

func (c *costs) add(o costs) {
	c.nodes, c.pods, c.unpriced = c.nodes+o.nodes, c.pods+o.pods, c.unpriced+o.unpriced
	c.now, c.consolidated, c.saved, c.bound = c.now+o.now, c.consolidated+o.consolidated, c.saved+o.saved, c.bound+o.bound
}

func (c costs) cells() []string {
	saves := "" // compared with the nodes that the pending pods get, too
	if base := c.consolidated + c.saved; base > 0 {
		saves = assess.Percent(c.saved / base)
	}
	return []string{
		number(c.nodes), number(c.pods), assess.PerMonth(c.now), assess.PerMonth(c.consolidated), assess.PerMonth(c.saved), saves,
		assess.PerMonth(c.bound), number(c.unpriced),
	}
}

func number(n int) string { return fmt.Sprint(n) }

// Top writes a row for each cluster: its size, its use, its pending pods, and its price.
func Top(w io.Writer, results []Result[top.Report]) error {
	columns := []column{
		{"CONTEXT", true},
		{"NODES", false},
		{"PODS", false},
		{"PENDING", false},
		{"CPU", false},
		{"MEMORY", false},
		{"$/H", false},
		{"CHANGES", false},
		{"AFTER", false},
		{"LOWER BOUND", false},
	}
	prices := func(r *top.Report) string { return r.Spend.Prices }
	return table[top.Report]{columns: columns, prices: prices, row: func(r *top.Report) []string {
		changes := "?"
		if r.Forecast != nil {
			changes = number(len(r.Changes))
		}
		return []string{
			number(len(r.Nodes)), number(r.Pods), number(len(r.Pending)), share(r.CPU), share(r.Memory), price(&r.Spend.HourlyCost),
			changes, price(r.Spend.PlannedHourlyCost), price(r.Spend.LowerBound),
		}
	}}.write(w, results)
}

func share(u top.Use) string {
	if u.Allocatable <= 0 || u.Requested == nil {
		return "?"
	}
	return assess.Percent(u.Share())
}

func price(v *float64) string {
	if v == nil {
		return "?"
	}
	return report.Amount(*v)
}
