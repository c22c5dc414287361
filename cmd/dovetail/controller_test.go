package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingKubeconfigIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nope")
	_, err := clusterConfig(func(string) string { return path })
	if err == nil || !strings.Contains(err.Error(), "KUBECONFIG") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names KUBECONFIG and %s", err, path)
	}
}

// A scheduler configuration that the scheduler rejects stops the start, and a plan, before anything is done.
func TestSchedulerConfigIsChecked(t *testing.T) {
	const bad = "--scheduler-config={podTopologySpread: {defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}"
	for _, args := range [][]string{{"controller", "--cluster-name=a", bad}, {"plan", "-f", "nowhere.yaml", bad}} {
		cmd := rootCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "maxSkew: 0 is not positive") {
			t.Errorf("%s: error %v", args[0], err)
		}
	}
}
