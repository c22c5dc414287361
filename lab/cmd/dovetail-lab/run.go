package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/scenario"
	"github.com/dovetail-k8s/dovetail/lab/scenario/screen"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// runOptions are the flags of the command run.
type runOptions struct {
	all, keep          bool
	output             string
	stateDir, dovetail string
	seeds              scenario.Seeds
	parallel           int
	kills              uint64
	worlds             int
	fleet              scenario.Fleet
	outage             []string
	timeoutFactor      int
	metrics            metricsOptions
}

func newRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run SCENARIO...",
		Short: "Run scenarios: boot a fresh world for each, and check each step",
		Long: `Run scenarios: boot a fresh world for each, and check each step.

The exit code is 0 if every step of every scenario passed, and 1 if not. After a failure the command
prints the state of the world and keeps the logs.`,
		Example: `  dovetail-lab run first-node
  dovetail-lab run first-node scale-up-down -o json
  dovetail-lab run chaos --first-seed 17 --seeds 1
  dovetail-lab run chaos --seeds 200 --worlds 3
  dovetail-lab run scheduler-agrees --first-seed 1 --seeds 50
  dovetail-lab run drift-rollout --kill-controller 7
  dovetail-lab run consolidate --settle 65m
  dovetail-lab run one-per-node --nodes 1000
  dovetail-lab run repair --metrics-out metrics.om --metrics-match 'karpenter_nodes_.*'
  dovetail-lab run --all
  dovetail-lab run --all --parallel 1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := o.complete(args)
			if err != nil {
				return usageError(cmd, err)
			}
			return runScenarios(cmd.Context(), o, all, cmd.OutOrStdout())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// bind adds the flags.
func (o *runOptions) bind(flags *pflag.FlagSet) {
	flags.BoolVar(&o.all, "all", false, "run all scenarios")
	flags.Uint64Var(&o.seeds.First, "first-seed", scenario.DefaultSeeds.First, "first seed of the scenarios chaos and scheduler-agrees")
	flags.IntVar(&o.seeds.Count, "seeds", scenario.DefaultSeeds.Count, "number of seeds of the scenarios chaos and scheduler-agrees")
	flags.IntVar(
		&o.fleet.Nodes,
		"nodes",
		scenario.DefaultFleet.Nodes,
		"size of the fleets: nodes of consolidate and one-per-node; two-clusters-one-name has half in each cluster, drift-rollout a quarter",
	)
	flags.DurationVar(
		&o.fleet.Settle,
		"settle",
		scenario.DefaultFleet.Settle,
		"how long the cluster of consolidate must not change to count as settled; from 1h on, no node is young any more, and it must cost "+
			"what assess predicted",
	)
	flags.IntVar(
		&o.fleet.Pace, "pace", 1,
		"divides how long the controller waits for what only takes time, such as 15 s until a command starts (its DOVETAIL_PACE)",
	)
	flags.StringArrayVar(
		&o.outage, "outage", scenario.DefaultOutage,
		"what fails for the controller in start-without-aws, in the form of `dovetail-lab aws --fault`; repeatable",
	)
	flags.IntVar(
		&o.timeoutFactor, "timeout-factor", int(scenario.DefaultTimeoutFactor),
		"multiplies the timeouts of steps, except where a step checks its time: raise it on a slow or busy computer",
	)
	flags.IntVar(&o.worlds, "worlds", 1, "number of worlds that share the seeds of the scenario chaos; only if it runs alone")
	flags.IntVar(&o.parallel, "parallel", 0, "scenarios at a time (default: 1; 3 with --all; the number of worlds with --worlds)")
	flags.Uint64Var(
		&o.kills,
		"kill-controller",
		0,
		"kill the controller at random, every 27 s on average, with this seed; steps that check the outcome run without kills (default: no kills)",
	)
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	flags.StringVar(
		&o.stateDir,
		"state-dir",
		"",
		"directory for a subdirectory per scenario, kept at the end (default: temporary ones, removed)",
	)
	flags.BoolVar(&o.keep, "keep", false, "keep the temporary directory after a success")
	o.metrics.bind(flags)
	flags.StringVar(&o.dovetail, "dovetail", "", "binary of dovetail (default: $DOVETAIL, or the one beside this program)")
}

// complete returns the scenarios that the arguments and flags select, and fills in the defaults that depend on them. Its errors are
// about usage.
func (o *runOptions) complete(args []string) ([]scenario.Scenario, error) {
	all, err := o.scenarios(args)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkOutput(o.output), o.metrics.check(all)); err != nil {
		return nil, err
	}
	if o.timeoutFactor < 1 {
		return nil, fmt.Errorf("--timeout-factor %d: must be at least 1", o.timeoutFactor)
	}
	if o.fleet.Pace < 1 {
		return nil, fmt.Errorf("--pace %d: must be at least 1", o.fleet.Pace)
	}
	if o.parallel < 0 {
		return nil, fmt.Errorf("--parallel %d: must be at least 1", o.parallel)
	}
	if o.parallel == 0 {
		o.parallel = o.worlds
		if o.all {
			o.parallel = 3
		}
	}
	return all, nil
}

func newList() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios",
		Example: "  dovetail-lab list\n  dovetail-lab list -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return usageError(cmd, err)
			}
			return listScenarios(cmd.OutOrStdout(), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output %q is neither text nor json", output)
	}
	return nil
}

func listScenarios(out io.Writer, output string) error {
	type entry struct {
		Name    string   `json:"name"`
		Summary string   `json:"summary"`
		Long    bool     `json:"long,omitempty"`
		Nightly bool     `json:"nightly,omitempty"`
		Steps   []string `json:"steps"`
	}
	var all []entry
	for _, s := range scenario.All(scenario.DefaultSeeds, scenario.DefaultFleet, scenario.DefaultOutage) {
		e := entry{Name: s.Name, Summary: s.Summary, Long: s.Long, Nightly: s.Nightly}
		for _, step := range s.Steps {
			e.Steps = append(e.Steps, step.Name)
		}
		all = append(all, e)
	}
	if output == "json" {
		return writeJSON(out, all)
	}
	for _, e := range all {
		fmt.Fprintf(out, "%-18s %s\n", e.Name, e.Summary)
	}
	return nil
}

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// scenarios returns the scenarios with these names, or all with --all.
func (o runOptions) scenarios(names []string) ([]scenario.Scenario, error) {
	if o.seeds.Count < 1 {
		return nil, fmt.Errorf("--seeds %d: must be at least 1", o.seeds.Count)
	}
	if o.fleet.Nodes < scenario.MinNodes {
		return nil, fmt.Errorf("--nodes %d: must be at least %d", o.fleet.Nodes, scenario.MinNodes)
	}
	if o.worlds < 1 {
		return nil, fmt.Errorf("--worlds %d: must be at least 1", o.worlds)
	}
	if o.worlds > 1 {
		if o.all || !slices.Equal(names, []string{"chaos"}) {
			return nil, errors.New("--worlds needs the scenario chaos alone")
		}
		return scenario.Chaos(o.seeds, o.worlds), nil
	}
	all := scenario.All(o.seeds, o.fleet, o.outage)
	if o.all {
		if len(names) > 0 {
			return nil, errors.New("--all runs every scenario: do not name any")
		}
		return all, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("name a scenario, or use --all; the scenarios are: %s", strings.Join(namesOf(all), ", "))
	}
	var out []scenario.Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario is named %q; the scenarios are: %s", name, strings.Join(namesOf(all), ", "))
		}
		if slices.ContainsFunc(out, func(s scenario.Scenario) bool { return s.Name == name }) {
			return nil, fmt.Errorf("scenario %q is named twice", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func namesOf(all []scenario.Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// runScenarios runs all scenarios, also after a failure, and several at a time with --parallel: each has a world of its
// own and mostly waits.
// labGCPercent is GOGC of this process while it runs scenarios: kubelets, cloud and checks of a thousand nodes keep a few hundred MiB.
const labGCPercent = 400

func runScenarios(ctx context.Context, o runOptions, all []scenario.Scenario, out io.Writer) error {
	silenceLibraries()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(labGCPercent)
	}
	dovetail, err := dovetailBinary(o.dovetail)
	if err != nil {
		return err
	}
	done := make([]*scenario.Result, len(all))
	var group errgroup.Group
	group.SetLimit(o.parallel)
	var mu sync.Mutex // of out
	width := 0
	for _, s := range all {
		width = max(width, len(s.Name))
	}
	for _, i := range startOrder(all, o.parallel) {
		s := all[i]
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			to := out
			if o.parallel > 1 { // shows which scenario a step belongs to
				to = &prefixWriter{mu: &mu, out: out, prefix: fmt.Sprintf("%-*s │ ", width, s.Name)}
			}
			result, err := o.runScenario(ctx, s, dovetail, scenario.NewReport(screen.NewPainter(to, os.Getenv)))
			if err != nil {
				return err
			}
			done[i] = &result
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	passed := true
	results := []scenario.Result{}
	for _, r := range done {
		if passed = passed && r != nil && r.Passed; r != nil {
			results = append(results, *r)
		}
	}
	if o.output == "json" {
		if err := writeJSON(out, results); err != nil {
			return err
		}
	}
	if !passed {
		return errReported
	}
	return nil
}

// startOrder returns the indices of scenarios in the order in which they start: as given, or long ones first if several
// run at a time.
func startOrder(all []scenario.Scenario, parallel int) []int {
	var first, then []int
	for i, s := range all {
		if s.Long && parallel > 1 {
			first = append(first, i)
		} else {
			then = append(then, i)
		}
	}
	return append(first, then...)
}

// prefixWriter prefixes each line with the name of its scenario. Several writers share mu and out.
type prefixWriter struct {
	mu     *sync.Mutex
	out    io.Writer
	prefix string
}

// Write takes whole lines.
func (p *prefixWriter) Write(lines []byte) (int, error) {
	var all bytes.Buffer
	for line := range bytes.Lines(lines) {
		all.WriteString(p.prefix)
		all.Write(line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.out.Write(all.Bytes()); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// runScenario runs a scenario, and removes its state unless it failed or --keep is set.
func (o runOptions) runScenario(
	ctx context.Context,
	s scenario.Scenario,
	dovetail string,
	report *scenario.Report,
) (scenario.Result, error) {
	s.TimeoutFactor = scenario.TimeoutFactor(o.timeoutFactor)
	directory := o.stateDir
	if directory != "" {
		directory += string(os.PathSeparator) + s.Name
	}
	dir, remove, err := stateDir(directory)
	if err != nil {
		return scenario.Result{}, err
	}
	if o.kills != 0 {
		s = scenario.WithKills(s, o.kills)
	}
	s, write := o.metrics.record(s)
	cfg := world.Config{Dir: dir, Dovetail: dovetail, Pace: o.fleet.Pace}
	if s.RealPace {
		cfg.Pace = 1
	}
	if o.output == "json" {
		result := scenario.Run(ctx, s, cfg, scenario.Silent{})
		result, err := o.removeState(result, remove)
		return result, errors.Join(err, write())
	}
	report.Title(s)
	result, err := o.removeState(scenario.Run(ctx, s, cfg, report), remove)
	report.Result(result)
	return result, errors.Join(err, write())
}

// removeState removes the state of a scenario, unless it failed or --keep is set.
func (o runOptions) removeState(result scenario.Result, remove func() error) (scenario.Result, error) {
	if failed := !result.Passed && !result.Interrupted; failed || o.keep {
		return result, nil
	}
	if o.stateDir == "" {
		result.StateDir = ""
	}
	return result, remove()
}
