package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// recordedFlags select what a pass of a recording saw.
type recordedFlags struct{ file, at string }

func (f *recordedFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.file, "recording", "", "recording of a controller, instead of a live cluster: see dovetail recording")
	fs.StringVar(&f.at, "at", "",
		"with --recording: a time, for the last pass before it, or the ID of a decision or pass\n(default: the last pass)")
}

func (f *recordedFlags) given() bool { return f.file != "" }

// check validates the flags beside those of a cluster.
func (f *recordedFlags) check(cluster *viewFlags) error {
	switch {
	case f.at != "" && !f.given():
		return errors.New("--at needs --recording FILE: a live cluster is only known as it is now")
	case f.given() && (len(cluster.files) > 0 || cluster.kube.given()):
		return errors.New("--recording, -f and --kubeconfig: use only one of them")
	}
	return nil
}

// read reads what the pass saw.
func (f *recordedFlags) read() (*inspect.View, error) {
	recording, err := recorder.Open(f.file)
	if err != nil {
		return nil, err
	}
	defer recording.Close() // nothing was written
	pass, err := recording.Pass(f.at)
	if err != nil {
		return nil, err
	}
	snap := pass.Excluded.Apply(cluster.BuildSnapshot(pass.Objects, pass.Facts))
	view := inspect.Recorded(pass.Objects, pass.NodeClasses, snap)
	view.NominationWindow = pass.Facts.NominationWindow
	return view, nil
}
