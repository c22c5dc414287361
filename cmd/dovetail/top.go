package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
	"github.com/dovetail-k8s/dovetail/internal/top/screen"
)

// topFlags are the flags of the top command.
type topFlags struct {
	viewFlags
	once   bool
	output choice
	// recording has what decisions have saved.
	recording string
}

func topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show nodes, their use and price, pending pods and planned changes, live in the terminal",
		Long: `Shows the nodes of a cluster by NodePool, with what pods request of them (and what containers use, if
metrics-server answers), their price, age and state; pending pods with their reasons; and what consolidation would change.
It works on any cluster with Karpenter or Dovetail, and on others without the planned changes.

It only reads: it needs the verbs list and watch for what it shows, reports which are missing, and shows the rest. It plans in the
background, at most every 2 s, and less often in large clusters.

With --once, it prints one text or JSON document and exits. So it does if there is no terminal, or one that cannot move its
cursor (TERM=dumb), and reports that.
Press ? in it for keys, filters and states. NO_COLOR turns off color.

With several --context or --all-contexts, it shows one table over these clusters; enter opens one, esc goes back.`,
		Example: `  dovetail top
  dovetail top --context production
  dovetail top --all-contexts
  dovetail top -f now.yaml
  dovetail top --recording decisions.rec
  dovetail top --once -o json`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{handlesInterrupt: "the terminal is restored"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			return f.run(cmd)
		},
	}
	f.bindSeveral(cmd)
	bindOutput(cmd, &f.output, "table", "json")
	cmd.Flags().StringVar(&f.recording, "recording", "",
		"recording of the cluster's controller, for what its decisions have saved: see dovetail recording")
	cmd.Flags().BoolVar(&f.once, "once", false, "print the state once, as text or JSON, instead of a live screen")
	return cmd
}

func (f *topFlags) check() error {
	if f.output.value != "table" && !f.once {
		return errors.New("-o " + f.output.value + " needs --once: the live screen has no other format")
	}
	return f.viewFlags.check()
}

func (f *topFlags) run(cmd *cobra.Command) error {
	screen := !f.once
	if without := withoutScreen(cmd); screen && without != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s, so this is the state once, as with --once\n", without)
		screen = false
	}
	if _, err := f.realized(); err != nil { // before anything is shown
		return err
	}
	if !screen { // which shows where prices come from
		f.source.warnings = cmd.ErrOrStderr()
	}
	several, err := f.kube.choose()
	if err == nil && several != nil {
		err = namesOneCluster(cmd, "recording")
	}
	switch {
	case err != nil:
		return misused(cmd, err)
	case len(f.files) > 0:
		return f.showFiles(cmd, screen)
	case several != nil && screen:
		return f.showSeveral(cmd, several)
	case several != nil:
		return f.printSeveral(cmd, several)
	}
	cluster, err := f.watched(cmd.Context())
	if err != nil {
		return err
	}
	if !screen {
		observed, forecast, err := live.Once(cmd.Context(), cluster)
		if err != nil {
			return err
		}
		return f.print(cmd, observed, forecast)
	}
	return show(cmd, top.NewModel(top.Link{Name: cluster.Name}), func(ctx context.Context, send func(any)) {
		var watching sync.WaitGroup
		watching.Go(func() { f.follow(ctx, send) })
		live.NewWatcher(cluster).Run(ctx, send)
		watching.Wait()
	})
}

// recordingInterval is how often a recording is read again while the screen is shown: as often as the console does.
const recordingInterval = 10 * time.Second

// follow sends what decisions have saved, until the context is done. A recording that cannot be read any more leaves the last state.
func (f *topFlags) follow(ctx context.Context, send func(any)) {
	if f.recording == "" {
		return
	}
	wait.UntilWithContext(ctx, func(context.Context) {
		if saved, err := f.realized(); err == nil && saved != nil {
			send(*saved)
		}
	}, recordingInterval)
}

