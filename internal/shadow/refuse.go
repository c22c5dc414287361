package shadow

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
)

// ErrRefused means that a shadow has tried to write. It is a bug.
var ErrRefused = errors.New("shadow mode refuses to write: this is a bug in Dovetail, please report it")

// Refusals counts the writes that were tried.
type Refusals struct {
	count atomic.Int64
	log   *slog.Logger
	seen  func(target string)
}

// NewRefusals logs each write that is tried, and reports its target, kubernetes or aws, to seen.
func NewRefusals(log *slog.Logger, seen func(target string)) *Refusals {
	return &Refusals{log: log, seen: seen}
}

// Count returns how many writes were tried.
func (r *Refusals) Count() int { return int(r.count.Load()) }

// AWS refuses a call of AWS.
func (r *Refusals) AWS(service, action string) error { return r.refuse("aws", service+" "+action) }

func (r *Refusals) refuse(target, what string) error {
	r.count.Add(1)
	r.seen(target)
	r.log.Error("refused to write", "target", target, "request", what, "error", ErrRefused)
	return fmt.Errorf("%s: %w", what, ErrRefused)
}

var (
	// reviews are requests that find out who somebody is and what he may do. They are sent as creations, and store nothing.
	reviews = regexp.MustCompile(`^/apis/(authentication|authorization)\.k8s\.io/v[^/]+/` +
		`(tokenreviews|subjectaccessreviews|selfsubjectaccessreviews|selfsubjectreviews)$`)
	// connects are requests that reach what runs on nodes, which may do anything.
	connects = regexp.MustCompile(`^/api/v1/(namespaces/[^/]+/(pods|services)|nodes)/[^/]+/(exec|attach|portforward|proxy)(/|$)`)
)

// Transport lets requests to the API server pass that read, and those that write the ConfigMap of the report. It refuses all
// others before they are sent. prefix is the path of the API server's address, which proxies for several clusters have.
func (r *Refusals) Transport(namespace, prefix string) func(http.RoundTripper) http.RoundTripper {
	own := "/api/v1/namespaces/" + namespace + "/configmaps/" + ConfigMapName
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			path, found := strings.CutPrefix(req.URL.Path, strings.TrimRight(prefix, "/"))
			if found && mayPass(req.Method, path, own) {
				return next.RoundTrip(req)
			}
			if req.Body != nil {
				_ = req.Body.Close() // as a RoundTripper has to, whatever it returns
			}
			return nil, r.refuse("kubernetes", req.Method+" "+req.URL.Path)
		})
	}
}

func mayPass(method, path, own string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return !connects.MatchString(path)
	case http.MethodPatch:
		return path == own
	case http.MethodPost:
		return reviews.MatchString(path)
	}
	return false
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
