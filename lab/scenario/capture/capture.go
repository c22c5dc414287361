// Package capture records what controllers serve at /metrics over time, and writes it as OpenMetrics text with timestamps, which
// Prometheus reads with `promtool tsdb create-blocks-from openmetrics`.
package capture

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Recorder keeps the scrapes of one or several targets. Its methods may be called from several goroutines.
//
// Invariant: the lines of a metric have one value in each of its points, and the points are in the order of their times.
// Cost: 8 bytes for each value of each scrape; names and labels are kept once.
type Recorder struct {
	// Match, if set, selects the metrics that are kept, by a regular expression that matches the whole name.
	Match *regexp.Regexp

	mu       sync.Mutex
	families map[string]*family
}

// family is a metric family: what TYPE and HELP describe.
type family struct {
	header  string
	metrics map[string]*metric // by their lines, joined
}

// metric is the metrics of one set of labels: a line for a counter or gauge, several for a histogram or summary.
type metric struct {
	lines  []string // without values, in the order of the exposition
	points []point
}

// point is one scrape of a metric.
type point struct {
	at     int64 // in milliseconds since 1970
	values []float64
}

// upName is the metric that Prometheus itself adds to each scrape: 1 if the target answered, else 0.
const upName = "up"

// Add keeps one scrape of a target, with the target's labels. The text is that of /metrics; empty for a target that did not answer.
func (r *Recorder) Add(at time.Time, target map[string]string, text string) error {
	families, err := parse(text)
	if err != nil {
		return fmt.Errorf("metrics of %v: %w", target, err)
	}
	families[upName] = up(text != "")
	labels := labelPairs(target)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.families == nil {
		r.families = map[string]*family{}
	}
	for name, f := range families {
		if name != upName && r.Match != nil && !r.Match.MatchString(name) {
			continue
		}
		if err := r.declare(f); err != nil {
			return err
		}
		for _, m := range f.Metric {
			m.Label = append(m.Label, labels...)
			if err := r.add(f, m, at.UnixMilli()); err != nil {
				return err
			}
		}
	}
	return nil
}

// parse reads the text format of metrics. Prometheus' own parser drops families without series, which are added.
func parse(text string) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if families == nil {
		families = map[string]*dto.MetricFamily{}
	}
	for name, f := range declared(text) {
		if families[name] == nil {
			families[name] = f
		}
	}
	return families, err
}

// declared are the families that the lines TYPE and HELP name, without their series.
func declared(text string) map[string]*dto.MetricFamily {
	out := map[string]*dto.MetricFamily{}
	help := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, is := strings.CutPrefix(line, "# HELP "); is {
			name, what, _ := strings.Cut(rest, " ")
			help[name] = helpText.Replace(what)
		}
		if rest, is := strings.CutPrefix(line, "# TYPE "); is {
			name, kind, _ := strings.Cut(rest, " ")
			if code, known := dto.MetricType_value[strings.ToUpper(kind)]; known {
				out[name] = &dto.MetricFamily{Name: &name, Type: dto.MetricType(code).Enum()}
			}
		}
	}
	for name, f := range out {
		if what, has := help[name]; has {
			f.Help = &what
		}
	}
	return out
}

// helpText undoes the escapes of HELP in the text format.
var helpText = strings.NewReplacer(`\\`, `\`, `\n`, "\n")

func up(answered bool) *dto.MetricFamily {
	name, help, value := upName, "1 if the target answered the scrape, else 0.", 0.0
	if answered {
		value = 1
	}
	return &dto.MetricFamily{
		Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}},
	}
}

func labelPairs(labels map[string]string) []*dto.LabelPair {
	var out []*dto.LabelPair
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		out = append(out, &dto.LabelPair{Name: &name, Value: &value})
	}
	return out
}

// add keeps one metric of a scrape. Prometheus' own encoder renders it, so that names and types are as OpenMetrics has them.
func (r *Recorder) add(f *dto.MetricFamily, m *dto.Metric, at int64) error {
	var text bytes.Buffer
	one := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Metric: []*dto.Metric{m}}
	if _, err := expfmt.MetricFamilyToOpenMetrics(&text, one); err != nil {
		return fmt.Errorf("metric %s: %w", f.GetName(), err)
	}
	var lines []string
	var values []float64
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return fmt.Errorf("metric %s: %w", f.GetName(), err)
		}
		lines, values = append(lines, line[:end]), append(values, value)
	}
	r.families[f.GetName()].keep(lines, point{at, values})
	return nil
}

// declare keeps a family, also one without series.
func (r *Recorder) declare(f *dto.MetricFamily) error {
	if r.families[f.GetName()] != nil {
		return nil
	}
	var header strings.Builder
	if _, err := expfmt.MetricFamilyToOpenMetrics(&header, &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type}); err != nil {
		return fmt.Errorf("metric %s: %w", f.GetName(), err)
	}
	r.families[f.GetName()] = &family{header: header.String(), metrics: map[string]*metric{}}
	return nil
}

// keep appends the values of a metric to its points.
func (of *family) keep(lines []string, p point) {
	key := strings.Join(lines, "\n")
	m := of.metrics[key]
	if m == nil {
		m = &metric{lines: lines}
		of.metrics[key] = m
	}
	m.points = append(m.points, p)
}

// WriteTo writes all scrapes as OpenMetrics text, sorted by name and labels.
func (r *Recorder) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted := &counter{to: w}
	out := bufio.NewWriter(counted)
	for _, name := range slices.Sorted(maps.Keys(r.families)) {
		f := r.families[name]
		_, _ = out.WriteString(f.header) // Flush has the error
		for _, key := range slices.Sorted(maps.Keys(f.metrics)) {
			f.metrics[key].write(out)
		}
	}
	_, _ = out.WriteString("# EOF\n")
	err := out.Flush()
	return counted.n, err
}

// write writes the points of a metric; the writer keeps the first error.
func (m *metric) write(out *bufio.Writer) {
	for _, p := range m.points {
		for i, line := range m.lines {
			_, _ = out.WriteString(line)
			_ = out.WriteByte(' ')
			_, _ = out.WriteString(number(p.values[i]))
			_ = out.WriteByte(' ')
			_, _ = out.WriteString(strconv.FormatFloat(float64(p.at)/1000, 'f', 3, 64))
			_ = out.WriteByte('\n')
		}
	}
}

// number spells a value as OpenMetrics does.
func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// counter counts what it writes.
type counter struct {
	to io.Writer
	n  int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