// realized is what the decisions of the last day of the recording have saved; nil without one, or if it is empty.
func (f *topFlags) realized() (*top.Realized, error) {
	if f.recording == "" {
		return nil, nil
	}
	recording, err := recorder.Open(f.recording)
	if err != nil {
		return nil, fmt.Errorf("--recording: %w", err)
	}
	defer recording.Close() // nothing was written
	if _, _, recorded := recording.Span(); !recorded {
		return nil, nil
	}
	_, saved := recording.Recent()
	return &top.Realized{Until: saved.Until, HourlySavings: float64(saved.HourlySavings), TotalSavings: float64(saved.Dollars)}, nil
}

// of selects one of several clusters.
func (f *topFlags) of(context string) *topFlags {
	one := *f
	one.kube = f.kube.of(context)
	return &one
}

// showSeveral shows several clusters. One that cannot be reached has a row that states why.
func (f *topFlags) showSeveral(cmd *cobra.Command, contexts []string) error {
	links := make([]top.Link, len(contexts))
	for i, name := range contexts {
		links[i].Name = name
	}
	return show(cmd, top.NewOverview(links), func(ctx context.Context, send func(any)) {
		var watching sync.WaitGroup
		for i, name := range contexts {
			watching.Go(func() {
				from := func(message any) { send(top.From{Cluster: i, Message: message}) }
				cluster, err := f.of(name).watched(ctx)
				if err != nil {
					from(top.Observed{Link: top.Link{Name: name, Lost: time.Now(), LostWhy: err.Error()}})
					return
				}
				live.NewWatcher(cluster).Run(ctx, from)
			})
		}
		watching.Wait()
	})
}

// printSeveral prints several clusters once.
func (f *topFlags) printSeveral(cmd *cobra.Command, contexts []string) error {
	results := clusters.Each(cmd.Context(), contexts, clustersAtOnce, func(ctx context.Context, name string) (*top.Report, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		cluster, err := f.of(name).watched(ctx)
		if err != nil {
			return nil, err
		}
		observed, forecast, err := live.Once(ctx, cluster)
		if err != nil {
			return nil, err
		}
		return top.NewReport(observed, forecast), nil
	})
	if cmd.Context().Err() != nil {
		return exitInterrupted
	}
	list := clusters.List[top.Report]{Kind: "Fleet", Clusters: results}
	if err := printClusters(cmd.OutOrStdout(), f.output.value, list, clusters.Top); err != nil {
		return err
	}
	return incomplete(results)
}

// withoutScreen returns why the screen cannot be shown; empty if it can.
func withoutScreen(cmd *cobra.Command) string {
	out, isFile := cmd.OutOrStdout().(*os.File)
	switch {
	case !isFile || !term.IsTerminal(out.Fd()):
		return "The output is no terminal"
	case !term.IsTerminal(os.Stdin.Fd()):
		return "The input is no terminal"
	case os.Getenv("TERM") == "dumb":
		return "The terminal cannot move its cursor (TERM=dumb)"
	}
	return ""
}

// showFiles shows a cluster from files.
func (f *topFlags) showFiles(cmd *cobra.Command, screen bool) error {
	view, err := f.read(cmd)
	if err != nil {
		return err
	}
	observed, forecast, err := live.FromFile(view, strings.Join(f.files, " "))
	if err != nil {
		return err
	}
	if !screen {
		return f.print(cmd, observed, forecast)
	}
	m := top.NewModel(observed.Link).Update(observed).Update(top.Predicted{Forecast: forecast})
	return show(cmd, m, f.follow)
}

func (f *topFlags) print(cmd *cobra.Command, observed top.Observed, forecast *top.Forecast) error {
	report := top.NewReport(observed, forecast)
	var err error
	if report.Realized, err = f.realized(); err != nil {
		return err
	}
	if f.output.value == "json" {
		return report.JSON(cmd.OutOrStdout())
	}
	return report.Text(cmd.OutOrStdout(), columnsOf(cmd.OutOrStdout()))
}

// show runs the screen. Libraries must not write their log lines onto it.
func show[M screen.Model[M]](cmd *cobra.Command, m M, source func(context.Context, func(any))) error {
	klog.SetLogger(logr.Discard())
	err := screen.Run(cmd.Context(), screen.Terminal{Input: os.Stdin, Output: os.Stdout, Environment: os.Environ()}, m, source)
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return err
}
