package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the JSON of the commands that only read into testdata/readers; read the difference")

// assessedFiles is a cluster of seven nodes.
const assessedFiles = "testdata/assess.yaml"

// consolidatedAt is a decision of consolidationRecording that removes a node, launchedAt one that launches a node for two pods.
const (
	consolidatedAt = "c49e8f23-d970-4358-b25c-a58cdcc320c4"
	launchedAt     = "p-mx0sfhrb-0"
)

// Programs read the JSON of these commands: nobody changes it by accident. Everything that it depends on is in files, so that
// it has no times of its own. Prices change with the built-in catalog: -update writes the files anew.
func TestJSONOfReaders(t *testing.T) {
	at := []string{"--recording", consolidationRecording, "--at"}
	for name, args := range map[string][]string{
		"plan":                       {"plan", "-f", assessedFiles, "--no-timings"},
		"plan-consolidate":           {"plan", "-f", assessedFiles, "--no-timings", "--consolidate", "--explain-cost"},
		"assess":                     {"assess", "-f", assessedFiles},
		"top":                        {"top", "--once", "-f", assessedFiles},
		"instance-types":             {"instance-types", "-f", assessedFiles, "--nodepool", "general", "--limit", "2"},
		"explain-pod":                {"explain", "pod", "shop/web-7d9c4-0", "-f", assessedFiles},
		"explain-pod-pending":        {"explain", "pod", "shop/search-7d9c4-1", "-f", assessedFiles},
		"explain-node-going":         {"explain", "node", "ip-10-0-1-12", "-f", assessedFiles},
		"explain-node-stays":         {"explain", "node", "ip-10-0-2-21", "-f", assessedFiles},
		"explain-nodepool":           {"explain", "nodepool", "general", "-f", assessedFiles},
		"recorded-pod":               append([]string{"explain", "pod", "default/front-7d6569b58f-tx6r6"}, append(at, launchedAt)...),
		"recorded-node-going":        append([]string{"explain", "node", "ip-10-0-32-17.ec2.internal"}, append(at, consolidatedAt)...),
		"recorded-node-stays":        append([]string{"explain", "node", "ip-10-0-32-23.ec2.internal"}, append(at, consolidatedAt)...),
		"recorded-nodepool":          append([]string{"explain", "nodepool", "default"}, append(at, consolidatedAt)...),
		"recording-list":             {"recording", "list", "-f", consolidationRecording, "--since", "3m"},
		"recording-show-launch":      {"recording", "show", launchedAt, "-f", consolidationRecording},
		"recording-show-consolidate": {"recording", "show", consolidatedAt, "-f", consolidationRecording},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "readers", name+".json")
			got := succeed(t, append(args, "-o", "json")...)
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("dovetail %v -o json does not print %s (-want +got); go test ./cmd/dovetail -run JSONOfReaders -update writes it:\n%s",
					args, path, diff)
			}
		})
	}
}
