package scenario

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/scenario/screen"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

func noEnvironment(string) string { return "" }

func TestStepsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		run := &execution{listener: NewReport(screen.NewPainter(&out, noEnvironment))}
		steps := []struct {
			step Step
			want bool
		}{
			{Step{Name: "launch a node", Timeout: time.Minute, Run: func(_ context.Context, w *World) error {
				time.Sleep(2500 * time.Millisecond)
				w.Note("%d node", 1)
				return nil
			}}, true},
			{Step{Name: "run a pod", Timeout: time.Minute, Run: func(context.Context, *World) error {
				return errors.New("1 of 2 pods run\nthe other does not")
			}}, false},
			{Step{Name: "wait", Timeout: time.Second, Run: notReadyYet}, false},
			{Step{Name: "wait exactly", Timeout: time.Second, Exact: true, Run: notReadyYet}, false},
		}
		for _, s := range steps {
			if got := run.step(t.Context(), s.step); got != s.want {
				t.Errorf("step %q: got %v", s.step.Name, got)
			}
		}
		want := `
  ✓    2.5 s  launch a node
              1 node
  ✗    0.0 s  run a pod
              1 of 2 pods run
              the other does not
  ✗    3.0 s  wait
              the node is not ready (the step took too long: over 3s)
  ✗    1.0 s  wait exactly
              the node is not ready (the step took too long: over 1s)
`
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func notReadyYet(ctx context.Context, _ *World) error {
	return world.Until(ctx, func() error { return errors.New("the node is not ready") })
}

func TestWorldDoesNotBoot(t *testing.T) {
	s := Scenario{Name: "s", Steps: []Step{{Name: "never", Run: func(context.Context, *World) error {
		t.Error("a step ran without a world")
		return nil
	}}}}
	result := Run(t.Context(), s, world.Config{Dir: t.TempDir(), Executable: "/nowhere/dovetail-lab"}, Silent{})
	if result.Passed || len(result.Steps) != 1 || !strings.Contains(result.Steps[0].Error, "/nowhere/dovetail-lab") {
		t.Errorf("got %+v", result)
	}
}

func TestResultOfAFailure(t *testing.T) {
	var out bytes.Buffer
	NewReport(screen.NewPainter(&out, noEnvironment)).Result(Result{
		Scenario: "first-node", Seconds: 12.34, StateDir: "/tmp/x",
		Evidence: []Evidence{{Title: "NodeClaims", Lines: []string{"a\n  Launched=False", "b"}}},
	})
	want := `
  NodeClaims:
    a
      Launched=False
    b

first-node: FAILED after 12.3 s; logs: /tmp/x
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each scenario has a unique name, a summary, and steps with timeouts.
func TestAllAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, s := range All(DefaultSeeds, DefaultFleet, DefaultOutage) {
		if s.Name == "" || s.Summary == "" || names[s.Name] {
			t.Errorf("scenario %q (%q): no name, no summary, or not unique", s.Name, s.Summary)
		}
		names[s.Name] = true
		_, otherwise := checkedOtherwise[s.Name]
		if s.Nightly != otherwise {
			t.Errorf("scenario %s: nightly %t, and checked otherwise %t", s.Name, s.Nightly, otherwise)
		}
		for _, step := range s.Steps {
			if step.Name == "" || step.Timeout <= 0 || step.Run == nil {
				t.Errorf("scenario %s, step %q: not complete", s.Name, step.Name)
			}
		}
	}
	for name := range checkedOtherwise {
		if !names[name] {
			t.Errorf("checkedOtherwise has %s, which is no scenario", name)
		}
	}
}
