package inventory

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// path is where metrics are served.
const path = "/metrics"

// Handler serves /metrics with every metric: those without series have HELP and TYPE, so that a person or an editor of queries finds
// them before the first event. Other paths, and formats other than text, which cannot list them, are left to next.
func (r *Registry) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		format := expfmt.Negotiate(request.Header)
		if request.URL.Path != path || format.FormatType() != expfmt.TypeTextPlain {
			next.ServeHTTP(w, request)
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
			compressed := gzip.NewWriter(w)
			out, closeText = compressed, compressed.Close
		}
		if err := r.write(expfmt.NewEncoder(out, format), out, families); err == nil {
			_ = closeText() // the client has gone
		}
	})
}

// write writes the families with series, and then what is known of the metrics without.
func (r *Registry) write(to expfmt.Encoder, out io.Writer, families []*dto.MetricFamily) error {
	served := map[string]bool{}
	for _, f := range families {
		if err := to.Encode(f); err != nil {
			return err
		}
		served[f.GetName()] = true
	}
	for _, m := range r.metrics(families) {
		if served[m.Name] || m.Type == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", m.Name, helpEscapes.Replace(m.Help), m.Name, m.Type); err != nil {
			return err
		}
	}
	return nil
}

// helpEscapes are those of the text format.
var helpEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
