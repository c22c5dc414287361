package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"

	"github.com/dovetail-k8s/dovetail/internal/operator"
	"github.com/dovetail-k8s/dovetail/internal/planner"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// viewFlags select the cluster that a command shows: a live one, or one from files.
type viewFlags struct {
	kube  kubeFlags
	files []string
	catalogFlags
	settings settings.Planning
	// search states how consolidation is searched, by the commands that do.
	search consolidate.Settings
	// lifecycle follows the conditions of Nodes about maintenance.
	lifecycle bool
}

func (f *viewFlags) bind(cmd *cobra.Command) {
	f.kube.bind(cmd)
	f.bindView(cmd)
}

// bindSeveral declares the flags for a command that can show several clusters.
func (f *viewFlags) bindSeveral(cmd *cobra.Command) {
	f.kube.bindContexts(cmd)
	f.bindView(cmd)
}

func (f *viewFlags) bindView(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "filename", "f", nil,
		"file, directory, or - for stdin with a snapshot of a cluster (see dovetail snapshot),\ninstead of a live cluster; can be repeated")
	f.catalogFlags.bind(cmd)
	f.settings.Bind(fs)
	bindLifecycle(fs, &f.lifecycle)
}

// bindLifecycle declares the flag that stands for the feature gate NodeLifecycleConditions, where nodes are searched that may go.
func bindLifecycle(fs *pflag.FlagSet, into *bool) {
	fs.BoolVar(into, "node-lifecycle-conditions", false,
		"nodes with the condition MaintenancePlanned go first, as with the feature gate "+settings.GateNodeLifecycleConditions)
}

// check validates the flags by themselves.
func (f *viewFlags) check() error {
	if len(f.files) > 0 && f.kube.given() {
		return errors.New("-f and --kubeconfig, --context and --as: use only one of them; the cluster is either live or in files")
	}
	return errors.Join(f.catalogFlags.check(), f.settings.Validate())
}

// read reads the cluster. It needs the verb list for what plans depend on, and writes nothing.
func (f *viewFlags) read(cmd *cobra.Command) (*inspect.View, error) {
	f.source.warnings = cmd.ErrOrStderr()
	return f.readWithin(cmd.Context(), cmd.InOrStdin())
}

// readWithin is read without a command.
func (f *viewFlags) readWithin(ctx context.Context, stdin io.Reader) (*inspect.View, error) {
	config, err := f.config(ctx)
	if err != nil {
		return nil, err
	}
	if len(f.files) > 0 {
		return inspect.Files(manifest.Input{Paths: f.files, Stdin: stdin, MaxBytes: f.maxInput.bytes()}, config)
	}
	kube, rest, err := f.kube.client()
	if err != nil {
		return nil, err
	}
	if err := f.kube.reach(ctx, rest); err != nil {
		return nil, err
	}
	return inspect.Live(ctx, kube, time.Now(), config)
}

// config returns what the view depends on besides the cluster.
func (f *viewFlags) config(ctx context.Context) (inspect.Config, error) {
	planning, err := planner.Settings(f.settings)
	if err != nil {
		return inspect.Config{}, err
	}
	return inspect.Config{
		Prices: f.prices(ctx), Settings: planning, NominationWindow: nominationWindow, Search: f.search, LifecycleConditions: f.lifecycle,
	}, nil
}

// prices opens the catalog of the flags, with the prices of their source.
func (f *viewFlags) prices(ctx context.Context) func(*manifest.ClusterState) (inspect.Prices, error) {
	return func(w *manifest.ClusterState) (inspect.Prices, error) {
		opened, err := f.open(w, f.settings)
		if err != nil {
			return inspect.Prices{}, err
		}
		return f.priced(ctx, opened, len(f.files) == 0)
	}
}

