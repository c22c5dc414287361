package operator

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go/logging"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

func TestReleasingTheLeaseIsNotLoggedAsAnError(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, "info").With("logger", "x")
	log.Error("error received after stop sequence was engaged", "error", errors.New("leader election lost"))
	if out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
	log.Error("error received after stop sequence was engaged", "error", errors.New("disk full"))
	if !strings.Contains(out.String(), "disk full") {
		t.Error("a real failure while stopping was left out")
	}
}

// A start logs what it does, not one line for each controller and each of its sources. --log-level debug has them.
func TestAStartDoesNotLogEachController(t *testing.T) {
	for level, want := range map[string]int{"info": 1, "debug": 3} {
		var out bytes.Buffer
		log := NewLogger(&out, level)
		log.With("controller", "static").Info("Starting Controller")
		log.WithGroup("source").Info("Starting EventSource", "kind", "Pod")
		log.Info("starting", "workers", 3)
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("level %s: %d lines, want %d:\n%s", level, got, want, out.String())
		}
	}
}

// An end is one line of ours, not nine about what has to wait for what.
func TestAnEndDoesNotLogEachGroupOfControllers(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, "info")
	log.Info("Stopping and waiting for leader election runnables")
	log.Info("Wait completed, proceeding to shutdown the manager")
	log.Info("stopping")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"message":"stopping"`) {
		t.Errorf("logged: %s", got)
	}
}

func TestDurationsAreLoggedWithTheirUnit(t *testing.T) {
	var out bytes.Buffer
	NewLogger(&out, "info").With("a", 90*time.Second).WithGroup("g").Info("planned", "duration", 48171958*time.Nanosecond)
	if got := out.String(); !strings.Contains(got, `"a":"1m30s","g":{"duration":"48.171958ms"}`) {
		t.Errorf("logged: %s", got)
	}
}

// What is added to a logger is in its lines, and not in those of the logger that it was added to.
func TestAttributesAndGroups(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, "info")
	controller := log.With("controller", "a")
	one, other := controller.With("name", "one"), controller.WithGroup("object").With("name", "other")
	one.Info("first", "n", 1)
	other.Info("second", "n", 2)
	controller.With().WithGroup("").Info("third")
	for i, want := range []string{
		`"message":"first","controller":"a","name":"one","n":1}`,
		`"message":"second","controller":"a","object":{"name":"other","n":2}}`,
		`"message":"third","controller":"a"}`,
	} {
		if line := strings.Split(out.String(), "\n")[i]; !strings.HasSuffix(line, want) {
			t.Errorf("line %s, want the end %s", line, want)
		}
	}
}

// controller-runtime makes a logger for each reconcile, and most log nothing.
func BenchmarkLoggerThatLogsNothing(b *testing.B) {
	log := NewLogger(io.Discard, "info").With("controller", "a", "controllerGroup", "", "controllerKind", "Pod")
	b.ReportAllocs()
	for b.Loop() {
		log.With("namespace", "default", "name", "web-1", "reconcileID", "0b4d8a4f").Debug("Reconciling")
	}
}

func TestTheSDKLogsJSONToo(t *testing.T) {
	var out bytes.Buffer
	sdkLogger(NewLogger(&out, "info")).Logf(logging.Warn, "body of %s not read", "answer")
	if got := out.String(); !strings.Contains(got, `"message":"body of answer not read"`) || !strings.Contains(got, `"level":"WARN"`) {
		t.Errorf("logged: %s", got)
	}
}

func TestAnAnswerOfAWSThatIsNotReadToItsEndIsNoWarning(t *testing.T) {
	var out bytes.Buffer
	sdkLogger(NewLogger(&out, "info")).Logf(logging.Warn, "failed to discard remaining HTTP response body, this may affect connection reuse")
	if out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
}

func TestLogPaths(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dovetail.log")
	var out, errs bytes.Buffer
	logs, err := OpenLogs(&out, &errs, settings.Settings{LogOutputPaths: "stdout, " + file, LogErrorOutputPaths: "stderr"})
	if err != nil {
		t.Fatal(err)
	}
	NewLogger(logs, "info").Info("first")
	if err := logs.files[0].Close(); err != nil {
		t.Fatal(err)
	}
	NewLogger(logs, "info").Info("second")
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "first") || !strings.Contains(out.String(), "second") || !strings.Contains(string(written), "first") {
		t.Errorf("standard output has %q, the file %q", out.String(), written)
	}
	if !strings.Contains(errs.String(), "write log: ") {
		t.Errorf("that the file cannot be written is not said: %q", errs.String())
	}
}

func TestLogPathThatCannotBeOpened(t *testing.T) {
	_, err := OpenLogs(io.Discard, io.Discard, settings.Settings{LogOutputPaths: "/no/such/directory/log"})
	if err == nil || !strings.Contains(err.Error(), "--log-output-paths") {
		t.Errorf("error %v", err)
	}
}
