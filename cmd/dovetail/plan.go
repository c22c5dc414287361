package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/peakrss"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// planFlags are the flags of the plan command.
type planFlags struct {
	files []string
	catalogFlags
	output    choice
	namespace string
	noTimings bool
	// explainCost shows what the rules of pods and pools cost.
	explainCost bool
	// consolidate shows what consolidation would do, too.
	consolidate, spotToSpot bool
	lifecycle               bool
	settings                settings.Planning
	// maxPods is manifest.Input.MaxPods, live whether the files are a live cluster as it is now. No flag sets them.
	maxPods int
	live    bool
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE...",
		Short: "Show which nodes would be launched for the pods of manifests, without a cluster or an account",
		Long: `Plans the pods of manifests as the controller would plan those of a cluster, and prints the nodes that
it would launch, what they cost, and why pods stay pending. It calls no cluster, and AWS only with --prices account.
Exit code 3 means that pods have no node.

Inputs are YAML or JSON files, directories of them (with all below), or - for stdin: Pods, Deployments,
ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets and Jobs; NodePools and EC2NodeClasses; Nodes, NodeClaims;
CSINodes, CSIDrivers, CSIStorageCapacities, PersistentVolumes, PersistentVolumeClaims, VolumeAttachments,
StorageClasses;
ResourceClaims, ResourceClaimTemplates, DeviceClasses, ResourceSlices and DeviceTaintRules;
PodDisruptionBudgets, Namespaces, Services, PriorityClasses and RuntimeClasses; and Lists of them, as kubectl get -o yaml prints.
Objects of other kinds are skipped, with a note on stderr.

A workload stands for the pods that it would create, unless those are among the inputs. Pods without a node are
planned, pods on a node use its resources, and DaemonSets use resources of every node. NodePools are defaulted and
validated as by the API server; they need not be ready. A NodePool without its node class among the inputs may
launch the whole catalog.

With a snapshot of a cluster among the inputs (dovetail snapshot), a workload replaces the one in the snapshot: the plan
shows the pods that it adds, removes and replaces. For a changed NodePool or EC2NodeClass, it shows which nodes drift,
by which fields, and what replaces them. With --consolidate, it shows what the controller would consolidate.

All inputs together may be as large as --max-input. Errors name the file and the line at which the document begins; all
documents are checked, also after an error.

The output finishes with the times to read and validate the inputs and the catalog, to compile them, to solve, and to print what
comes before, and with the peak memory. --no-timings omits all of them.`,
		Example: `  dovetail plan -f nodepool.yaml -f deployments/
  kubectl get deployments,nodepools,ec2nodeclasses -A -o yaml | dovetail plan -f -
  dovetail plan -f shop.yaml --region eu-west-1 -o json
  dovetail snapshot > now.yaml && dovetail plan -f now.yaml -f new-workload.yaml
  dovetail plan -f now.yaml -f edited-nodepool.yaml
  dovetail plan -f now.yaml --consolidate`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			planning, err := f.check()
			if err != nil {
				return misused(cmd, err)
			}
			return f.run(cmd.Context(), planning, planStreams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()})
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "filename", "f", nil, "file, directory, or - for stdin; can be repeated")
	f.catalogFlags.bind(cmd)
	bindNamespace(cmd, &f.namespace, "namespace of objects without one (default: default)")
	bindOutput(cmd, &f.output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	fs.BoolVar(&f.noTimings, "no-timings", false, "omit times and memory, so that the same inputs print the same bytes")
	fs.BoolVar(&f.explainCost, "explain-cost", false,
		"also show what zone rules, host rules, preferences and capacity types cost:\nplans again without each of them")
	fs.BoolVar(&f.consolidate, "consolidate", false,
		"also show which nodes among the inputs would be removed or replaced: empty, drifted, not worth their price")
	fs.BoolVar(&f.spotToSpot, "spot-to-spot", false,
		"with --consolidate: spot nodes may replace spot nodes, as with the feature gate "+settings.GateSpotToSpot)
	bindLifecycle(fs, &f.lifecycle)
	f.settings.Bind(fs)
	return cmd
}

// nominationWindow is the controller's with default settings: twice --batch-max-duration.
const nominationWindow = 20 * time.Second

// check validates the flags by themselves, and returns the settings for planning.
func (f *planFlags) check() (snapshot.Settings, error) {
	if len(f.files) == 0 {
		return snapshot.Settings{}, errors.New("nothing to plan: name files with -f, or - for stdin")
	}
	if why := validation.IsDNS1123Label(f.namespace); f.namespace != "" && len(why) > 0 {
		return snapshot.Settings{}, fmt.Errorf("--namespace %q is not the name of a namespace: %s", f.namespace, why[0])
	}
	if err := f.catalogFlags.check(); err != nil {
		return snapshot.Settings{}, err
	}
	if err := f.settings.Validate(); err != nil {
		return snapshot.Settings{}, err
	}
	return planner.Settings(f.settings)
}

