package inventory

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	_ "sigs.k8s.io/controller-runtime" // registers the metrics of its parts
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// computed is a collector of our own.
type computed struct{ desc *prometheus.Desc }

func (c computed) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (computed) Collect(chan<- prometheus.Metric) {}

// filled is a registry with one metric of each sort; none but those without labels has series.
func filled(t *testing.T) *Registry {
	t.Helper()
	r, err := New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "With a \"quote\", a \\ and\na line."}, []string{"y", "x"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "b_total"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "c", ConstLabels: prometheus.Labels{"kind": "Node", "group": ""}}, []string{"x"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "c", ConstLabels: prometheus.Labels{"kind": "Pod", "group": ""}}, []string{"x"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "d"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "e_seconds"}, []string{"x"}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "f_seconds"}),
		prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "g_seconds"}, []string{"x"}),
		prometheus.NewSummary(prometheus.SummaryOpts{Name: "h_seconds"}),
		computed{prometheus.NewDesc("i", "Computed.", []string{"x"}, nil)},
	)
	return r
}

func TestEveryMetricIsKnown(t *testing.T) {
	got, err := filled(t).Metrics()
	if err != nil {
		t.Fatal(err)
	}
	want := []Metric{
		{"a_total", "With a \"quote\", a \\ and\na line.", "counter", []string{"x", "y"}},
		{"b_total", "", "counter", nil},
		{"c", "", "gauge", []string{"group", "kind", "x"}},
		{"d", "", "gauge", nil},
		{"e_seconds", "", "histogram", []string{"x"}},
		{"f_seconds", "", "histogram", nil},
		{"g_seconds", "", "summary", []string{"x"}},
		{"h_seconds", "", "summary", nil},
		{"i", "Computed.", "gauge", []string{"x"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// get returns what is served at a path.
func get(t *testing.T, r *Registry, path string, headers ...string) (text, encoding string) {
	t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	r.Handler(next).ServeHTTP(answer, request)
	body, encoding := io.Reader(answer.Body), answer.Header().Get("Content-Encoding")
	if encoding == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			t.Fatal(err)
		}
	}
	out, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), encoding
}

func TestMetricsWithoutSeriesAreServed(t *testing.T) {
	r := filled(t)
	for _, accepted := range []string{"", "gzip, deflate"} {
		text, encoding := get(t, r, "/metrics", "Accept-Encoding", accepted)
		if (encoding == "gzip") != (accepted != "") {
			t.Errorf("encoding %q for %q", encoding, accepted)
		}
		for _, want := range []string{
			"# HELP a_total With a \"quote\", a \\\\ and\\na line.\n# TYPE a_total counter\n",
			"# TYPE b_total counter\nb_total 0\n", "# TYPE c gauge\n", "# TYPE e_seconds histogram\n", "# HELP i Computed.\n# TYPE i gauge\n",
		} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%q occurs %d times in:\n%s", want, strings.Count(text, want), text)
			}
		}
	}
}

func TestOtherPathsAreLeftAlone(t *testing.T) {
	if text, _ := get(t, filled(t), "/debug/pprof/"); text != "next" {
		t.Errorf("%q", text)
	}
}

// writing is a collector that writes its series as text.
type writing struct{ desc *prometheus.Desc }

func (c writing) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (c writing) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, "as an object")
}

func (writing) WriteText(to io.Writer) error {
	_, err := io.WriteString(to, "# HELP w Written.\n# TYPE w gauge\nw{x=\"as text\"} 1\n")
	return err
}

// Series that a collector can write are no objects in a scrape of text, and are served in other formats, too.
func TestCollectorsWriteText(t *testing.T) {
	r := filled(t)
	w := writing{prometheus.NewDesc("w", "Written.", []string{"x"}, nil)}
	r.MustRegister(w)
	text, _ := get(t, r, "/metrics")
	for _, want := range []string{"# HELP w ", "# TYPE w ", `w{x="as text"} 1`, "# TYPE a_total counter\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q occurs %d times in:\n%s", want, strings.Count(text, want), text)
		}
	}
	if strings.Contains(text, "as an object") {
		t.Errorf("an object for a series that is written:\n%s", text)
	}
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	if text, _ := get(t, r, "/metrics", "Accept", protobuf); !strings.Contains(text, "as an object") || !strings.Contains(text, "b_total") {
		t.Errorf("as protobuf: %q", text)
	}
	all, err := r.Metrics()
	if err != nil || !slices.ContainsFunc(all, func(m Metric) bool { return m.Name == "w" && m.Type == "gauge" }) {
		t.Errorf("%v, %v", all, err)
	}
	if !r.Unregister(w) {
		t.Error("not registered")
	}
	if text, _ := get(t, r, "/metrics"); strings.Contains(text, "Written.") {
		t.Errorf("unregistered, and served:\n%s", text)
	}
}

// Each metric of controller-runtime has a type, also without series, and the table has no others.
func TestTypesOfTheLibrary(t *testing.T) {
	r, err := New(ctrlmetrics.Registry)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range all {
		known[m.Name] = true
		if m.Type == "" {
			t.Errorf("%s has no type", m.Name)
		}
		if listed, ok := libraryTypes[m.Name]; ok && listed != m.Type {
			t.Errorf("%s is a %s, the table has %s", m.Name, m.Type, listed)
		}
	}
	for name := range libraryTypes {
		if !known[name] {
			t.Errorf("%s is not registered", name)
		}
	}
}
