package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/inspect"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/text"
)

// recordingFlags select a recording.
type recordingFlags struct {
	file string
}

func (f *recordingFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "recording (default: RECORDER_PATH, as in the controller's pod)")
}

func (f *recordingFlags) open(cmd *cobra.Command) (*recorder.Recording, error) {
	path := cmp.Or(f.file, os.Getenv("RECORDER_PATH"))
	if path == "" {
		return nil, misused(cmd, errors.New("which recording? use -f FILE, or run the command in the controller's pod"))
	}
	return recorder.Open(path)
}

func recordingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recording",
		Short: "List, show and export the decisions and deletions that the controller has recorded",
		Long: `The controller records what each pass saw, what it decided and what became of it, in the file that --recorder-path
names. These commands read that file, or a part of it that was exported. They change nothing.`,
		Example: `  dovetail recording list -f decisions.rec --since 2h
  kubectl exec -n kube-system deploy/dovetail -- dovetail recording export --since 2h > decisions.rec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(recordingListCommand(), recordingShowCommand(), recordingDeletionsCommand(), recordingExportCommand())
	for _, sub := range cmd.Commands() {
		checkArgs(sub)
		interruptible(sub)
		intoOutputFile(sub)
	}
	return cmd
}

func recordingListCommand() *cobra.Command {
	return lists(&cobra.Command{
		Use:   "list",
		Short: "List the decisions of a recording: time, ID, what, why, saving and outcome",
		Example: `  dovetail recording list -f decisions.rec
  dovetail recording list -f decisions.rec --since 2h -o json`,
	}, func(r *recorder.Recording, from time.Time) (printer, int) {
		list := text.ListOf(r, from)
		return list, list.Unreadable
	})
}

func recordingDeletionsCommand() *cobra.Command {
	return lists(&cobra.Command{
		Use:   "deletions",
		Short: "List what the controller has deleted: time, object, reason, and what the API server and EC2 reported of it",
		Long: `Lists each NodeClaim and Node that the controller has deleted, each pod that it has evicted or deleted, and each instance
that it has terminated or rebooted. The JSON has the proofs: UID and resource version of the object, and owner, state and
NodeClaim of the instance, as the API server and EC2 reported them then.`,
		Example: `  dovetail recording deletions -f decisions.rec --since 1h
  dovetail recording deletions -f decisions.rec -o json`,
	}, func(r *recorder.Recording, from time.Time) (printer, int) {
		list := text.DeletionsOf(r, from)
		return list, list.Unreadable
	})
}

// lists completes a command that prints a list of a recording from a time on; read also returns how many frames it could not read.
func lists(cmd *cobra.Command, read func(r *recorder.Recording, from time.Time) (printer, int)) *cobra.Command {
	var from recordingFlags
	var output choice
	var since time.Duration
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		recording, err := from.open(cmd)
		if err != nil {
			return err
		}
		defer recording.Close() // nothing was written
		list, unreadable := read(recording, text.Since(recording, since))
		if unreadable > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", text.LeftOut(unreadable))
		}
		return writeAs(cmd.OutOrStdout(), output.value, list)
	}
	from.bind(cmd)
	bindSince(cmd, &since)
	bindOutput(cmd, &output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	return cmd
}

func bindSince(cmd *cobra.Command, into *time.Duration) {
	cmd.Flags().DurationVar(into, "since", 0, "only the last part, such as 2h, counted from the end of the recording")
}

func recordingShowCommand() *cobra.Command {
	var from recordingFlags
	var output choice
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one decision: the rule with its numbers, the alternatives, prices, and each step of the outcome",
		Example: `  dovetail recording show -f decisions.rec p-mihk3x2a-0`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			recording, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer recording.Close() // nothing was written
			page, err := decisionOf(recording, args[0])
			if err != nil {
				return err
			}
			return writeAs(cmd.OutOrStdout(), output.value, page)
		},
	}
	from.bind(cmd)
	bindOutput(cmd, &output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	return cmd
}

// decisionOf is the decision of an ID, with what it has saved.
func decisionOf(recording *recorder.Recording, id string) (*text.Page, error) {
	decision, err := recording.Decision(id)
	if err != nil {
		return nil, err
	}
	recording.Account(decision)
	return &text.Page{Decision: decision}, nil
}

func recordingExportCommand() *cobra.Command {
	var from recordingFlags
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a part of a recording to a file, to attach to an issue",
		Long: `Writes the frames since a time, and what they depend on, as a recording of its own to standard output. A recording has
neither Secrets nor environment, commands and user data. It has names, labels and images: look at it before you share it, with
dovetail recording list and show.`,
		Example: `  kubectl exec -n kube-system deploy/dovetail -- dovetail recording export --since 2h > decisions.rec
  dovetail recording export -f all.rec --since 30m --output-file decisions.rec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			recording, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer recording.Close() // nothing was written
			info, err := recording.Export(cmd.OutOrStdout(), text.Since(recording, since))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d frames, %d bytes, from %s to %s\n", info.Frames, info.Bytes,
				info.From.Format(time.RFC3339), info.To.Format(time.RFC3339))
			return nil
		},
	}
	from.bind(cmd)
	bindSince(cmd, &since)
	withOutputFile(cmd)
	return cmd
}

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
	case f.given() && cluster.source.value != pricesAuto:
		return errors.New("--recording and --prices: use only one of them; a recording has the prices of its controller")
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
