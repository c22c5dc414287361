package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario"
)

func TestFlagsOfMetricsAreChecked(t *testing.T) {
	one := []scenario.Scenario{{}}
	for _, tt := range []struct {
		name    string
		options metricsOptions
		all     []scenario.Scenario
		want    string // empty for no error
	}{
		{"none", metricsOptions{interval: time.Second}, []scenario.Scenario{{}, {}}, ""},
		{"a file", metricsOptions{out: "x", match: "a|b", interval: time.Second}, one, ""},
		{"names without a file", metricsOptions{match: "a", interval: time.Second}, one, "needs --metrics-out"},
		{"several scenarios", metricsOptions{out: "x", interval: time.Second}, []scenario.Scenario{{}, {}}, "one scenario, not 2"},
		{"no interval", metricsOptions{out: "x"}, one, "must be positive"},
		{"no expression", metricsOptions{out: "x", match: "(", interval: time.Second}, one, "missing closing )"},
	} {
		err := tt.options.check(tt.all)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

type text string

func (s text) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(s))
	return int64(n), err
}

func TestMetricsAreCompressedByName(t *testing.T) {
	plain, compressed := filepath.Join(t.TempDir(), "m.om"), filepath.Join(t.TempDir(), "m.om.gz")
	for _, path := range []string{plain, compressed} {
		if err := writeMetrics(path, text("# EOF\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(plain); err != nil || string(got) != "# EOF\n" {
		t.Errorf("plain: %q, %v", got, err)
	}
	file, err := os.Open(compressed)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "# EOF\n" {
		t.Errorf("compressed: %q, %v", got, err)
	}
	if err := writeMetrics(filepath.Join(t.TempDir(), "missing", "m.om"), text("")); err == nil {
		t.Error("a file in a missing directory was written")
	}
}
