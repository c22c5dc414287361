// Package scenario holds the lab's end-to-end scenarios: lists of named steps in a fresh world, each with a timeout.
// Every step waits for something that a user could see.
//
// A scenario is data. Run boots a world, runs the steps, and closes the world. The result has the duration of each
// step and, if one failed, the evidence that an engineer would look at next.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Scenario is an ordered list of steps, run in a world of its own.
type Scenario struct {
	Name    string
	Summary string // one line
	// Long scenarios take minutes. Parallel runs start them first, so that no long one runs alone at the end.
	Long bool
	// Nightly scenarios are not part of make test: see checkedOtherwise.
	Nightly bool
	// Configure, if set, changes the configuration of the scenario's world.
	Configure func(*world.Config)
	// Background, if set, runs beside the steps until its context is done. Its error fails the scenario.
	Background    func(ctx context.Context, w *World) error
	TimeoutFactor TimeoutFactor
	// RealPace is for a scenario that a faster controller makes longer, or about the pace of other components.
	RealPace bool
	// PlantsRefusals is for a scenario that makes nodes refuse the pods that they are launched for: others fail if a pod gets a second
	// node while its first is ready and empty.
	PlantsRefusals bool
	Steps          []Step
}

// Step is one step of a scenario. It fails if Run returns an error or does not return in time.
type Step struct {
	Name string
	// Timeout is the longest that the step may take on an idle computer. Elsewhere it may take TimeoutFactor times as long, unless it
	// is Exact.
	Timeout time.Duration
	// Exact is for a step with a Timeout that is what it asserts.
	Exact bool
	// PauseKills stops the random kills of --kill-controller during a step that checks the outcome.
	PauseKills bool
	Run        func(ctx context.Context, w *World) error
}

// World is the world of a scenario, seen from one of its clusters.
type World struct {
	*world.World
	*world.Cluster
	notes []string
}

// Note adds a measurement to the report of the current step.
func (w *World) Note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// Fleet is how the scenarios with many nodes run.
type Fleet struct {
	// Nodes is the size of the fleets of consolidate, one-per-node, two-clusters-one-name (half in each cluster) and drift-rollout (a
	// quarter, at least 20).
	Nodes int
	// Settle is how long the cluster of consolidate must not change to count as settled.
	Settle time.Duration
	// Pace is that of the controller: steps that wait for what it must not do after a while wait that much less. 0 stands for 1.
	Pace int
}

// paced is how long a wait of the controller takes that takes d at the real pace.
func (f Fleet) paced(d time.Duration) time.Duration { return d / time.Duration(max(1, f.Pace)) }

// DefaultFleet is a fleet of 200 nodes. It counts as settled after less than a consolidation pass with a result takes.
var DefaultFleet = Fleet{Nodes: 200, Settle: 45 * time.Second}

// All returns the scenarios in their usual order. chaos and scheduler-agrees run with the given seeds, and the outage is that of
// start-without-aws. A Scenario holds state and runs once, so each call returns new ones.
func All(m Seeds, fleet Fleet, outage []string) []Scenario {
	all := []Scenario{
		firstNode(), scaleUpDown(), onePerNode(fleet.Nodes), nodePoolLimit(), reservedCapacity(), killedController(),
		volumeDetach(), immediateVolume(),
		roleNotMapped(), controllerRoleMapped(), uninitializedTaint(), nodeNeverReady(), refusedNodes(fleet),
		gang(), gangWithoutCapacity(), gangTopology(), gangNotServed(), doctor(), staticPool(),
		bootImageFamilies(), zonalShift(), startWithoutAWS(outage), draFromZero(), draExtendedResource(),
		csiDriverLate(), podNominatedStale(), localStorage(), schedulerAgrees(m), migrateCheck(), takeover(), handBack(), shadowMode(),
		emptyNodes(), expire(), softExpiry(),
		blastRadius(), repair(), rebootForRepair(), terminateFirst(), deletionCost(), nodeLifecycle(), spotInterruption(),
		consolidate(fleet), chaos(m), driftRollout(fleet.Nodes), surgeDrain(fleet.Nodes), badAMI(fleet), imageFailsLater(),
		canary(), rollback(), badRollouts(fleet),
		twoClustersOneName(fleet.Nodes),
	}
	all = append(all, append(awsDown(), apiServerDown(fleet))...)
	for i := range all {
		_, all[i].Nightly = checkedOtherwise[all[i].Name]
	}
	return all
}

