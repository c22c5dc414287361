package operator

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// reviewer is an API server that knows two tokens, and lets one of their users get /metrics.
func reviewer(w http.ResponseWriter, r *http.Request) {
	var token authenticationv1.TokenReview
	var access authorizationv1.SubjectAccessReview
	var answer any
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		if err := json.NewDecoder(r.Body).Decode(&token); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if user, known := map[string]string{"of-prometheus": "prometheus", "of-a-pod": "pod"}[token.Spec.Token]; known {
			token.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: user}}
		}
		answer = token
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		if err := json.NewDecoder(r.Body).Decode(&access); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		path := access.Spec.NonResourceAttributes
		access.Status.Allowed = access.Spec.User == "prometheus" && path != nil && path.Path == "/metrics" && path.Verb == "get"
		answer = access
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer) // the client reports it if it does not come
}

// serveMetrics serves as the controller does, and returns the address.
func serveMetrics(t *testing.T, s settings.Settings) string {
	t.Helper()
	registry, err := inventory.New(ctrlmetrics.Registry)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(reviewer))
	t.Cleanup(api.Close)
	server, err := metricsserver.NewServer(metricsOptions(s, registry), &rest.Config{Host: api.URL}, api.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	bound, ok := server.(interface{ GetBindAddr() string })
	if !ok {
		t.Fatalf("%T does not say where it listens", server)
	}
	err = wait.PollUntilContextTimeout(
		ctx,
		time.Millisecond,
		time.Minute,
		true,
		func(context.Context) (bool, error) { return bound.GetBindAddr() != "", nil },
	)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(bound.GetBindAddr(), "]:")
	return "127.0.0.1:" + port
}

// get returns the status and the text of a URL, requested with a bearer token if there is one. The certificate is signed by nobody.
func get(t *testing.T, url, token string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestSecureMetricsNeedAToken(t *testing.T) {
	address := serveMetrics(t, settings.Settings{MetricsSecure: true, EnableProfiling: true})
	for _, tt := range []struct {
		name, path, token string
		status            int // 0 for any that is no success
	}{
		{"no token", "/metrics", "", http.StatusUnauthorized},
		{"a token that the API server does not know", "/metrics", "made-up", 0},
		{"a client that may not", "/metrics", "of-a-pod", http.StatusForbidden},
		{"a client that may", "/metrics", "of-prometheus", http.StatusOK},
		{"profiles, by a client that may get metrics only", "/debug/pprof/", "of-prometheus", http.StatusForbidden},
		{"profiles without a token", "/debug/pprof/", "", http.StatusUnauthorized},
	} {
		status, text := get(t, "https://"+address+tt.path, tt.token)
		if tt.status != 0 && status != tt.status || tt.status == 0 && status < http.StatusBadRequest {
			t.Errorf("%s: status %d, want %d", tt.name, status, tt.status)
		}
		if served := strings.Contains(text, "go_goroutines") || strings.Contains(text, "full goroutine stack dump"); served != (status == http.StatusOK) {
			t.Errorf("%s: status %d with %.100q", tt.name, status, text)
		}
	}
	if status, text := get(t, "http://"+address+"/metrics", "of-prometheus"); status != http.StatusBadRequest ||
		strings.Contains(text, "go_goroutines") {
		t.Errorf("without TLS: status %d with %.100q", status, text)
	}
}

func TestMetricsAreOpenByDefault(t *testing.T) {
	if status, text := get(t, "http://"+serveMetrics(t, settings.Settings{})+"/metrics", ""); status != http.StatusOK ||
		!strings.Contains(text, "go_goroutines") {
		t.Errorf("status %d with %.100q", status, text)
	}
}