// watched connects to the cluster of the flags, to watch it.
func (f *viewFlags) watched(ctx context.Context) (live.Cluster, error) {
	rest, err := f.kube.config()
	if err != nil {
		return live.Cluster{}, err
	}
	if err := f.kube.reach(ctx, rest); err != nil {
		return live.Cluster{}, err
	}
	scheme, err := operator.Scheme()
	if err != nil {
		return live.Cluster{}, err
	}
	watching, err := client.NewWithWatch(rest, client.Options{Scheme: scheme})
	if err != nil {
		return live.Cluster{}, err
	}
	config, err := f.config(ctx)
	if err != nil {
		return live.Cluster{}, err
	}
	name := f.kube.context
	if name == "" {
		name = f.kube.raw().CurrentContext
	}
	return live.Cluster{Client: watching, Name: name, Config: config}, nil
}

// diagnose makes the checks of the doctor in the cluster of the flags; without a name of the EKS cluster, only those of the cluster.
func (f *viewFlags) diagnose(ctx context.Context, clusterName string) (doctor.Report, error) {
	checks := doctorFlags{accountFlags: accountFlags{clusterName: clusterName, region: f.region, kube: f.kube}}
	return checks.inspect(ctx, slog.New(slog.DiscardHandler))
}

// catalogFlags select the catalog of instance types and prices, and limit how much is read.
type catalogFlags struct {
	region, catalog string
	maxInput        sizeLimit
	// source states where prices come from.
	source *priceSource
}

// defaultRegion is the region of plans without a region in flags or inputs.
const defaultRegion = "us-east-1"

func (f *catalogFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(
		&f.catalog,
		"catalog",
		"",
		"catalog file with instance types of your own, or a region of the built-in catalog, instead of --region",
	)
	bindRegion(
		cmd,
		&f.region,
		"region of the built-in catalog of EC2\n(default: that of the nodes and subnets among the inputs, else "+defaultRegion+")",
	)
	f.maxInput.bind(fs)
	f.source = newPriceSource()
	f.source.bind(cmd)
}

// priced gives a catalog that was opened the prices of their source. With live, the plan is for a live cluster.
func (f *catalogFlags) priced(ctx context.Context, opened planner.Catalog, live bool) (inspect.Prices, error) {
	return f.source.of(ctx, inspect.Prices{Catalog: opened, From: "the catalog file " + f.catalog}, live)
}

// check validates the flags by themselves.
func (f *catalogFlags) check() error {
	if f.region != "" && f.catalog != "" {
		return errors.New("--region and --catalog: use only one of them")
	}
	return nil
}

// open reads the catalog file, or the catalog that ships with the program. The inputs state of which region if no
// flag does, and whether pods request devices; nil is inputs that state neither.
func (f *catalogFlags) open(w *manifest.ClusterState, planning settings.Planning) (planner.Catalog, error) {
	if info, err := os.Stat(f.catalog); looksLikePath(f.catalog) || (err == nil && !info.IsDir()) {
		data, err := f.maxInput.read(f.catalog)
		if err != nil {
			return nil, fmt.Errorf("--catalog: %w", err)
		}
		c, err := planner.NewFile(data)
		if err != nil {
			return nil, fmt.Errorf("catalog %s: %w", f.catalog, err)
		}
		return c, nil
	}
	name := cmp.Or(f.catalog, f.region)
	if name == "" {
		name = planner.RegionOf(w)
		if !slices.Contains(offline.Regions(), name) {
			if name != "" {
				w.Notes = append(w.Notes, fmt.Sprintf("the nodes and subnets are in region %q, which is not in the catalog: "+
					"instance types and prices are those of %s. Choose another region with --region, or set your own prices with --prices or --catalog", name, defaultRegion))
			}
			name = defaultRegion
		}
	}
	data, err := offline.Load(name)
	if err != nil {
		return nil, err
	}
	how := instancetype.Settings{
		Region: name, ReservedENIs: planning.ReservedENIs, MemoryOverhead: planning.VMMemoryOverheadPercent, Expressions: true,
	}
	if w != nil && w.RequestDevices() { // as with the feature gates of both
		how.DRADrivers = []string{awsv1.DRADriverNVIDIA, awsv1.DRADriverEFA}
	}
	r, err := offlineregion.New(data, how)
	if err != nil {
		if f.catalog == "" {
			return nil, fmt.Errorf("--region: %w", err)
		}
		return nil, fmt.Errorf("--catalog: %w; or name a file with instance types of your own", err)
	}
	return r, nil
}
