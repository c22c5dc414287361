package main

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// newLogger logs JSON with the keys that operators of autoscalers search for.
func newLogger(w io.Writer, level string) *slog.Logger {
	lowest := slog.LevelInfo
	switch level {
	case "debug":
		lowest = slog.LevelDebug
	case "error":
		lowest = slog.LevelError
	}
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: lowest,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.MessageKey {
				a.Key = "message"
			}
			return a
		},
	})
	log := slog.New(handler)
	// The libraries' own logs: the client's klog and controller-runtime's, at the same place.
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(log)
	return log
}
