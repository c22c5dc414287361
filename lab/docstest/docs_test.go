package docstest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/docstest"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

const (
	// lineWithin is how long a command may take; a scenario takes a minute.
	lineWithin = 5 * time.Minute
	labWithin  = 2 * time.Minute
	endWithin  = 30 * time.Second
)

func TestCommandsOfTheDocuments(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(labtest.Root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	documents = append([]string{filepath.Join(labtest.Root, "README.md"), filepath.Join(labtest.Root, "CONTRIBUTING.md")}, documents...)
	r := &runner{}
	for _, path := range documents {
		name, err := filepath.Rel(labtest.Root, path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := docstest.Lines(file)
		_ = file.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, line := range lines {
			r.follow(t, fmt.Sprintf("%s:%d", name, line.Number), line.Text)
		}
		r.leave(t)
		r.read(t, path, name)
	}
	if r.followed == 0 || r.reads < 4 {
		t.Errorf("the documents hold only %d commands, and %d that read", r.followed, r.reads)
	}
	r.end(t)
}

// runner follows the documents.
type runner struct {
	lab         *labtest.Session // once it was booted
	environment []string         // what the lines so far have exported
	of          *runner          // what goes on after a document with a lab of its own
	followed    int
	reads       int
}

// read runs the commands of a document that only read a cluster; the lab's is the reader's.
func (r *runner) read(t *testing.T, path, name string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := docstest.Reads(file)
	_ = file.Close()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, line := range lines {
		r.reads++
		r.run(t, fmt.Sprintf("%s:%d", name, line.Number), "bin/dovetail-lab "+line.Text)
	}
}

// follow runs a line.
func (r *runner) follow(t *testing.T, place, line string) {
	r.followed++
	target, isMake := strings.CutPrefix(line, "make ")
	switch {
	case line == "make lab":
		dryRun(t, place, "lab")
		r.boot(t)
	case isMake:
		dryRun(t, place, target)
	case strings.HasPrefix(line, "bin/dovetail-lab up "):
		r.enter(t, strings.Fields(line)[1:])
	case strings.HasPrefix(line, "eval "):
		r.eval(t, place, line)
	default:
		r.run(t, place, line)
	}
}

// dryRun has make state what it would run.
func dryRun(t *testing.T, place, target string) {
	t.Run(place, func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "make", "-n", target)
		cmd.Dir = labtest.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	})
}

// boot runs what "make lab" does, up to where the reader goes on reading.
func (r *runner) boot(t *testing.T) {
	if r.lab != nil {
		return
	}
	r.lab = labtest.Start(t, "up")
	r.lab.Await(t, `eval "$(`, labWithin)
	r.lab.Await(t, "pods: 0 pending, 5 running", labWithin)
}

// enter boots a lab for the rest of a document, up to where the reader goes on in a second terminal.
func (r *runner) enter(t *testing.T, arguments []string) {
	r.leave(t)
	before := *r
	r.of, r.environment = &before, nil
	r.lab = labtest.Start(t, arguments...)
	r.lab.Await(t, `eval "$(`, labWithin)
	r.lab.Await(t, "pods: 0 pending", labWithin)
}

// leave stops the lab of a document, if it has one, as its reader does.
func (r *runner) leave(t *testing.T) {
	if r.of == nil {
		return
	}
	r.lab.InterruptAndCheck(t, endWithin)
	r.lab, r.environment, r.of = r.of.lab, r.of.environment, nil
}

// run runs a line as the reader's shell does.
func (r *runner) run(t *testing.T, place, line string) {
	t.Run(place, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lineWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
		cmd.Dir, cmd.Env = labtest.Root, append(os.Environ(), r.environment...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	})
}

// eval keeps for the lines that follow what a line exports, as the reader's shell does.
func (r *runner) eval(t *testing.T, place, line string) {
	t.Run(place, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lineWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line+"; env -0")
		cmd.Dir, cmd.Env = labtest.Root, append(os.Environ(), r.environment...)
		if r.lab != nil {
			cmd.Env = append(cmd.Env, "TMPDIR="+r.lab.Temp)
		}
		var said, notes bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &notes
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, notes.Bytes())
		}
		r.environment = slices.DeleteFunc(strings.Split(said.String(), "\x00"), func(v string) bool {
			return v == "" || strings.HasPrefix(v, "TMPDIR=")
		})
	})
}

// end stops the lab as the documents state: by Ctrl-C, and nothing is left.
func (r *runner) end(t *testing.T) {
	if r.lab == nil {
		t.Error("no document boots the lab")
		return
	}
	r.lab.InterruptAndCheck(t, endWithin)
}

func TestLines(t *testing.T) {
	got, err := docstest.Lines(strings.NewReader("" +
		"Run `make`:\n\n```sh\n# a comment\nmake lab\n\n  echo a \\\n  b\n```\n\n```yaml\nkind: NodePool\n```\n\n```sh\ntrue\n```\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []docstest.Line{{Number: 5, Text: "make lab"}, {Number: 7, Text: "echo a b"}, {Number: 16, Text: "true"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReads(t *testing.T) {
	got, err := docstest.Reads(strings.NewReader("```console\n$ kubectl get nodes \\\n    -o wide\nNAME  STATUS\n$ kubectl get pod POD\n" +
		"$ kubectl get nodes --watch\n$ kubectl delete nodes\n$ kubectl get x -o custom-columns='NAME:.metadata.name'\n```\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []docstest.Line{{Number: 2, Text: "kubectl get nodes -o wide"}, {Number: 8, Text: "kubectl get x -o custom-columns='NAME:.metadata.name'"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLinesOfBrokenDocuments(t *testing.T) {
	for _, tt := range []struct{ name, document, want string }{
		{"block without end", "text\n```sh\nmake\n", "line 2: the block does not end"},
		{"command without end", "```sh\nmake \\\n```\n", "line 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := docstest.Lines(strings.NewReader(tt.document))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
