package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestANamespaceThatCannotBeIsRefused(t *testing.T) {
	_, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--namespace", "Not A Namespace")
	if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("%v", err)
	}
}

// Prices of another region must not pass for those of one's own.
func TestPlanOfARegionWithoutPricesSaysWhoseItTakes(t *testing.T) {
	node := "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {topology.kubernetes.io/region: us-iso-east-1}}}"
	for args, want := range map[string]bool{"": true, "--region=eu-west-1": false} {
		_, stderr, err := command(node, append([]string{"plan", "-f", examplePool, "-f", exampleShop, "-f", "-"}, strings.Fields(args)...)...)
		if err != nil || strings.Contains(stderr, `in region "us-iso-east-1", of which nothing is known here`) != want {
			t.Errorf("%q: %v, notes:\n%s", args, err, stderr)
		}
	}
}

func TestOutputFileBehindALinkStaysBehindIt(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--output-file", link); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(target)
	if err != nil || !strings.Contains(string(text), "Total: ") {
		t.Errorf("the file behind the link has %q, %v", text, err)
	}
}
