package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// viewFlags select the cluster that a command shows: a live one, or one from files.
type viewFlags struct {
	kube  kubeFlags
	files []string
	catalogFlags
	settings settings.Planning
}

func (f *viewFlags) bind(cmd *cobra.Command) {
	f.kube.bind(cmd)
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "filename", "f", nil,
		"file, directory, or - for stdin with a snapshot of a cluster (see dovetail snapshot),\ninstead of a live cluster; can be repeated")
	f.catalogFlags.bind(cmd)
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
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	if len(f.files) > 0 {
		return inspect.Files(manifest.Input{Paths: f.files, Stdin: cmd.InOrStdin(), MaxBytes: f.maxInput.bytes()}, config)
	}
	kube, rest, err := f.kube.client()
	if err != nil {
		return nil, err
	}
	if err := reach(rest, settings.Settings{}); err != nil {
		return nil, err
	}
	return inspect.Live(cmd.Context(), kube, time.Now(), config)
}

// config is what the view depends on besides the cluster.
func (f *viewFlags) config() (inspect.Config, error) {
	planning, err := planSettings(f.settings)
	if err != nil {
		return inspect.Config{}, err
	}
	return inspect.Config{Prices: f.prices, Settings: planning, NominationWindow: nominationWindow}, nil
}

// prices opens the catalog of the flags.
func (f *viewFlags) prices(w *manifest.ClusterState) (inspect.Prices, error) {
	opened, err := f.open(w, f.settings)
	if err != nil {
		return inspect.Prices{}, err
	}
	from := "the catalog file " + f.catalog
	if region, ok := opened.(*offlineregion.Region); ok {
		from = "the built-in catalog of " + region.Name()
	}
	return inspect.Prices{Catalog: opened, From: from}, nil
}
