package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/compare"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// compareOptions are the flags of the command compare.
type compareOptions struct {
	other, name                string
	arguments, workloads       []string
	timeout                    time.Duration
	output, stateDir, dovetail string
}

func newCompare() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare --other PATH",
		Short: "Measure Dovetail and another controller of Karpenter's API with the same workloads",
		Long: `Measure Dovetail and another controller of Karpenter's API with the same workloads.

Each workload begins in a fresh world with each of the two, one after the other. The other binary gets
the environment that Karpenter's chart gives its Deployment, and all permissions. All workloads take
about twenty minutes. The exit code is 1 if a workload has not come to its end.

Workloads:
` + workloadList(),
		Example: `  dovetail-lab compare --other /tmp/karpenter/controller --name karpenter-1.14.3
  dovetail-lab compare --other /tmp/karpenter/controller --workload launch,bin-pack -o json
  dovetail-lab compare --other bin/dovetail --argument controller   # Dovetail with itself`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := o.check()
			if err != nil {
				return usageError(cmd, err)
			}
			return runCompare(cmd.Context(), o, chosen, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.other, "other", "", "binary of the other controller")
	cmd.Flags().StringVar(&o.name, "name", "", "name of the other controller in the table (default: that of its binary)")
	cmd.Flags().StringArrayVar(&o.arguments, "argument", nil, "argument for the other controller; repeatable")
	cmd.Flags().StringSliceVar(&o.workloads, "workload", nil, "workloads to run (default: all)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long a workload may take with one controller")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&o.stateDir, "state-dir", "", "directory for keys, data and logs, kept afterward (default: a temporary one, removed)")
	cmd.Flags().StringVar(&o.dovetail, "dovetail", "", "binary of dovetail (default: $DOVETAIL, or the one beside this program)")
	return cmd
}

// workloadList has a line for each workload.
func workloadList() string {
	var lines []string
	for _, w := range compare.Workloads() {
		lines = append(lines, fmt.Sprintf("  %-18s %s", w.Name, w.Summary))
	}
	return strings.Join(lines, "\n")
}

// check completes and checks the flags, and returns the workloads that they select.
func (o *compareOptions) check() ([]compare.Workload, error) {
	if o.other == "" {
		return nil, errors.New("--other is required: the path of the other controller's binary")
	}
	path, err := filepath.Abs(o.other)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = errors.New("it is no executable file")
	}
	if err != nil {
		return nil, fmt.Errorf("--other %s: %w", o.other, err)
	}
	o.other, o.name = path, cmp.Or(o.name, filepath.Base(path))
	if o.name == compare.Dovetail {
		o.name = "other"
	}
	if strings.ContainsAny(o.name, `/\ `) {
		return nil, fmt.Errorf("--name %q: must be one word without slashes", o.name)
	}
	if o.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %v: must be positive", o.timeout)
	}
	if err := checkOutput(o.output); err != nil {
		return nil, err
	}
	all := compare.Workloads()
	if len(o.workloads) == 0 {
		return all, nil
	}
	var chosen []compare.Workload
	for _, name := range o.workloads {
		i := slices.IndexFunc(all, func(w compare.Workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--workload %q is none of:\n%s", name, workloadList())
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// runCompare prints the table to out, and what begins and has finished to progress.
func runCompare(ctx context.Context, o compareOptions, chosen []compare.Workload, out, progress io.Writer) (err error) {
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
	begin := time.Now()
	report, err := compare.Run(ctx, compare.Config{
		Dir: dir, Dovetail: dovetail, Other: world.Program{Path: o.other, Args: o.arguments}, OtherName: o.name,
		Workloads: chosen, Timeout: o.timeout,
		Progress: func(text string) { fmt.Fprintf(progress, "%6.1f s  %s\n", time.Since(begin).Seconds(), text) },
	})
	if ctx.Err() != nil {
		return errors.New("interrupted") // what was measured so far is in the progress
	}
	if err != nil {
		return errors.Join(err, report.Print(progress)) // what was measured so far
	}
	if o.output == "json" {
		err = writeJSON(out, report)
	} else {
		err = report.Print(out)
	}
	if n := len(report.Failures()); err == nil && n > 0 {
		return fmt.Errorf("%d runs have not come to their end", n)
	}
	return err
}