// planStreams are where a plan reads from and prints to.
type planStreams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (f *planFlags) run(ctx context.Context, planning snapshot.Settings, std planStreams) error {
	defer gctuning.Tune(gctuning.MinGrowth)()
	clock := newStopwatch()
	catalogOf := f.beginCatalog()
	world, err := manifest.Input{
		Paths: f.files, Stdin: std.stdin, MaxBytes: f.maxInput.bytes(), Namespace: f.namespace, MaxPods: f.maxPods,
	}.Read()
	if err != nil {
		return err
	}
	catalog, err := catalogOf(world)
	if err != nil {
		return err
	}
	f.source.warnings = std.stderr
	prices, err := f.priced(ctx, catalog, f.live)
	if err != nil {
		return err
	}
	effort := planner.Effort{ReadSeconds: clock.lap(), PeakRSS: peakrss.Bytes}
	snap, notes, err := planner.BuildSnapshot(world, planner.Config{
		Catalog:          prices.Catalog,
		Settings:         planning,
		NominationWindow: nominationWindow,

		LifecycleConditions: f.lifecycle,
	})
	if err != nil {
		return err
	}
	for _, note := range slices.Concat(world.Notes, notes, planner.Missing(world, snap)) {
		fmt.Fprintln(std.stderr, "note:", note)
	}
	budget := schedule.DefaultBudget() // as the controller plans
	budget.Compiled = func() { effort.CompileSeconds = clock.lap() }
	report := planner.Report{Prices: prices.From, PricesProblem: prices.Problem}
	err = solved(func() {
		report.Plan = schedule.Solve(snap, budget)
		if budget.Compiled = nil; len(snap.Virtual) > 0 {
			room := buffer.Plan(snap, report.Plan, budget)
			report.Buffers = &room
		}
		if f.consolidate {
			how := consolidate.Settings{SpotToSpot: f.spotToSpot, MaxSteps: consolidate.DefaultMaxSteps}
			report.Consolidation = planner.Disruption(snap, &report.Plan, how)
		}
	})
	if err != nil {
		return err
	}
	effort.SolveSeconds, effort.PrintSeconds = clock.lap(), clock.lap
	report.Changes, report.Drift = world.Changes, planner.FindDrift(snap, world.Drifted)
	for _, note := range planner.PriceNotes(report.Plan, catalog) {
		fmt.Fprintln(std.stderr, "note:", note)
	}
	if !f.noTimings {
		report.Effort = &effort
	}
	if f.explainCost { // after the timings, which are those of the plan
		budget.Compiled = nil
		if err := solved(func() { report.RuleCosts = planner.RuleCosts(snap, &report.Plan, budget) }); err != nil {
			return err
		}
		clock.lap()
	}
	for _, t := range report.Plan.Ignored {
		fmt.Fprintf(std.stderr, "note: Pod %s/%s: ignored: %s\n", t.Pod.Namespace, t.Pod.Name, strings.Join(t.Why, "; "))
	}
	printed := map[string]func(io.Writer) error{
		"table": forTerminal(report.Table), "wide": forTerminal(report.WideTable), "json": report.JSON, "yaml": asYAML(report.JSON),
	}
	if err := printed[f.output.value](std.stdout); err != nil {
		return err
	}
	if len(report.Plan.Rejected) > 0 {
		return exitIncomplete
	}
	return nil
}

// stopwatch times what comes after each other.
type stopwatch struct{ since time.Time }

func newStopwatch() *stopwatch { return &stopwatch{time.Now()} }

// lap returns the seconds since the last lap.
func (s *stopwatch) lap() float64 {
	before := s.since
	s.since = time.Now()
	return s.since.Sub(before).Seconds()
}

// beginCatalog reads the catalog while the inputs are read, where flags state which it is. It is read again if pods turn out to
// request devices, which the types then have to list.
func (f *planFlags) beginCatalog() (wait func(*manifest.ClusterState) (planner.Catalog, error)) {
	if f.catalog == "" && f.region == "" {
		return func(w *manifest.ClusterState) (planner.Catalog, error) { return f.open(w, f.settings) }
	}
	type opened struct {
		planner.Catalog
		err error
	}
	begun := parallel.Begin(func() opened {
		c, err := f.open(nil, f.settings)
		return opened{c, err}
	})
	return func(w *manifest.ClusterState) (planner.Catalog, error) {
		o := begun.Wait()
		if o.err == nil && w.RequestDevices() {
			return f.open(w, f.settings)
		}
		return o.Catalog, o.err
	}
}

// solved makes a plan. A panic is a bug: it becomes an error with instructions to report it.
func solved(solve func()) error {
	err := panics.Error(func() error {
		solve()
		return nil
	})
	if caught := (*panics.Panic)(nil); errors.As(err, &caught) {
		return fmt.Errorf("planning failed (%w), which is a bug in Dovetail: report it with the files of -f and this stack; "+
			"remove files to find the pod that causes it\n%s", err, caught.Stack)
	}
	return err
}
