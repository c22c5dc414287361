package series

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// capture has three scrapes: the pod a is gone at the second, and the target does not answer the third.
const capture = `# TYPE pods gauge
pods{name="a",job="j"} 1 100
pods{name="b",job="j"} 2 100
pods{name="b",job="j"} 3 110
# TYPE launches counter
launches_total{job="j"} 0 100
launches_total{job="j"} 6 110
# TYPE took_seconds histogram
took_seconds_bucket{job="j",le="1"} 0 100
took_seconds_bucket{job="j",le="1"} 4 110
took_seconds_bucket{job="j",le="+Inf"} 0 100
took_seconds_bucket{job="j",le="+Inf"} 4 110
took_seconds_count{job="j"} 0 100
took_seconds_count{job="j"} 4 110
took_seconds_sum{job="j"} 0 100
took_seconds_sum{job="j"} 2 110
# TYPE up gauge
up{job="j"} 1 100
up{job="j"} 1 110
up{job="j"} 0 120
# EOF
`

func TestCapturedSeriesAreQueried(t *testing.T) {
	s, err := Load([]byte(capture))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		expr string
		at   int64
		want map[string]float64
	}{
		{"pods", 100, map[string]float64{"a": 1, "b": 2}},
		{"pods", 109, map[string]float64{"a": 1, "b": 2}},
		{"pods", 110, map[string]float64{"b": 3}}, // a is stale
		{"pods", 120, map[string]float64{}},       // so is everything of a target that does not answer
		{"up", 125, map[string]float64{"": 0}},
		{`sum(pods{name=~"a|c"})`, 100, map[string]float64{"": 1}},
		{"rate(launches_total[10s])", 110, map[string]float64{}},        // open on the left: one sample only
		{"rate(launches_total[12s])", 110, map[string]float64{"": 0.5}}, // the counter began at 0, so nothing is extrapolated
		{"histogram_quantile(0.5, sum by (le) (increase(took_seconds_bucket[11s])))", 110, map[string]float64{"": 0.5}},
		{`{__name__=~"pods|up", name=""}`, 100, map[string]float64{"": 1}},
		{"42", 100, map[string]float64{"": 42}},
	} {
		found, err := s.Instant(t.Context(), tc.expr, time.Unix(tc.at, 0))
		if err != nil {
			t.Errorf("%s: %v", tc.expr, err)
			continue
		}
		got := map[string]float64{}
		for _, f := range found {
			got[f.Metric.Get("name")] = f.F
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s at %d (-want +got)\n%s", tc.expr, tc.at, diff)
		}
	}
	if got := s.Interval(); got != 10*time.Second {
		t.Errorf("the interval is %v", got)
	}
	if from, to := s.Span(); from.Unix() != 100 || to.Unix() != 120 {
		t.Errorf("the span is %v to %v", from, to)
	}
}

// What the last scrape has stays; what is stale at the end, or of a target that did not answer, does not come back.
func TestEndOfACaptureIsHeld(t *testing.T) {
	s, err := Load([]byte(strings.Replace(capture, "up{job=\"j\"} 0 120\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hold(time.Unix(3700, 0), time.Minute); err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]int{`pods{name="b"} == 3`: 1, `pods{name="a"}`: 0, "increase(launches_total[10m]) > 0": 0, "up == 1": 1} {
		found, err := s.Instant(t.Context(), expr, time.Unix(3700, 0))
		if err != nil || len(found) != want {
			t.Errorf("%s an hour later: %v, %v; want %d", expr, found, err, want)
		}
	}
}

func TestCapturesThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{
		"without times": "# TYPE a gauge\na 1\n# EOF\n",
		"not scraped":   "# TYPE a gauge\na 1 100\n# EOF\n",
		"not metrics":   "hello\n",
	} {
		if _, err := Load([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
