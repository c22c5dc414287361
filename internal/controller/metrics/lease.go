package metrics

import (
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Lease counts how often the leader had to read its lease again before it could renew it, as client-go does: controller-runtime has the
// metric and does not register it. A renewal usually is one update. If that fails, a read and another update follow: the slow path.
type Lease struct {
	slow prometheus.Counter
	// path states how the path of requests for the lease finishes.
	path string

	mu   sync.Mutex
	last renewal
}

// renewal states where the requests for the lease are: after a renewal, after an update that failed, after the read that followed.
type renewal int

const (
	renewed renewal = iota
	failed
	readAgain
)

// NewLease declares the metric in reg, for the lease with a name.
func NewLease(reg prometheus.Registerer, name string) (*Lease, error) {
	slow := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leader_election_slowpath_total", Help: "Renewals of the leader's lease that had to read the lease first.",
	}, []string{"name"})
	return &Lease{slow: slow.WithLabelValues(name), path: "/leases/" + name}, reg.Register(slow)
}

// Wrap returns a transport that counts, of the requests of another.
func (l *Lease) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, l.path) {
			return next.RoundTrip(r)
		}
		l.begin(r.Method)
		answer, err := next.RoundTrip(r)
		l.end(r.Method, err == nil && answer.StatusCode < http.StatusBadRequest)
		return answer, err
	})
}

func (l *Lease) begin(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if method == http.MethodPut && l.last == readAgain {
		l.slow.Inc()
	}
}

func (l *Lease) end(method string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case method == http.MethodPut && ok:
		l.last = renewed
	case method == http.MethodPut:
		l.last = failed
	case method == http.MethodGet && ok && l.last == failed:
		l.last = readAgain
	}
}
