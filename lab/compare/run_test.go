package compare_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/compare"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// The timeouts are far above the usual durations, for hosts under load.
const (
	runWithin  = 8 * time.Minute
	bootWithin = 5 * time.Minute
	endWithin  = 30 * time.Second
)

// dovetail is the product's binary.
func dovetail(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("DOVETAIL"); path != "" {
		return path
	}
	path, err := filepath.Abs(filepath.Join(labtest.Root, "bin", "dovetail"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Dovetail compared with itself launches the same nodes at the same price, with its own environment and with that of Karpenter's chart.
func TestCompareWithItself(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "compare", "--other", dovetail(t), "--argument", "controller", "--name", "itself", "--workload", "launch", "-o", "json")
	if code := s.Wait(t, runWithin); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, s.Output())
	}
	_, text, found := strings.Cut(s.Output(), "\n{") // progress comes before
	var report compare.Report
	if err := json.Unmarshal([]byte("{"+text), &report); err != nil || !found {
		t.Fatalf("%v in:\n%s", err, s.Output())
	}
	if len(report.Results) != 2 {
		t.Fatalf("%d results, want 2:\n%s", len(report.Results), s.Output())
	}
	ours, other := report.Results[0], report.Results[1]
	if ours.Controller != compare.Dovetail || other.Controller != "itself" || ours.Workload != "launch" {
		t.Errorf("the results are of %s and %s with %s", ours.Controller, other.Controller, ours.Workload)
	}
	if ours.Nodes == 0 || ours.HourlyCost == 0 || ours.Nodes != other.Nodes || ours.HourlyCost != other.HourlyCost {
		t.Errorf("%d nodes for $%.3f/h, and %d for $%.3f/h", ours.Nodes, ours.HourlyCost, other.Nodes, other.HourlyCost)
	}
	for _, r := range report.Results {
		if r.Failed != "" || r.Evictions != 0 || r.PendingP50 <= 0 || r.PendingP95 < r.PendingP50 || r.CPUSeconds <= 0 || r.PeakMiB < 10 {
			t.Errorf("%+v", r)
		}
	}
	s.CheckCleanedUp(t, nil)
}

// A controller that exits is a failed result, and the exit code is 1.
func TestCompareStatesWhyAControllerFailed(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "controller")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho no settings for $CLUSTER_NAME\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := labtest.Start(t, "compare", "--other", other, "--workload", "launch")
	if code := s.Wait(t, runWithin); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"failed: launch with controller: ", "exit status 3", "no settings for lab", "1 runs have not come to their end"} {
		if !strings.Contains(s.Output(), want) {
			t.Errorf("%q is not in:\n%s", want, s.Output())
		}
	}
	s.CheckCleanedUp(t, nil)
}

func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "compare", "--other", dovetail(t), "--argument", "controller")
	s.Await(t, "launch with dovetail", bootWithin)
	s.Signal(t, syscall.SIGINT)
	if code := s.Wait(t, endWithin); code != 1 || !strings.Contains(s.Output(), "interrupted") {
		t.Errorf("exit code %d:\n%s", code, s.Output())
	}
	s.CheckCleanedUp(t, nil)
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no binary", nil, "--other is required"},
		{"a directory", []string{"--other", t.TempDir()}, "it is no executable file"},
		{"an unknown workload", []string{"--other", dovetail(t), "--workload", "lunch"}, `--workload "lunch" is none of:`},
		{"a name with a slash", []string{"--other", dovetail(t), "--name", "a/b"}, "must be one word without slashes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := labtest.Start(t, append([]string{"compare"}, tt.args...)...)
			if code := s.Wait(t, endWithin); code != 2 || !strings.Contains(s.Output(), tt.want) {
				t.Errorf("exit code %d:\n%s", code, s.Output())
			}
		})
	}
}

// Without a binary, make states in one line what to give, before it builds anything.
func TestMakeCompareNeedsABinary(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "make", "--silent", "compare", "KARPENTER=")
	cmd.Dir = labtest.Root
	out, err := cmd.CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	if err == nil || !strings.HasPrefix(first, "make compare: ") || !strings.Contains(first, "make compare KARPENTER=/tmp/karpenter/controller") {
		t.Errorf("%v:\n%s", err, out)
	}
	if strings.Contains(string(out), "go build") {
		t.Errorf("it builds first:\n%s", out)
	}
}
