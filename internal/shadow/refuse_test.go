package shadow

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every request that could change something is refused before it is sent, but the one that writes the report.
func TestTransport(t *testing.T) {
	const own = "/api/v1/namespaces/karpenter/configmaps/dovetail-shadow"
	for _, tc := range []struct {
		method, path string
		passes       bool
	}{
		{http.MethodGet, "/api/v1/pods", true},
		{http.MethodPatch, own, true},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", true},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", true},
		{http.MethodPut, own, false},
		{http.MethodDelete, own, false},
		{http.MethodPatch, own + "/status", false},
		{http.MethodPatch, "/api/v1/namespaces/karpenter/configmaps/other", false},
		{http.MethodPatch, "/api/v1/namespaces/default/configmaps/dovetail-shadow", false},
		{http.MethodPost, "/api/v1/namespaces/karpenter/configmaps", false},
		{http.MethodPost, "/apis/karpenter.sh/v1/nodeclaims", false},
		{http.MethodPatch, "/api/v1/nodes/a", false},
		{http.MethodPost, "/api/v1/namespaces/default/pods/a/eviction", false},
		{http.MethodPost, "/api/v1/namespaces/default/events", false},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/karpenter/leases/karpenter-leader-election", false},
		{http.MethodDelete, "/apis/karpenter.sh/v1/nodeclaims/a", false},
		{http.MethodPost, "/api/v1/namespaces/default/pods/a/proxy/tokenreviews", false},
		{http.MethodGet, "/api/v1/namespaces/default/pods/a/exec", false},
		{http.MethodGet, "/api/v1/nodes/a/proxy/run", false},
		{http.MethodGet, "/api/v1/namespaces/default/configmaps/proxy", true},
		{http.MethodPatch, "/proxy" + own, false},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			sent, counted := false, ""
			r := NewRefusals(slog.New(slog.DiscardHandler), func(target string) { counted = target })
			transport := r.Transport("karpenter", "/k8s/clusters/c-1/")(roundTripper(func(*http.Request) (*http.Response, error) {
				sent = true
				return httptest.NewRecorder().Result(), nil
			}))
			response, err := transport.RoundTrip(httptest.NewRequest(tc.method, "https://api/k8s/clusters/c-1"+tc.path, nil))
			if response != nil {
				response.Body.Close()
			}
			if sent != tc.passes || errors.Is(err, ErrRefused) == tc.passes || (r.Count() == 0) != tc.passes || (counted == "") != tc.passes {
				t.Errorf("sent: %v, error: %v, refused: %d, counted as %q", sent, err, r.Count(), counted)
			}
		})
	}
}
