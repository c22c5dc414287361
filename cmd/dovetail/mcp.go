package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/gctuning"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/mcp"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// mcpFlags are the flags of the mcp command.
type mcpFlags struct {
	viewFlags
	clusterName string
	spotToSpot  bool
	// recording is a file; empty if there is none.
	recording string
}

func mcpCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Explain a cluster to AI agents, read-only",
		Long: `Serves explain, plan, assess and doctor as tools of the Model Context Protocol, on standard input and output. An agent starts this
command, which exits when the agent closes its input. No tool changes anything, and each answer is of the cluster at that moment. With
--recording, there are tools for past decisions, too.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context, whether it runs Dovetail or Karpenter. With -f, it is a
snapshot or manifests, and there is no doctor.`,
		Example: `  dovetail mcp
  dovetail mcp --context production --cluster-name shop
  dovetail mcp --recording decisions.rec
  dovetail snapshot > now.yaml && dovetail mcp -f now.yaml
  claude mcp add dovetail -- dovetail mcp --context production`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			return f.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f.bind(cmd)
	bindClusterName(cmd, &f.clusterName, "name of the EKS cluster; without it, checks of the doctor that need AWS are skipped")
	cmd.Flags().StringVar(&f.recording, "recording", "", "recording of a controller, for past decisions: see dovetail recording")
	cmd.Flags().BoolVar(&f.spotToSpot, "spot-to-spot", false,
		"spot nodes may replace spot nodes, as with the feature gate "+settings.GateSpotToSpot)
	return cmd
}

// check validates the flags by themselves.
func (f *mcpFlags) check() error {
	if slices.Contains(f.files, "-") {
		return errors.New("-f -: standard input is where the agent asks; name a file")
	}
	return f.viewFlags.check()
}

// serve answers until the input finishes. It fails at once if nothing could be answered, so that an agent's log shows why.
func (f *mcpFlags) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := f.checkSources(); err != nil {
		return err
	}
	sources := mcp.Sources{
		Version: version, Explain: f.explain, Plan: f.plan, Assess: f.answerAssess, Recording: f.recording, Recover: solved,
		Print: func(w io.Writer, r mcp.Report) error { return forTerminal(wideText(r))(w) },
	}
	if len(f.files) == 0 {
		sources.Doctor = f.answerDoctor
	}
	return sources.Serve(ctx, in, out)
}

// checkSources reports a recording that cannot be read; or, if nothing else is given, that no cluster is configured.
func (f *mcpFlags) checkSources() error {
	switch {
	case f.recording != "":
		return f.checkRecording()
	case len(f.files) > 0:
		return nil
	}
	_, err := f.kube.config()
	return err
}

// searchSettings returns how far a question searches for cheaper nodes.
func (f *mcpFlags) searchSettings(full bool) consolidate.Settings {
	return (&explainFlags{spotToSpot: f.spotToSpot, full: full}).consolidation()
}

// answerDoctor makes the checks of the doctor.
func (f *mcpFlags) answerDoctor(ctx context.Context) (mcp.Report, error) {
	found, err := f.diagnose(ctx, f.clusterName)
	if err != nil {
		return nil, err
	}
	return diagnosis{found}, nil
}

// diagnosis is the doctor's report. Its text leaves out what is only for information.
type diagnosis struct{ doctor.Report }

// Text prints it for people.
func (d diagnosis) Text(w io.Writer) error { return d.At(doctor.Warning).WideTable(w) }

// answerAssess computes what the cluster costs, and would cost.
func (f *mcpFlags) answerAssess(ctx context.Context) (mcp.Report, error) {
	defer gctuning.Tune(gctuning.SearchGrowth)()
	flags := assessFlags{viewFlags: f.viewFlags, clusterName: f.clusterName, spotToSpot: f.spotToSpot}
	view, err := flags.readWithin(ctx, strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	return flags.assess(ctx, view)
}

// explain explains an object of the cluster now, or of what the controller saw at a time.
func (f *mcpFlags) explain(ctx context.Context, o mcp.Object) (mcp.Report, error) {
	defer gctuning.Tune(gctuning.SearchGrowth)()
	view, err := f.viewAt(ctx, o.At)
	if err != nil {
		return nil, err
	}
	view.Search = f.searchSettings(o.Full)
	explain := map[mcp.Kind]func(*inspect.View, string) (printer, error){
		mcp.Pod: explainPod, mcp.Node: explainNode, mcp.NodeClaim: explainNodeClaim, mcp.NodePool: explainNodePool,
	}
	return explain[o.Kind](view, o.Name)
}

// viewAt reads the cluster now or, with a time or the ID of a decision, what the controller saw then.
func (f *mcpFlags) viewAt(ctx context.Context, at string) (*inspect.View, error) {
	switch {
	case at == "":
		return f.readWithin(ctx, strings.NewReader(""))
	case f.recording == "":
		return nil, errors.New("at needs a recording: start dovetail mcp with --recording FILE")
	}
	return (&recordedFlags{file: f.recording, at: at}).read()
}

// checkRecording reports a file that is no recording.
func (f *mcpFlags) checkRecording() error {
	recording, err := recorder.Open(f.recording)
	if err != nil {
		return fmt.Errorf("--recording: %w", err)
	}
	return recording.Close()
}
