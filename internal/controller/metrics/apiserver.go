package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// APIServer measures requests to the API server, under the names of Karpenter's metrics.
type APIServer struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewAPIServer declares the metrics in reg.
func NewAPIServer(reg prometheus.Registerer) (*APIServer, error) {
	a := &APIServer{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "client_go_request_total", Help: "Requests to the API server, by status code and method.",
		}, []string{"code", "method"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "client_go_request_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 1.5, 20),
			Help: "Time until the API server answers; watches are left out. The kind is the resource in the path.",
		}, []string{"verb", "group", "version", "kind", "subresource"}),
	}
	if err := reg.Register(a.requests); err != nil {
		return nil, err
	}
	return a, reg.Register(a.duration)
}

// Wrap returns a transport that measures the requests of another.
func (a *APIServer) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		began := time.Now()
		answer, err := next.RoundTrip(r)
		code := "<error>" // as client-go has it
		if err == nil {
			code = strconv.Itoa(answer.StatusCode)
		}
		a.requests.WithLabelValues(code, r.Method).Inc()
		if p := parsePath(r.URL.Path); p.kind != "" && r.URL.Query().Get("watch") == "" {
			a.duration.WithLabelValues(r.Method, p.group, p.version, p.kind, p.subresource).Observe(time.Since(began).Seconds())
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// resourcePath describes what a path of the API server refers to.
type resourcePath struct{ group, version, kind, subresource string }

// parsePath takes a path such as /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE or /api/v1/nodes apart. It
// returns the zero value for paths of no resource, such as /healthz and those of discovery.
func parsePath(path string) (out resourcePath) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		out.version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		out.group, out.version, parts = parts[1], parts[2], parts[3:]
	default:
		return out
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	out.kind = parts[0]
	if len(parts) > 2 {
		out.subresource = parts[2]
	}
	return out
}
