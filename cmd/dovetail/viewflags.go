package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
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
	// search is how consolidation is searched, by the commands that do.
	search consolidate.Settings
	// source is where prices come from.
	source *priceSource
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
	f.source = newPriceSource()
	f.source.bind(cmd)
	f.settings.Bind(fs)
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

// config is what the view depends on besides the cluster.
func (f *viewFlags) config(ctx context.Context) (inspect.Config, error) {
	planning, err := planSettings(f.settings)
	if err != nil {
		return inspect.Config{}, err
	}
	f.source.files = len(f.files) > 0
	return inspect.Config{Prices: f.prices(ctx), Settings: planning, NominationWindow: nominationWindow, Search: f.search}, nil
}

// prices opens the catalog of the flags, with the prices of their source.
func (f *viewFlags) prices(ctx context.Context) func(*manifest.ClusterState) (inspect.Prices, error) {
	return func(w *manifest.ClusterState) (inspect.Prices, error) {
		opened, err := f.open(w, f.settings)
		if err != nil {
			return inspect.Prices{}, err
		}
		return f.source.of(ctx, inspect.Prices{Catalog: opened, From: "the catalog file " + f.catalog})
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
	scheme, err := newScheme()
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
