package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// A process that starts while the API server is away waits for it, alive and not ready, and stops with its context.
func TestStartWaitsForTheAPIServer(t *testing.T) {
	s := settings.Settings{BindAddress: "127.0.0.1", HealthProbePort: freePort(t)}
	probe := func(path string) int {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", s.HealthProbePort, path))
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	denied := errors.New("does not serve karpenter.sh/v1")
	for _, last := range []error{nil, denied} {
		attempts := 0
		err := await(t.Context(), s, slog.New(slog.DiscardHandler), func() error {
			if attempts++; attempts == 1 {
				return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			if alive, ready := probe("/healthz"), probe("/readyz"); alive != 200 || ready != 500 {
				t.Errorf("while it waits, /healthz is %d, /readyz %d", alive, ready)
			}
			return last
		})
		if !errors.Is(err, last) || attempts != 2 {
			t.Errorf("error %v after %d attempts, want %v", err, attempts, last)
		}
		if probe("/healthz") != 0 {
			t.Error("the probes are served by a process that does not wait anymore")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	away := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	if err := await(ctx, s, slog.New(slog.DiscardHandler), func() error { cancel(); return away }); !errors.Is(err, away) {
		t.Errorf("stopped: %v", err)
	}
}

// The start waits for what passes by itself, and not for what a person has to correct.
func TestUnreachableAPIServers(t *testing.T) {
	for code, want := range map[int]bool{500: true, 503: true, 429: true, 504: true, 401: false, 403: false, 404: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		err := Reach(&rest.Config{Host: server.URL}, settings.Settings{})
		server.Close()
		if err == nil || unreachable(err) != want {
			t.Errorf("%d: %v; unreachable: %v", code, err, unreachable(err))
		}
	}
	unresolved := &net.DNSError{Err: "no such host", Name: "api.example.com", IsNotFound: true}
	if !unreachable(fmt.Errorf("reach the API server: %w", unresolved)) {
		t.Error("a name that does not resolve is not waited for")
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
