// Package scenario tells stories: lists of named steps in a fresh world, each with a deadline, in which
// every wait is for something that a user could see.
//
// A story is data. Run boots a world, goes through the steps, and ends the world; what it returns says
// how long each took and, if one failed, everything that one would look at next.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Scenario is a story.
type Scenario struct {
	Name    string
	Summary string // one line
	// Long stories take minutes. Where several are told at a time they go first, so that none is waited for in the end.
	Long bool
	// Setting, if set, changes the world that the story is told in.
	Configure func(*world.Config)
	// Beside, if set, goes on beside the steps until its context ends; its error is the story's.
	Background func(ctx context.Context, w *World) error
	Steps  []Step
}

// Step is a part of a story. It has failed when Run returns an error, or not until Timeout.
type Step struct {
	Name    string
	Timeout time.Duration
	// Calm steps ask whether all has come right: no controller is killed meanwhile.
	PauseKills bool
	Run  func(ctx context.Context, w *World) error
}

// World is where a story takes place: a world of one cluster.
type World struct {
	*world.World
	*world.Cluster
	notes []string
}

// Note adds a fact to the report of the step that runs.
func (w *World) Note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// All are the stories, in the order in which they are best told: chaos with these seeds, and consolidate with so many nodes.
// Each call makes them anew; a story is told once.
func All(m Seeds, nodes int) []Scenario {
	return []Scenario{
		firstNode(), scaleUpDown(), nodePoolLimit(), reservedCapacity(), killedController(), volumeDetach(), immediateVolume(),
		roleNotMapped(), controllerRoleMapped(), uninitializedTaint(), nodeNeverReady(), doctor(), staticPool(), bootImageFamilies(), zonalShift(),
		emptyNodes(), expire(), repair(), spotInterruption(), consolidate(nodes), chaos(m), driftRollout(), badAMI(), twoClustersOneName(),
	}
}

// Result is how a story went.
type Result struct {
	Scenario string       `json:"scenario"`
	Passed   bool         `json:"passed"`
	Seconds  float64      `json:"seconds"`
	Steps    []StepResult `json:"steps"`
	// Interrupted is true when the story was ended from outside.
	Interrupted bool `json:"interrupted,omitempty"`
	// Evidence is what was there when a step failed, and StateDir where more of it is.
	Evidence []Evidence `json:"evidence,omitempty"`
	StateDir string     `json:"stateDir,omitempty"`
}

// StepResult is how a step went.
type StepResult struct {
	Name    string   `json:"name"`
	Passed  bool     `json:"passed"`
	Seconds float64  `json:"seconds"`
	Notes   []string `json:"notes,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Listener is told how a story goes, while it does.
type Listener interface {
	Begin(step string)
	End(StepResult)
}

const (
	bootTimeout = 2 * time.Minute
	closeTimeout  = time.Minute
)

// Run tells a story in a world of cfg. The error of a failed step is in the Result.
func Run(ctx context.Context, s Scenario, cfg world.Config, listener Listener) Result {
	begin := time.Now()
	t := &execution{listener: listener, result: Result{Scenario: s.Name, StateDir: cfg.Dir}}
	t.run(ctx, s, cfg)
	t.result.Seconds = time.Since(begin).Seconds()
	t.result.Passed = true
	for _, step := range t.result.Steps {
		t.result.Passed = t.result.Passed && step.Passed
	}
	return t.result
}

// telling is a story that is being told.
type execution struct {
	listener Listener
	result   Result
	world    *World
}

func (t *execution) run(ctx context.Context, s Scenario, cfg world.Config) {
	booted := t.step(ctx, Step{Name: "boot the world", Timeout: bootTimeout, Run: func(ctx context.Context, w *World) error {
		if s.Configure != nil {
			s.Configure(&cfg)
		}
		inside, err := world.Start(ctx, cfg)
		if err != nil {
			return err
		}
		w.World, w.Cluster = inside, inside.Clusters[0]
		return nil
	}})
	if !booted {
		t.result.Interrupted = ctx.Err() != nil
		return
	}
	defer func() {
		// In order even when the story was interrupted: nothing may be left.
		t.step(context.WithoutCancel(ctx), Step{Name: "end the world", Timeout: closeTimeout, Run: func(ctx context.Context, w *World) error {
			return errors.Join(w.Close(ctx), deniedCalls(w))
		}})
	}()
	alive, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	watch := func(what func(context.Context, *World) error, w *World) {
		beside.Go(func() {
			if err := what(alive, w); err != nil {
				cancel(err)
			}
		})
	}
	watch(func(ctx context.Context, w *World) error { return w.AwaitFailure(ctx) }, t.world)
	if s.Background != nil {
		watch(s.Background, &World{World: t.world.World, Cluster: t.world.Cluster})
	}
	defer func() {
		cancel(nil)
		beside.Wait()
	}()
	for _, step := range s.Steps {
		if t.step(alive, step) {
			continue
		}
		// Who interrupts a story knows why it did not come to its end.
		if t.result.Interrupted = ctx.Err() != nil; !t.result.Interrupted {
			t.result.Evidence = gatherEvidence(ctx, t.world)
		}
		return
	}
}

// deniedCalls is an error if a controller has called what its policy does not allow.
func deniedCalls(w *World) error {
	if refused := w.DeniedCalls(); len(refused) > 0 {
		return fmt.Errorf("calls that the controller's policy does not allow:\n%s", strings.Join(refused, "\n"))
	}
	return nil
}

// errStepTimeout is why a step that takes too long is ended.
var errStepTimeout = errors.New("the step took too long")

// step runs a step and reports it.
func (t *execution) step(ctx context.Context, s Step) bool {
	if t.world == nil {
		t.world = &World{}
	}
	t.world.notes = nil
	t.listener.Begin(s.Name)
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("%w: over %v", errStepTimeout, s.Timeout))
	defer cancel()
	err := s.Run(ctx, t.world)
	out := StepResult{Name: s.Name, Passed: err == nil, Seconds: time.Since(begin).Seconds(), Notes: t.world.notes}
	if err != nil {
		out.Error = err.Error()
	}
	t.result.Steps = append(t.result.Steps, out)
	t.listener.End(out)
	return out.Passed
}

// Silent is a Listener that says nothing.
type Silent struct{}

// Begin implements Listener.
func (Silent) Begin(string) {}

// End implements Listener.
func (Silent) End(StepResult) {}