// checkedOtherwise are the nightly scenarios, and what checks the same in make test.
var checkedOtherwise = map[string]string{
	"scale-up-down":         "killed-controller and one-per-node scale up, consolidate down",
	"empty-nodes":           "consolidate removes empty nodes first",
	"expire":                "two-clusters-one-name expires nodes; unit tests of expiration and drains",
	"reboot-for-repair":     "repair, and unit tests of the reboot",
	"deletion-cost":         "unit tests of the costs",
	"dra-from-zero":         "unit tests with the scheduler's allocator",
	"gang":                  "worlds with GangScheduling of kube-scheduler; unit tests of the edge cases",
	"gang-without-capacity": "unit tests of plans and nominations of gangs",
	"gang-topology":         "worlds with TopologyPlacementGenerator of kube-scheduler; unit tests of domains",
	"gang-not-served":       "unit tests of clusters without PodGroups",
	"pod-nominated-stale":   "unit tests of nominated pods, and the plans that kube-scheduler's filters accept",
	"zonal-shift":           "tests of the AWS adapter against the simulator",
	"migrate-check":         "takeover runs the same checks; unit tests of each finding",
	"chaos":                 "one seed in the tests of the documentation's commands",
	"api-server-down":       "unit tests of the start without an API server; one seed of chaos crashes it in the tests of the documentation",
	"aws-down-restart":      "start-without-aws restarts; aws-down has each API fail; unit tests of what is kept",
	"aws-down-slow":         "aws-down has each API fail; unit tests of the time that a call may take",
	"aws-down-throttled":    "aws-down has each API fail; unit tests of the rate limits",
	"canary":                "unit tests of waves, soaks and the comparison of pods; rollback pauses a roll-out",
	"bad-rollouts":          "unit tests of the evidence; rollback pauses a roll-out",
	"image-fails-later":     "unit tests of the soak and the breaker; bad-ami pauses a pool",
}

// Result is the outcome of a scenario.
type Result struct {
	Scenario string       `json:"scenario"`
	Passed   bool         `json:"passed"`
	Seconds  float64      `json:"seconds"`
	Steps    []StepResult `json:"steps"`
	// Interrupted is true if the caller canceled the scenario.
	Interrupted bool `json:"interrupted,omitempty"`
	// Evidence is the state of the world when a step failed. StateDir holds the logs.
	Evidence []Evidence `json:"evidence,omitempty"`
	StateDir string     `json:"stateDir,omitempty"`
}

