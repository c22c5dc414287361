package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// The controller stops when its context is canceled, whether or not its caches have synced.
func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	starting := func(context.Context) error { cancel(); <-never; return nil }
	refused := func(ctx context.Context) bool { <-ctx.Done(); return false }
	if err := run(ctx, starting, refused); err != nil {
		t.Errorf("caches not filled: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	filled, finished := make(chan struct{}), errors.New("lease given back")
	working := func(ctx context.Context) error { <-filled; cancel(); <-ctx.Done(); return finished }
	if err := run(ctx, working, func(context.Context) bool { defer close(filled); return true }); err != nil && !errors.Is(err, finished) {
		t.Errorf("at work: %v, want %v", err, finished)
	}

	failed := errors.New("cannot listen")
	if err := run(t.Context(), func(context.Context) error { return failed }, refused); !errors.Is(err, failed) {
		t.Errorf("fails by itself: %v, want %v", err, failed)
	}
}

func TestReachNamesMissingCRDs(t *testing.T) {
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	down := httptest.NewServer(nil)
	down.Close()
	for url, want := range map[string]string{
		empty.URL: "does not serve karpenter.sh/v1: apply the CRDs first",
		down.URL:  "reach the API server " + down.URL,
	} {
		if err := Reach(&rest.Config{Host: url}, settings.Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
