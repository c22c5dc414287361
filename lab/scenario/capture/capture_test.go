package capture

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const first = `# HELP nodes_total Nodes.
# TYPE nodes_total counter
nodes_total{zone="a"} 1
# HELP pods Pods with a "quote".
# TYPE pods gauge
pods{name="x 1"} 2
pods{name="gone"} 1
# HELP unused No series yet.
# TYPE unused gauge
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le="1"} 0
took_seconds_bucket{le="+Inf"} 1
took_seconds_sum 3
took_seconds_count 1
# HELP go_goroutines Goroutines.
# TYPE go_goroutines gauge
go_goroutines 7
`

const second = `# HELP nodes_total Nodes.
# TYPE nodes_total counter
nodes_total{zone="a"} 1.5e+06
# HELP pods Pods with a "quote".
# TYPE pods gauge
pods{name="x 1"} +Inf
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le="1"} 1
took_seconds_bucket{le="+Inf"} 2
took_seconds_sum 3.5
took_seconds_count 2
`

// Each family is written once, with all its points in the order of time; a series that has vanished has no more points, and a family
// without series has none.
func TestScrapesAreWrittenAsOpenMetrics(t *testing.T) {
	r := &Recorder{Match: regexp.MustCompile("^(?:nodes.*|pods|took.*|unused)$")}
	begin := time.UnixMilli(1_700_000_000_500)
	for i, text := range []string{first, "", second} {
		if err := r.Add(begin.Add(time.Duration(i)*5*time.Second), map[string]string{"job": "dovetail"}, text); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	n, err := r.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Errorf("%d bytes, %v; want %d", n, err, out.Len())
	}
	want := `# HELP nodes Nodes.
# TYPE nodes counter
nodes_total{zone="a",job="dovetail"} 1 1700000000.500
nodes_total{zone="a",job="dovetail"} 1.5e+06 1700000010.500
# HELP pods Pods with a \"quote\".
# TYPE pods gauge
pods{name="gone",job="dovetail"} 1 1700000000.500
pods{name="x 1",job="dovetail"} 2 1700000000.500
pods{name="x 1",job="dovetail"} +Inf 1700000010.500
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{job="dovetail",le="1.0"} 0 1700000000.500
took_seconds_bucket{job="dovetail",le="+Inf"} 1 1700000000.500
took_seconds_sum{job="dovetail"} 3 1700000000.500
took_seconds_count{job="dovetail"} 1 1700000000.500
took_seconds_bucket{job="dovetail",le="1.0"} 1 1700000010.500
took_seconds_bucket{job="dovetail",le="+Inf"} 2 1700000010.500
took_seconds_sum{job="dovetail"} 3.5 1700000010.500
took_seconds_count{job="dovetail"} 2 1700000010.500
# HELP unused No series yet.
# TYPE unused gauge
# HELP up 1 if the target answered the scrape, else 0.
# TYPE up gauge
up{job="dovetail"} 1 1700000000.500
up{job="dovetail"} 0 1700000005.500
up{job="dovetail"} 1 1700000010.500
# EOF
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBrokenMetricsAreAnError(t *testing.T) {
	if err := new(Recorder).Add(time.Now(), nil, "nodes{ 1\n"); err == nil {
		t.Error("a scrape that cannot be parsed was kept")
	}
}
