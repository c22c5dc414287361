package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/aws/smithy-go/logging"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// NewLogger logs JSON with the keys of Karpenter's logs.
func NewLogger(w io.Writer, level string) *slog.Logger {
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
			switch {
			case len(groups) == 0 && a.Key == slog.MessageKey:
				a.Key = "message"
			case a.Value.Kind() == slog.KindDuration:
				a.Value = slog.StringValue(a.Value.Duration().String()) // "48.2ms" can be read, 48171958 cannot
			}
			return a
		},
	})
	handler = lazyHandler{base: newLibraryLines(handler)}
	log := slog.New(handler)
	// The libraries' own logs: the client's klog and controller-runtime's, at the same place.
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(log)
	return log
}

// lazyHandler adds attributes and groups to base when a line is logged. controller-runtime makes a logger with five attributes for each
// reconcile, and hardly any of them logs a line.
type lazyHandler struct {
	base slog.Handler
	// last holds what was added last; nil if nothing was.
	last *added
}

// added are attributes, or a group if there are none, and what was added before.
type added struct {
	before *added
	attrs  []slog.Attr
	group  string
}

// Enabled implements slog.Handler.
func (h lazyHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.base.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h lazyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return lazyHandler{h.base, &added{before: h.last, attrs: attrs}}
}

// WithGroup implements slog.Handler.
func (h lazyHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return lazyHandler{h.base, &added{before: h.last, group: name}}
}

// Handle implements slog.Handler.
func (h lazyHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.last.to(h.base).Handle(ctx, r)
}

// to adds to a handler what was added, in the order in which it was.
func (a *added) to(base slog.Handler) slog.Handler {
	switch {
	case a == nil:
		return base
	case len(a.attrs) > 0:
		return a.before.to(base).WithAttrs(a.attrs)
	}
	return a.before.to(base).WithGroup(a.group)
}

// unreadAnswer begins the SDK's warning that a connection was closed before the whole answer had been read. It costs a new connection at
// most, and anyone who sent the request has the error.
const unreadAnswer = "failed to discard remaining HTTP response body"

// sdkLogger writes the logs of the AWS SDK to the controller's log.
func sdkLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(classification logging.Classification, format string, args ...any) {
		level := slog.LevelDebug
		if classification == logging.Warn && !strings.HasPrefix(format, unreadAnswer) {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, fmt.Sprintf(format, args...), "logger", "aws")
	})
}

// LogWriter writes each line to every path of --log-output-paths. If one of them fails, the others still get the line, and the error
// goes to the paths of --log-error-output-paths.
type LogWriter struct {
	outputs, errors []io.Writer
	files           []io.Closer
}

// OpenLogs opens what the settings name. The paths stdout and stderr are the writers given.
func OpenLogs(stdout, stderr io.Writer, s settings.Settings) (*LogWriter, error) {
	l := &LogWriter{}
	var failed error
	open := func(flag, paths string) (out []io.Writer) {
		for path := range strings.SplitSeq(paths, ",") {
			switch path = strings.TrimSpace(path); path {
			case "":
			case "stdout":
				out = append(out, stdout)
			case "stderr":
				out = append(out, stderr)
			default:
				file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("--%s: %w", flag, err))
					continue
				}
				l.files, out = append(l.files, file), append(out, file)
			}
		}
		return out
	}
	l.outputs = open("log-output-paths", s.LogOutputPaths)
	l.errors = open("log-error-output-paths", s.LogErrorOutputPaths)
	if failed != nil {
		return nil, errors.Join(failed, l.Close())
	}
	return l, nil
}

// Write implements io.Writer. It is called for one line at a time.
func (l *LogWriter) Write(line []byte) (int, error) {
	for _, w := range l.outputs {
		if _, err := w.Write(line); err != nil {
			for _, e := range l.errors {
				_, _ = fmt.Fprintf(e, "write log: %v\n", err) // there is no other place to report to
			}
		}
	}
	return len(line), nil
}

// Close closes the files.
func (l *LogWriter) Close() error {
	var err error
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
