package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/aws/smithy-go/logging"
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
	var handler slog.Handler = slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: lowest,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.MessageKey {
				a.Key = "message"
			}
			return a
		},
	})
	handler = orderly{handler}
	log := slog.New(handler)
	// The libraries' own logs: the client's klog and controller-runtime's, at the same place.
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(log)
	return log
}

// orderly leaves out what controller-runtime logs as an error whenever it is asked to stop: that it has given up
// the leader's lease, which is what it was asked for.
type orderly struct{ slog.Handler }

func (o orderly) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "error received after stop sequence was engaged" {
		expected := false
		r.Attrs(func(a slog.Attr) bool {
			expected = expected || a.Value.String() == "leader election lost"
			return !expected
		})
		if expected {
			return nil
		}
	}
	return o.Handler.Handle(ctx, r)
}

func (o orderly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return orderly{o.Handler.WithAttrs(attrs)}
}

func (o orderly) WithGroup(name string) slog.Handler { return orderly{o.Handler.WithGroup(name)} }

// sdkLogger puts what the AWS SDK has to say among the other logs.
func sdkLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(classification logging.Classification, format string, args ...any) {
		level := slog.LevelDebug
		if classification == logging.Warn {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, fmt.Sprintf(format, args...), "logger", "aws")
	})
}
