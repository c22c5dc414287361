package inventory

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

const (
	// path states where metrics are served.
	path = "/metrics"
	// textBuffer has some hundred lines, so that the compression is not called for each.
	textBuffer = 64 << 10
)

// Handler serves /metrics with every metric: those without series have HELP and TYPE, so that a person or an editor of queries finds
// them before the first event. Other paths are left to next. Formats other than text cannot list metrics without series.
func (r *Registry) Handler(next http.Handler) http.Handler {
	objects := promhttp.HandlerFor(prometheus.Gatherers{r.inner, r.large}, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != path {
			next.ServeHTTP(w, request)
			return
		}
		format := expfmt.Negotiate(request.Header)
		if format.FormatType() != expfmt.TypeTextPlain {
			objects.ServeHTTP(w, request)
			return
		}
		families, err := r.inner.Gather()
		if err != nil {
			http.Error(w, fmt.Sprintf("gather the metrics: %v", err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		out, closeText := io.Writer(w), func() error { return nil }
		if strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			// The default level takes three times the CPU time, for a fifth less text.
			compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err != nil {
				panic(err) // the level is valid
			}
			out, closeText = compressed, compressed.Close
		}
		buffered := bufio.NewWriterSize(out, textBuffer)
		if err := r.write(expfmt.NewEncoder(buffered, format), buffered, families); err != nil || buffered.Flush() != nil {
			return // the client has gone
		}
		_ = closeText() // as above
	})
}

// write writes the families with series, then what is known of the metrics without, and then the series of collectors that write text.
func (r *Registry) write(to expfmt.Encoder, out io.Writer, families []*dto.MetricFamily) error {
	served := map[string]bool{}
	for _, f := range families {
		if err := to.Encode(f); err != nil {
			return err
		}
		served[f.GetName()] = true
	}
	for _, m := range described(r.large) {
		served[m.Name] = true
	}
	for _, m := range r.metrics(families) {
		if served[m.Name] || m.Type == "" {
			continue
		}
		if err := WriteHeader(out, m); err != nil {
			return err
		}
	}
	for _, writer := range r.textWriters() {
		if err := writer.WriteText(out); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) textWriters() []textWriter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writers)
}

// helpEscapes are the escapes of the text format.
var helpEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// WriteHeader writes the HELP and TYPE of a metric in the text format.
func WriteHeader(to io.Writer, m Metric) error {
	_, err := fmt.Fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", m.Name, helpEscapes.Replace(m.Help), m.Name, m.Type)
	return err
}
