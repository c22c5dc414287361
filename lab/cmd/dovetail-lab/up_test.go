package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/docstest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// README has the commands that the banner suggests, line by line.
func TestBannerMatchesREADME(t *testing.T) {
	file, err := os.Open("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := docstest.Lines(file)
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
