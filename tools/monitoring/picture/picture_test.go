package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

func TestValuesAreShownWithTheirUnits(t *testing.T) {
	two := 2
	for _, tc := range []struct {
		v        float64
		unit     grafana.Unit
		decimals *int
		want     string
	}{
		{0, grafana.Count, nil, "0"},
		{12, grafana.Count, nil, "12"},
		{1234, grafana.Count, nil, "1.23 K"},
		{0.123456, grafana.Cores, nil, "0.123"},
		{0.25, grafana.Seconds, nil, "250 ms"},
		{90, grafana.Seconds, nil, "1.5 min"},
		{7200, grafana.Seconds, nil, "2 h"},
		{3 << 20, grafana.Bytes, nil, "3 MiB"},
		{0.5, grafana.Ratio, nil, "50 %"},
		{50, grafana.Percent, nil, "50 %"},
		{1.888, grafana.Dollars, &two, "$1.89"},
		{1234567.8, grafana.Dollars, &two, "$1,234,567.80"},
		{3, grafana.PerSecond, nil, "3/s"},
	} {
		if got := format(tc.v, tc.unit, tc.decimals); got != tc.want {
			t.Errorf("%v %s: %q, want %q", tc.v, tc.unit, got, tc.want)
		}
	}
}

func TestAxesHaveRoundTicks(t *testing.T) {
	for _, tc := range []struct {
		low, high float64
		unit      grafana.Unit
		want      []float64
	}{
		{0, 29, grafana.Count, []float64{0, 10, 20, 30}},
		{0, 0, grafana.Count, []float64{0, 0.5, 1}},
		{0, 170, grafana.Seconds, []float64{0, 60, 120, 180}},
		{0, 300 << 20, grafana.Bytes, []float64{0, 128 << 20, 256 << 20, 384 << 20}},
	} {
		if diff := cmp.Diff(tc.want, ticks(tc.low, tc.high, tc.unit, 4)); diff != "" {
			t.Errorf("%v to %v %s (-want +got)\n%s", tc.low, tc.high, tc.unit, diff)
		}
	}
}

// A dashboard with one panel of each kind shows the values of its queries.
func TestDraw(t *testing.T) {
	var store series.Store
	begin := time.Unix(3600, 0)
	for i := range 41 {
		for pool, n := range map[string]float64{"general": 3, "batch": 4} {
			of := labels.FromStrings("__name__", "nodes", "nodepool", pool, "cluster", "shop")
			if err := store.Add(of, begin.Add(time.Duration(i)*15*time.Second), n+float64(i/40)); err != nil {
				t.Fatal(err)
			}
		}
	}
	query := []grafana.Query{{Expr: `sum by (nodepool) (nodes{cluster=~"$cluster"})`, Legend: "pool {{nodepool}}"}}
	panel := func(kind grafana.Kind, title string) grafana.Panel {
		return grafana.Panel{Kind: kind, Title: title, Width: 12, Queries: query, Unit: grafana.Count}
	}
	table := panel(grafana.Table, "A table")
	table.Columns = []grafana.Column{{Field: "nodepool", Title: "NodePool"}, {Field: "Value", Title: "Nodes <>"}}
	total := panel(grafana.Stat, "A stat")
	total.Queries = []grafana.Query{{Expr: "sum(nodes)"}}
	stacked, bars, none := panel(grafana.TimeSeries, "A stack"), panel(grafana.TimeSeries, "Bars"), panel(grafana.TimeSeries, "None")
	stacked.Stacked, bars.Bars, none.Empty, none.Queries = true, true, "Nothing here", []grafana.Query{{Expr: "absent"}}
	d := grafana.Dashboard{Title: "All & more", Rows: []grafana.Row{
		{Height: 4, Panels: []grafana.Panel{total}},
		{Title: "Row", Height: 8, Panels: []grafana.Panel{
			panel(grafana.TimeSeries, "Lines"), stacked, bars, none, panel(grafana.BarGauge, "A gauge"), table,
		}},
		{Title: "Later", Height: 8, Collapsed: true, Panels: []grafana.Panel{panel(grafana.Stat, "Hidden")}},
	}}
	svg, err := Draw(t.Context(), d, Window{&store, begin, begin.Add(10 * time.Minute), 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	texts := textsOf(t, svg)
	for _, want := range []string{
		"All & more", "A stat", "9", "▾ Row", "Lines", "pool general", "pool batch", "01:02", "Nothing here", "NodePool", "Nodes <>", "4", "5",
		"▸ Later (1 panels)",
	} {
		if !texts[want] {
			t.Errorf("the picture has no text %q", want)
		}
	}
	if texts["Hidden"] {
		t.Error("a collapsed row shows its panels")
	}
}

// textsOf are the texts of an SVG, which must be well-formed.
func textsOf(t *testing.T, svg string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	in := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, is := token.(xml.CharData); is {
			out[string(text)] = true
		}
	}
}
