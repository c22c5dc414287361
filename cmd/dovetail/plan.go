package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/region"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// exitUnplaced is the exit code of a plan that leaves pods over.
const exitUnplaced exitCode = 3

// planFlags are the flags of the plan command.
type planFlags struct {
	files     []string
	catalog   string
	output    string
	noTimings bool
	settings  settings.Planning
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE...",
		Short: "Show what nodes would be bought for the pods of manifests, without a cluster or an account",
		Long: `Plans the pods of manifests as the controller would plan those of a cluster, and prints the
nodes that it would buy, what they cost, and why pods are left over. Nothing is asked of any cluster or cloud.

Inputs are YAML or JSON files, directories of them (with all below), or - for stdin: Pods, Deployments,
ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets and Jobs; NodePools and EC2NodeClasses; Nodes, NodeClaims, CSINodes;
PersistentVolumes, PersistentVolumeClaims, StorageClasses; PodDisruptionBudgets, Namespaces, Services and
PriorityClasses; and Lists of them, as kubectl get -o yaml prints. Of other kinds there is a note on stderr.

Workloads stand for the pods that they would make, unless those are among the inputs. Pods on no node are
planned, pods on a node count where they are, DaemonSets weigh on every node. NodePools are defaulted and
checked as the API server would; they need not be ready. A NodePool whose node class is not among the inputs
may buy the whole catalog.

Exit codes: 0 when every pod has a node, 3 when pods are left over, 1 when an input cannot be read or planned,
2 when the command line is wrong.`,
		Example: `  dovetail plan -f nodepool.yaml -f deployments/
  kubectl get deployments,nodepools,ec2nodeclasses -A -o yaml | dovetail plan -f -
  dovetail plan -f shop.yaml --catalog eu-west-1 -o json
  dovetail snapshot > now.yaml && dovetail plan -f now.yaml -f new-workload.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			planning, err := f.check()
			if err != nil {
				return misused(cmd, err)
			}
			return f.run(planning, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "filename", "f", nil, "file, directory, or - for stdin; can be repeated")
	fs.StringVar(&f.catalog, "catalog", "", `what can be bought: a catalog file, or a region of the built-in catalog of EC2
(default: the region of the nodes and subnets among the inputs, else `+defaultRegion+`)`)
	fs.StringVarP(&f.output, "output", "o", "", "wide for a table with a line per kind of node, json for programs; else a table of 80 columns")
	fs.BoolVar(&f.noTimings, "no-timings", false, "leave out times and memory, so that the same inputs print the same bytes")
	f.settings.Bind(fs)
	return cmd
}

// nominationWindow is what the controller's defaults come to.
const nominationWindow = 20 * time.Second

// defaultRegion is planned for when nothing says where.
const defaultRegion = "us-east-1"

// check judges the flags by themselves, and returns the settings that they are.
func (f *planFlags) check() (snapshot.Settings, error) {
	if len(f.files) == 0 {
		return snapshot.Settings{}, errors.New("nothing to plan: name files with -f, or - for stdin")
	}
	if !slices.Contains([]string{"", "wide", "json"}, f.output) {
		return snapshot.Settings{}, fmt.Errorf("-o %q: wide and json are known", f.output)
	}
	if err := f.settings.Validate(); err != nil {
		return snapshot.Settings{}, err
	}
	return planSettings(f.settings)
}

func (f *planFlags) run(planning snapshot.Settings, stdin io.Reader, stdout, stderr io.Writer) error {
	defer thrifty()()
	start := time.Now()
	world, err := manifest.Read(f.files, stdin)
	if err != nil {
		return err
	}
	catalog, err := f.openCatalog(world)
	if err != nil {
		return err
	}
	snap, notes, err := planner.Cut(world, planner.Config{
		Catalog:          catalog,
		Settings:         planning,
		NominationWindow: nominationWindow,
	})
	if err != nil {
		return err
	}
	for _, note := range append(world.Notes, notes...) {
		fmt.Fprintln(stderr, "note:", note)
	}
	ready := time.Now()
	report := planner.Report{Plan: schedule.Solve(snap, schedule.Budget{})}
	if !f.noTimings {
		report.Effort = &planner.Effort{
			CompileSeconds: ready.Sub(start).Seconds(), SolveSeconds: time.Since(ready).Seconds(), PeakRSS: peakRSS,
		}
	}
	printed := report.Table
	switch f.output {
	case "wide":
		printed = report.WideTable
	case "json":
		printed = report.JSON
	}
	if err := printed(stdout); err != nil {
		return err
	}
	if len(report.Plan.Rejected) > 0 {
		return exitUnplaced
	}
	return nil
}

// openCatalog reads the catalog file, or takes what ships with the program.
func (f *planFlags) openCatalog(w *manifest.World) (planner.Catalog, error) {
	if info, err := os.Stat(f.catalog); strings.ContainsAny(f.catalog, "./\\") || (err == nil && !info.IsDir()) {
		data, err := os.ReadFile(f.catalog)
		if err != nil {
			return nil, fmt.Errorf("--catalog: %w", err)
		}
		c, err := planner.NewFile(data)
		if err != nil {
			return nil, fmt.Errorf("catalog %s: %w", f.catalog, err)
		}
		return c, nil
	}
	data, err := offline.Load()
	if err != nil {
		return nil, err
	}
	name := f.catalog
	if name == "" {
		name = planner.RegionOf(w)
		if !slices.Contains(data.Regions(), name) {
			name = defaultRegion
		}
	}
	r, err := region.New(data, instancetype.Settings{
		Region: name, ReservedENIs: f.settings.ReservedENIs, MemoryOverhead: f.settings.VMMemoryOverheadPercent, Expressions: true,
	})
	if err != nil {
		return nil, fmt.Errorf("--catalog: %w; or name a file of your own machines", err)
	}
	return r, nil
}
