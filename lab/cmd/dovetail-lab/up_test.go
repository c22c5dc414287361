package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/docstest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// The section of README that begins with make lab has the commands that the banner suggests, line by line.
func TestBannerMatchesREADME(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Run it in the lab\n")
	section, _, ends := strings.Cut(section, "\n## ")
	if !found || !ends {
		t.Fatal("README has no section about the lab")
	}
	lines, err := docstest.Lines(strings.NewReader(section))
	if err != nil {
		t.Fatal(err)
	}
	var readme []string
	for _, line := range lines {
		if !strings.HasPrefix(line.Text, "make ") {
			readme = append(readme, line.Text)
		}
	}
	var banner []string
	for _, line := range welcome(upOptions{}, &world.World{Clusters: []*world.Cluster{{}}}, time.Second, "bin/dovetail-lab") {
		if command, indented := strings.CutPrefix(line, "  "); indented {
			banner = append(banner, command)
		}
	}
	if diff := cmp.Diff(readme, banner); diff != "" {
		t.Errorf("commands (-README +banner):\n%s", diff)
	}
}

func TestAsKarpenterRefusesFlagsThatDoNotGoWithIt(t *testing.T) {
	for _, flag := range []string{"--no-controller", "--clusters=2", "--nodes-from=10", "--pods-from=10", "--no-workload"} {
		t.Run(flag, func(t *testing.T) {
			cmd := newRoot()
			cmd.SetArgs([]string{"up", "--as-karpenter", flag})
			err := cmd.ExecuteContext(t.Context())
			name, _, _ := strings.Cut(flag, "=")
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "--as-karpenter and "+name+" do not go together: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}
