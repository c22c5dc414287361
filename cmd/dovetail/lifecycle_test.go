package main

import (
	"strings"
	"testing"
)

// Over files, the gate is a flag, as others are: of two empty nodes the one with a planned maintenance goes first.
func TestPlannedMaintenanceOverFiles(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		goes  string
		stays string
	}{
		{nil, "  a     general", "  b: the node is empty"},
		{[]string{"--node-lifecycle-conditions"}, "  b     general", "  a: the node is empty"},
	} {
		plan := []string{"plan", "-f", "testdata/maintenance.yaml", "--consolidate", "--no-timings"}
		stdout, stderr, err := command("", append(plan, tt.flags...)...)
		if err != nil || !strings.Contains(stdout, tt.goes) || !strings.Contains(stdout, tt.stays) {
			t.Errorf("%v: error %v, %s\n%s", tt.flags, err, stderr, stdout)
		}
		stdout, stderr, err = command("", append([]string{"explain", "node", "a", "-f", "testdata/maintenance.yaml"}, tt.flags...)...)
		if err != nil || strings.Contains(stdout, "budget") != (tt.flags != nil) {
			t.Errorf("explain node a, %v: error %v, %s\n%s", tt.flags, err, stderr, stdout)
		}
	}
}
