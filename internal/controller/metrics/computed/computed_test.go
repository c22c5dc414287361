package computed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
)

// world has the values of a gauge, and what the labels of each are.
type world struct {
	values []float64
	labels [][2]string
}

func gauges() []computed.Gauge[world] {
	return []computed.Gauge[world]{
		{Name: "b_state", Help: "With a \\ and\na line.", Labels: []string{"z", "a"}, Each: func(w world, send computed.Send) {
			for i, v := range w.values {
				send(v, w.labels[i][:]...)
			}
		}},
		{Name: "c_total", Help: "No labels.", Each: func(w world, send computed.Send) { send(float64(len(w.values))) }},
	}
}

// leading calls do while c leads.
func leading[W any](t *testing.T, c *computed.Collector[W], do func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = c.Start(ctx) }()
		synctest.Wait()
		do()
		stop()
		synctest.Wait()
	})
}

// ofClient returns what the client of Prometheus writes for a collector.
func ofClient(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func sortedLines(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }

func TestTextIsThatOfTheClientOfPrometheus(t *testing.T) {
	w := world{
		values: []float64{0, 1, -1, 0.1, 1e21, 1e-9, 123456789, math.Inf(1), math.Inf(-1), math.NaN()},
		labels: [][2]string{
			{"", ""},
			{"a", "b"},
			{"quote \"", "back\\slash"},
			{"line\nline", "\xff\xc3ü"},
			{"{", "}"},
			{" ", ","},
			{"x", "y"},
			{"y", "x"},
			{"p", "q"},
			{"r", "s"},
		},
	}
	c := computed.New(gauges(), func() (world, error) { return w, nil }, func(err error) { t.Error(err) })
	leading(t, c, func() {
		var got bytes.Buffer
		if err := c.WriteText(&got); err != nil {
			t.Fatal(err)
		}
		if got, want := sortedLines(got.String()), sortedLines(ofClient(t, c)); got != want {
			t.Errorf("text:\n%s\nof the client:\n%s", got, want)
		}
	})
}

const headers = "# HELP b_state With a \\\\ and\\na line.\n# TYPE b_state gauge\n# HELP c_total No labels.\n# TYPE c_total gauge\n"

func TestNothingIsReportedWithoutLeading(t *testing.T) {
	c := computed.New(gauges(), func() (world, error) { return world{}, nil }, func(err error) { t.Error(err) })
	check := func(when string) {
		var text bytes.Buffer
		if err := c.WriteText(&text); err != nil || text.String() != headers {
			t.Errorf("%s: %v:\n%s", when, err, &text)
		}
		if got := ofClient(t, c); got != "" {
			t.Errorf("%s, as objects:\n%s", when, got)
		}
	}
	check("before")
	leading(t, c, func() {})
	check("after")
}

func TestErrorOfAReadIsReportedAndTheScrapeIsEmpty(t *testing.T) {
	var failed error
	c := computed.New(gauges(), func() (world, error) { return world{}, errors.New("no cache") }, func(err error) { failed = err })
	leading(t, c, func() {
		var text bytes.Buffer
		if err := c.WriteText(&text); err != nil || text.String() != headers {
			t.Errorf("%v:\n%s", err, &text)
		}
		if failed == nil {
			t.Error("the error is lost")
		}
	})
}

func TestClosedConnectionEndsAScrape(t *testing.T) {
	w := world{values: []float64{1}, labels: [][2]string{{"a", "b"}}}
	c := computed.New(gauges(), func() (world, error) { return w, nil }, func(err error) { t.Error(err) })
	leading(t, c, func() {
		closed, out := io.Pipe()
		_ = closed.Close()
		if err := c.WriteText(out); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error: %v", err)
		}
	})
}

// BenchmarkWriteText shows that the memory of a scrape does not depend on the number of series.
func BenchmarkWriteText(b *testing.B) {
	var w world
	for i := range 100_000 {
		w.values, w.labels = append(w.values, 1), append(w.labels, [2]string{fmt.Sprint("pod-", i), "shop"})
	}
	c := computed.New(gauges(), func() (world, error) { return w, nil }, func(err error) { b.Error(err) })
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { _ = c.Start(ctx); close(done) }()
	for written := 0; written < 1000; { // until it leads
		var text bytes.Buffer
		if err := c.WriteText(&text); err != nil {
			b.Fatal(err)
		}
		written = text.Len()
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteText(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	<-done
}
