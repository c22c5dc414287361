package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// logWriter writes each line to every path of --log-output-paths. What cannot be written to one of them is written to the
// others, and that it cannot be is said at the paths of --log-error-output-paths.
type logWriter struct {
	outputs, errors []io.Writer
	files           []io.Closer
}

func openLogs(cmd *cobra.Command, s settings.Settings) (*logWriter, error) {
	l := &logWriter{}
	var failed error
	open := func(flag, paths string) (out []io.Writer) {
		for path := range strings.SplitSeq(paths, ",") {
			switch path = strings.TrimSpace(path); path {
			case "":
			case "stdout":
				out = append(out, cmd.OutOrStdout())
			case "stderr":
				out = append(out, cmd.ErrOrStderr())
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
func (l *logWriter) Write(line []byte) (int, error) {
	for _, w := range l.outputs {
		if _, err := w.Write(line); err != nil {
			for _, e := range l.errors {
				_, _ = fmt.Fprintf(e, "write log: %v\n", err) // there is nobody left to tell
			}
		}
	}
	return len(line), nil
}

// Close closes the files.
func (l *logWriter) Close() error {
	var err error
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
