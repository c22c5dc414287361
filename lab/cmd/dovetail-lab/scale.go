package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/scale"
)

// scaleOptions are the flags of the command scale.
type scaleOptions struct {
	size                                 scale.Size
	noBars                               bool
	output, profiles, stateDir, dovetail string
}

func newScale() *cobra.Command {
	o := scaleOptions{size: scale.DefaultSize()}
	size := o.size
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure the controller with thousands of nodes and a hundred thousand pods",
		Long: `Measure the controller with thousands of nodes and a hundred thousand pods.

A few nodes join, and one pod of each workload runs on them. All other nodes and pods are
copies of their objects, without anything that runs. The default size takes about ten
minutes and 16 GiB. The exit code is 1 if a bar is missed. The bars are for the default
size on two cores that do nothing else; --no-bars is for others.`,
		Example: `  dovetail-lab scale
  dovetail-lab scale --nodes 100 --pods 2000 --pending 600 --window 10s --no-bars
  dovetail-lab scale --profiles /tmp/profiles -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.size.Check(), checkOutput(o.output)); err != nil {
				return usageError(cmd, err)
			}
			return measureScale(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&o.size.Nodes, "nodes", size.Nodes, "number of nodes")
	cmd.Flags().IntVar(&o.size.Pods, "pods", size.Pods, "number of pods on them, two on each node for daemons")
	cmd.Flags().IntVar(&o.size.Pending, "pending", size.Pending, "number of pods that become pending at once")
	cmd.Flags().IntVar(&o.size.Churn, "churn", size.Churn, "number of pods that are replaced in a second")
	cmd.Flags().DurationVar(&o.size.Window, "window", size.Window, "how long the controller is observed at rest, and while pods are replaced")
	cmd.Flags().BoolVar(&o.noBars, "no-bars", false, "exit with 0 although bars are missed")
	cmd.Flags().StringVar(&o.profiles, "profiles", "", "directory for CPU and heap profiles of the controller (default: none)")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&o.stateDir, "state-dir", "", "directory for keys, data and logs, kept afterward (default: a temporary one, removed)")
	cmd.Flags().StringVar(&o.dovetail, "dovetail", "", "binary of dovetail (default: $DOVETAIL, or the one beside this program)")
	return cmd
}

// measureScale prints the table to out, and what it does to progress.
func measureScale(ctx context.Context, o scaleOptions, out, progress io.Writer) (err error) {
	silenceLibraries()
	dovetail, err := dovetailBinary(o.dovetail)
	if err != nil {
		return err
	}
	dir, remove, err := stateDir(o.stateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return fmt.Errorf("directory for profiles: %w", err)
		}
	}
	begin := time.Now()
	report, err := scale.Measure(ctx, scale.Config{
		Size: o.size, Dir: dir, Dovetail: dovetail, Profiles: o.profiles,
		Progress: func(text string) { fmt.Fprintf(progress, "%6.1f s  %s\n", time.Since(begin).Seconds(), text) },
	})
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), err)
	}
	if err != nil {
		return errors.Join(err, report.Print(progress)) // what was measured so far
	}
	if o.output == "json" {
		err = writeJSON(out, struct {
			scale.Report
			Rows   []scale.Row `json:"rows"`
			Missed []string    `json:"missed"`
		}{report, report.Rows(), report.Missed()})
	} else {
		err = report.Print(out)
	}
	if missed := report.Missed(); err == nil && len(missed) > 0 && !o.noBars {
		return fmt.Errorf("%d bars are missed: %s", len(missed), strings.Join(missed, "; "))
	}
	return err
}
