package main

import (
	"strings"
	"testing"
)

// Files are checked as a cluster is, as of the time of the snapshot; what is in AWS counts as not checked.
func TestDoctorOfFiles(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "shop") // of the shell: nothing to refuse
	stdout, _, err := command("", "doctor", "-f", "testdata/doctor.yaml")
	if codeOf(err) != exitError || !strings.Contains(stdout, "NodePool orphan") || !strings.Contains(stdout, "files have nothing of AWS") {
		t.Errorf("exit code %d:\n%s", codeOf(err), stdout)
	}
	document, _, err := command("", "doctor", "-f", "testdata/doctor.yaml", "-o", "json")
	if codeOf(err) != exitError {
		t.Errorf("exit code %d", codeOf(err))
	}
	if kind := checkDocument(t, document); kind != "Findings" {
		t.Errorf("kind %s", kind)
	}
	for _, args := range [][]string{{"--context", "a"}, {"--cluster-name", "a"}, {"--region", "eu-west-1"}, {"--all-contexts"}} {
		_, _, err := command("", append([]string{"doctor", "-f", "testdata/doctor.yaml"}, args...)...)
		if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "the cluster is either live or in files") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, _, err := command("", "doctor", "-f", "testdata/missing.yaml"); codeOf(err) != exitError {
		t.Errorf("a file that is missing: %v", err)
	}
}
