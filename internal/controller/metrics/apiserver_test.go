package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestParsePath(t *testing.T) {
	for path, want := range map[string]resourcePath{
		"/api/v1/nodes":                                 {"", "v1", "nodes", ""},
		"/api/v1/nodes/a/status":                        {"", "v1", "nodes", "status"},
		"/api/v1/namespaces/shop":                       {"", "v1", "namespaces", ""},
		"/api/v1/namespaces/shop/status":                {"", "v1", "namespaces", "status"},
		"/api/v1/namespaces/shop/pods":                  {"", "v1", "pods", ""},
		"/api/v1/namespaces/shop/pods/a/eviction":       {"", "v1", "pods", "eviction"},
		"/apis/karpenter.sh/v1/nodeclaims":              {"karpenter.sh", "v1", "nodeclaims", ""},
		"/apis/karpenter.sh/v1/nodeclaims/a/status":     {"karpenter.sh", "v1", "nodeclaims", "status"},
		"/apis/apps/v1/namespaces/shop/deployments/web": {"apps", "v1", "deployments", ""},
		"/apis/apps/v1":                                 {},
		"/api":                                          {},
		"/healthz":                                      {},
		"/":                                             {},
	} {
		if got := parsePath(path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

func TestRequestsToTheAPIServerAreMeasured(t *testing.T) {
	a, err := NewAPIServer(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	down := false
	transport := a.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		if down {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: http.StatusNotFound}, nil
	}))
	for _, url := range []string{"/api/v1/nodes/a", "/api/v1/nodes?watch=true", "/healthz"} {
		if _, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, url, nil)); err != nil {
			t.Fatal(err)
		}
	}
	down = true
	if _, err := transport.RoundTrip(httptest.NewRequest(http.MethodPatch, "/api/v1/nodes/a/status", nil)); err == nil {
		t.Error("the error is lost")
	}
	for _, tc := range []struct {
		code, method string
		want         float64
	}{{"404", "GET", 3}, {"<error>", "PATCH", 1}} {
		if n := testutil.ToFloat64(a.requests.WithLabelValues(tc.code, tc.method)); n != tc.want {
			t.Errorf("%v requests %s %s, want %v", n, tc.code, tc.method, tc.want)
		}
	}
	if n := testutil.CollectAndCount(a.duration); n != 2 {
		t.Errorf("%d series of durations, want that of GET nodes and that of PATCH nodes/status", n)
	}
}