// StepResult is the outcome of a step.
type StepResult struct {
	Name    string   `json:"name"`
	Passed  bool     `json:"passed"`
	Seconds float64  `json:"seconds"`
	Notes   []string `json:"notes,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Listener receives the progress of a scenario.
type Listener interface {
	Begin(step string)
	End(StepResult)
}

const (
	bootTimeout  = 2 * time.Minute
	closeTimeout = time.Minute
	// replayTimeout is for the recording of the longest scenario, on a busy computer.
	replayTimeout = 10 * time.Minute
)

// Run runs a scenario in a world of cfg. The error of a failed step is in the Result.
func Run(ctx context.Context, s Scenario, cfg world.Config, listener Listener) Result {
	begin := time.Now()
	e := &execution{listener: listener, timeoutFactor: s.TimeoutFactor, result: Result{Scenario: s.Name, StateDir: cfg.Dir}}
	e.run(ctx, s, cfg)
	e.result.Seconds = time.Since(begin).Seconds()
	e.result.Passed = true
	for _, step := range e.result.Steps {
		e.result.Passed = e.result.Passed && step.Passed
	}
	return e.result
}

// execution is one run of a scenario.
type execution struct {
	listener      Listener
	timeoutFactor TimeoutFactor
	result        Result
	world         *World
}

func (e *execution) run(ctx context.Context, s Scenario, cfg world.Config) {
	booted := e.step(ctx, Step{Name: "boot the world", Timeout: bootTimeout, Run: func(ctx context.Context, w *World) error {
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
		e.result.Interrupted = ctx.Err() != nil
		return
	}
	defer func() {
		// An interrupted scenario, too, must leave no process behind.
		e.step(
			context.WithoutCancel(ctx),
			Step{Name: "close the world", Timeout: closeTimeout, Run: func(ctx context.Context, w *World) error {
				return errors.Join(w.Close(ctx), deniedCalls(w))
			}},
		)
		if !e.result.Interrupted && recorded(e.world) {
			e.step(context.WithoutCancel(ctx), Step{Name: "replay every decision", Timeout: replayTimeout, Run: replayDecisions})
		}
	}()
	loops := newLoopDetector()
	loops.watch(e.world)
	alive, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	watch := func(run func(context.Context, *World) error, w *World) {
		beside.Go(func() {
			if err := run(alive, w); err != nil {
				cancel(err)
			}
		})
	}
	watch(func(ctx context.Context, w *World) error { return w.AwaitFailure(ctx) }, e.world)
	if s.Background != nil {
		watch(s.Background, &World{World: e.world.World, Cluster: e.world.Cluster})
	}
	defer func() {
		cancel(nil)
		beside.Wait()
	}()
	for _, step := range s.Steps {
		if e.step(alive, step) {
			continue
		}
		// An interrupted scenario needs no evidence.
		if e.result.Interrupted = ctx.Err() != nil; !e.result.Interrupted {
			e.result.Evidence = gatherEvidence(ctx, e.world)
		}
		return
	}
	e.step(alive, loops.step(s.PlantsRefusals))
}

// recorded reports whether a controller has recorded decisions.
func recorded(w *World) bool {
	return w.World != nil && slices.ContainsFunc(w.Clusters, func(c *world.Cluster) bool {
		_, err := os.Stat(c.Recording())
		return err == nil
	})
}

// replayDecisions replays what the controllers of all clusters have recorded: the engine must decide the same again.
func replayDecisions(ctx context.Context, w *World) error {
	var errs []error
	for _, c := range w.Clusters {
		summary, err := c.Replay(ctx)
		if errs = append(errs, err); summary != "" {
			w.Note("%s: %s", c.Name, summary)
		}
	}
	return errors.Join(errs...)
}

// deniedCalls returns an error if a controller made a call that its IAM policy does not allow.
func deniedCalls(w *World) error {
	if denied := w.DeniedCalls(); len(denied) > 0 {
		return fmt.Errorf("the controller's IAM policy does not allow these calls:\n%s", strings.Join(denied, "\n"))
	}
	return nil
}

// TimeoutFactor is how many times as long a step may take on a computer that does other things as well: a timeout stops what hangs, and
// does not measure the computer. Zero means DefaultTimeoutFactor.
type TimeoutFactor int

// DefaultTimeoutFactor is for a computer that runs three scenarios at a time, and compiles.
const DefaultTimeoutFactor TimeoutFactor = 3

// limit is the longest that the step may take.
func (f TimeoutFactor) limit(s Step) time.Duration {
	if s.Exact {
		return s.Timeout
	}
	return time.Duration(cmp.Or(f, DefaultTimeoutFactor)) * s.Timeout
}

// errStepTimeout is the cancellation cause of a step that exceeds its timeout.
var errStepTimeout = errors.New("the step took too long")

// step runs a step and reports it.
func (e *execution) step(ctx context.Context, s Step) bool {
	if e.world == nil {
		e.world = &World{}
	}
	e.world.notes = nil
	e.listener.Begin(s.Name)
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeoutFactor.limit(s), fmt.Errorf("%w: over %v", errStepTimeout, e.timeoutFactor.limit(s)))
	defer cancel()
	err := s.Run(ctx, e.world)
	out := StepResult{Name: s.Name, Passed: err == nil, Seconds: time.Since(begin).Seconds(), Notes: e.world.notes}
	if err != nil {
		out.Error = err.Error()
	}
	e.result.Steps = append(e.result.Steps, out)
	e.listener.End(out)
	return out.Passed
}

// Silent is a Listener that prints nothing.
type Silent struct{}

// Begin implements Listener.
func (Silent) Begin(string) {}

// End implements Listener.
func (Silent) End(StepResult) {}
