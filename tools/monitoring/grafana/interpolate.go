package grafana

import (
	"strings"
	"time"

	promql "github.com/prometheus/common/model"
)

// Interpolate replaces the variables in a query as Grafana does, with all values selected: the time between two points is step, the
// page shows span, and the targets are scraped at an interval.
func Interpolate(expr string, step, span, scrape time.Duration) string {
	rate := max(step+scrape, 4*scrape) // Grafana's $__rate_interval
	replace := []string{"$__rate_interval", duration(rate), "$__interval", duration(step), "$__range", duration(span)}
	for _, name := range []string{"cluster", "job", "nodepool"} {
		replace = append(replace, "$"+name, ".*")
	}
	return strings.NewReplacer(replace...).Replace(expr)
}

// duration is a duration in PromQL; at least a second.
func duration(d time.Duration) string {
	return promql.Duration(max(d.Round(time.Second), time.Second)).String()
}
