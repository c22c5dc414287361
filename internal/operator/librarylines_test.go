package operator

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// During an outage each object is tried again and again with the same error: the log has it once in ten minutes for each object.
func TestAnErrorThatRepeatsIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	log := logr.FromSlogHandler(NewLogger(&out, "info").Handler())
	reconcile := func(controller, name, err string) string {
		out.Reset()
		// As controller-runtime logs it.
		log.WithValues("controller", controller, "controllerKind", "Node").
			WithValues("namespace", "", "name", name, "reconcileID", "r"+err+name).Error(errors.New(err), "Reconciler error")
		return out.String()
	}
	for i, step := range []struct {
		controller, name, err string
		logged                bool
	}{
		{"node.termination", "a", "EC2 does not answer", true},
		{"node.termination", "a", "EC2 does not answer", false},
		{"node.termination", "b", "EC2 does not answer", true},
		{"node.repair", "a", "EC2 does not answer", true},
		{"node.termination", "a", "not allowed", true},
		{"node.termination", "a", "not allowed", false},
		{"node.termination", "a", "EC2 does not answer", false},
	} {
		line := reconcile(step.controller, step.name, step.err)
		if (line != "") != step.logged {
			t.Errorf("step %d: logged %q, want a line: %v", i, line, step.logged)
		}
		if step.logged && (!strings.Contains(line, `"level":"ERROR"`) || !strings.Contains(line, step.err)) {
			t.Errorf("step %d: logged %q", i, line)
		}
	}
}

func TestAnErrorIsLoggedAgainLater(t *testing.T) {
	var p repeats
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {9 * time.Minute, true}, {10 * time.Minute, false}, {11 * time.Minute, true}} {
		if got := p.repeat("a", start.Add(step.after)); got != step.want {
			t.Errorf("after %v: repeats %v, want %v", step.after, got, step.want)
		}
	}
	for i := range maxRepeats {
		p.repeat(fmt.Sprint(i), start)
	}
	if len(p.logged) > maxRepeats {
		t.Errorf("%d errors are remembered", len(p.logged))
	}
}

// With --log-level=debug nothing is left out.
func TestAnErrorThatRepeatsIsADetail(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewLogger(&out, "debug").Handler())
	for range 2 {
		log.With("controller", "node.termination", "name", "a").Error("Reconciler error", "err", "EC2 does not answer")
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"level":"DEBUG"`) {
		t.Errorf("logged %q", lines)
	}
}
