package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// reachPause is the pause between two attempts to reach the API server: it doubles from a second to ten.
var reachPause = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Cap: 10 * time.Second, Steps: math.MaxInt}

// unreachable reports whether an API server gave no answer, or one that it failed: it may answer later without anybody's help.
func unreachable(err error) bool {
	var network net.Error
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || errors.As(err, &network)
}

// await calls reach until the API server answers, and returns its error otherwise. Meanwhile the process is alive, and not ready: one that
// exits would be started later and later, up to five minutes after the API server is back.
func await(ctx context.Context, s settings.Settings, log *slog.Logger, reach func() error) error {
	err := reach()
	if err == nil || !unreachable(err) {
		return err
	}
	stop, serving := serveWaiting(s)
	if serving != nil {
		return serving
	}
	defer stop()
	log.Warn("the API server does not answer; trying again until it does", "error", err)
	began := time.Now()
	for pause := reachPause; ; {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause.Step()):
		}
		if err = reach(); err == nil || !unreachable(err) {
			log.Info("the API server answers", "after", time.Since(began).Round(time.Second).String())
			return err
		}
	}
}

// serveWaiting serves the probes of a process that has not reached the API server yet, until it is stopped.
func serveWaiting(s settings.Settings) (stop func(), err error) {
	listener, err := listenForProbes(s)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "[-]kube-apiserver does not answer\nreadyz check failed", http.StatusInternalServerError)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // returns when it is stopped
	return func() { _ = server.Close() }, nil
}
