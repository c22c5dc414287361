// Package series keeps time series in memory and evaluates PromQL on them with Prometheus' own engine.
//
// Prometheus' tsdb would do, but it depends on its configuration, and so on the SDKs of three clouds: it takes twice as many packages
// as the engine alone. A store for tests and pictures only needs to select series and list their samples.
package series

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/prometheus/prometheus/model/histogram"
)

// Lookback is for how long a series has its last value without another sample; it is Prometheus' default.
const Lookback = 5 * time.Minute

// maxSamples bounds one query; it is Prometheus' default.
const maxSamples = 50_000_000

// Parser parses PromQL as Prometheus does by default.
func Parser() parser.Parser { return parser.NewParser(parser.Options{}) }

// Store holds time series. The zero value is empty and ready to use; it is not safe for concurrent use.
type Store struct {
	byLabels map[string]*entry
	byName   map[string][]*entry
	engine   *promql.Engine
}

// entry is one series; its samples are in the order of their times.
type entry struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// point is a sample with a number.
type point struct {
	at    int64 // milliseconds since 1970
	value float64
}

func (p point) T() int64                      { return p.at }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// Add appends a sample to a series. Samples of a series come in the order of their times.
func (s *Store) Add(of labels.Labels, at time.Time, value float64) error {
	if s.byLabels == nil {
		s.byLabels, s.byName = map[string]*entry{}, map[string][]*entry{}
	}
	key := string(of.Bytes(nil))
	e := s.byLabels[key]
	if e == nil {
		e = &entry{labels: of}
		s.byLabels[key] = e
		name := of.Get(labels.MetricName)
		s.byName[name] = append(s.byName[name], e)
	}
	if n := len(e.samples); n > 0 && e.samples[n-1].T() >= at.UnixMilli() {
		return fmt.Errorf("%s: a sample at %v after one at %v", of, at, time.UnixMilli(e.samples[n-1].T()))
	}
	e.samples = append(e.samples, point{at.UnixMilli(), value})
	return nil
}

// Names are the names of all metrics, sorted.
func (s *Store) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Labels are the names of the labels that series of a metric have.
func (s *Store) Labels(name string) map[string]bool {
	out := map[string]bool{}
	for _, e := range s.byName[name] {
		e.labels.Range(func(l labels.Label) { out[l.Name] = true })
	}
	return out
}

// Span is from the first sample to the last.
func (s *Store) Span() (from, to time.Time) {
	first, last := int64(0), int64(0)
	for _, e := range s.byLabels {
		begin, end := e.samples[0].T(), e.samples[len(e.samples)-1].T()
		if first == 0 || begin < first {
			first = begin
		}
		last = max(last, end)
	}
	return time.UnixMilli(first), time.UnixMilli(last)
}

// Scrapes are the times of all scrapes, in order: those of the samples of the series up.
func (s *Store) Scrapes() []time.Time {
	times := map[int64]bool{}
	for _, e := range s.byName["up"] {
		for _, sample := range e.samples {
			times[sample.T()] = true
		}
	}
	out := make([]time.Time, 0, len(times))
	for _, at := range slices.Sorted(maps.Keys(times)) {
		out = append(out, time.UnixMilli(at))
	}
	return out
}

// Hold repeats the last sample of each series at steps until a time, as if nothing changed after the end of a record. Series that are
// stale at their end stay so.
func (s *Store) Hold(until time.Time, step time.Duration) error {
	for _, e := range s.byLabels {
		last := e.samples[len(e.samples)-1]
		if value.IsStaleNaN(last.F()) {
			continue
		}
		for at := time.UnixMilli(last.T()).Add(step); !at.After(until); at = at.Add(step) {
			if err := s.Add(e.labels, at, last.F()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Instant evaluates an expression at a time.
func (s *Store) Instant(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	q, err := s.evaluator().NewInstantQuery(ctx, s, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	switch v := result.Value.(type) {
	case promql.Vector:
		return slices.Clone(v), nil
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}, nil
	default:
		return nil, fmt.Errorf("%s is a %s", expr, v.Type())
	}
}

// Range evaluates an expression at steps from one time to another. The series are in the order of their labels.
func (s *Store) Range(ctx context.Context, expr string, from, to time.Time, step time.Duration) (promql.Matrix, error) {
	q, err := s.evaluator().NewRangeQuery(ctx, s, nil, expr, from, to, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	m, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	out := make(promql.Matrix, len(m))
	for i, series := range m {
		out[i] = promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats)}
	}
	return out, nil
}

func (s *Store) evaluator() *promql.Engine {
	if s.engine == nil {
		s.engine = promql.NewEngine(promql.EngineOpts{
			MaxSamples: maxSamples, Timeout: time.Minute, LookbackDelta: Lookback, EnableAtModifier: true, EnableNegativeOffset: true,
			Parser: Parser(),
		})
	}
	return s.engine
}

// Querier implements storage.Queryable.
func (s *Store) Querier(from, to int64) (storage.Querier, error) { return querier{s, from, to}, nil }

// querier selects series; from and to are inclusive, in milliseconds.
type querier struct {
	store    *Store
	from, to int64
}

// Select implements storage.Querier. The series are always sorted.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, match ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, e := range q.candidates(match) {
		if !matches(e.labels, match) {
			continue
		}
		at := func(t int64) int {
			i, _ := slices.BinarySearchFunc(e.samples, t, func(s chunks.Sample, t int64) int { return cmp.Compare(s.T(), t) })
			return i
		}
		if in := e.samples[at(q.from):at(q.to+1)]; len(in) > 0 {
			found = append(found, storage.NewListSeries(e.labels, in))
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &set{series: found, at: -1}
}

// candidates are the series with the name that is matched, or all.
func (q querier) candidates(match []*labels.Matcher) []*entry {
	for _, m := range match {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return q.store.byName[m.Value]
		}
	}
	return slices.Collect(maps.Values(q.store.byLabels))
}

func matches(of labels.Labels, match []*labels.Matcher) bool {
	for _, m := range match {
		if !m.Matches(of.Get(m.Name)) {
			return false
		}
	}
	return true
}

// LabelValues implements storage.LabelQuerier, which the engine does not use.
func (querier) LabelValues(
	context.Context, string, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier, which the engine does not use.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (querier) Close() error { return nil }

// set iterates over series.
type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// Interval is the usual time between two scrapes: the median time between samples of the series up.
func (s *Store) Interval() time.Duration {
	var all []int64
	for _, e := range s.byName["up"] {
		for i := 1; i < len(e.samples); i++ {
			all = append(all, e.samples[i].T()-e.samples[i-1].T())
		}
	}
	if len(all) == 0 {
		return time.Minute
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2]) * time.Millisecond
}
