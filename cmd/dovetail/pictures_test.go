package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/terminalpicture"
)

// Pictures of the documentation show what commands print. UPDATE=1 draws them anew.
func TestPictures(t *testing.T) {
	for file, c := range map[string]struct {
		// args are the args of the test, shown are those of a user.
		args        []string
		shown       string
		description string
		// lines are the lines that are shown, all if it is 0; columns is the width of the terminal.
		lines, columns int
	}{
		"explain-pod.svg": {
			args:  []string{"explain", "pod", "ml/train-0", "-f", "../../examples/explain"},
			shown: "dovetail explain pod ml/train-0",
			description: "The pod is pending, since it does not tolerate a taint of NodePool gpu. The smallest change is a toleration, with the " +
				"command that adds it and the node that the pod then gets.",
		},
		"explain-node.svg": {
			args:  []string{"explain", "node", "ip-10-0-12-4.ec2.internal", "-f", "../../examples/nodes"},
			shown: "dovetail explain node ip-10-0-12-4.ec2.internal | head -18",
			lines: 18,
			description: "The node stays, since a PodDisruptionBudget allows no disruption. What lifts it, what would be launched if the node were " +
				"removed, and what that would save.",
		},
		"assess.svg": {
			args:  []string{"assess", "-f", "testdata/assess.yaml"},
			shown: "dovetail assess | head -43",
			lines: 43,
			description: "What a cluster costs now, consolidated with and without its protections, and at least; then the moves in their order, and " +
				"what the protections cost.",
			columns: 88,
		},
		"recording.svg": {
			args: []string{
				"recording", "show", "c49e8f23-d970-4358-b25c-a58cdcc320c4", "-f", "../../internal/recorder/replay/testdata/consolidate.rec",
			},
			shown: "dovetail recording show c49e8f23-d970-4358-b25c-a58cdcc320c4 -f decisions.rec",
			description: "A decision of the recording: the rule with its numbers, the node that was removed and where its pod went, the " +
				"alternatives and why not, and each step of the outcome with its time.",
			columns: 132,
		},
	} {
		t.Run(file, func(t *testing.T) {
			stdout, stderr, err := command("", c.args...)
			if err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			if c.lines > 0 {
				stdout = strings.Join(strings.SplitAfterN(stdout, "\n", c.lines+1)[:c.lines], "")
			}
			checkPicture(t, file, terminalpicture.Picture{
				Command: c.shown, Description: c.description, Screen: stdout, Columns: cmp.Or(c.columns, 96),
			})
		})
	}
}

// The picture of docs/mcp.md is a call of an agent, and the answer.
func TestPictureOfACall(t *testing.T) {
	a := newAgent(t, "-f", "../../examples/explain", "--region", "us-east-1")
	arguments := map[string]any{"namespace": "ml", "name": "train-0"}
	answer, failed := a.call(t, "explain_pod", arguments)
	call, err := json.Marshal(arguments)
	if failed || err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	checkPicture(t, "mcp.svg", terminalpicture.Picture{
		Command: "dovetail mcp", Columns: 132, Screen: "explain_pod " + string(call) + "\n\n" + answer,
		Description: "A call of the tool explain_pod, and its answer: why the pod is pending, and the smallest change that makes it run.",
	})
}

// checkPicture compares a picture with that of the documentation, or draws that anew.
func checkPicture(t *testing.T, file string, p terminalpicture.Picture) {
	t.Helper()
	got, path := p.SVG(), filepath.Join("..", "..", "docs", "pictures", file)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s shows something else than the command prints; UPDATE=1 draws it anew (-want +got):\n%s", path, diff)
	}
}
