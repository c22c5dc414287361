package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-k8s/dovetail/internal/console"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// consoleFlags are the flags of the console command.
type consoleFlags struct {
	viewFlags
	clusterName, recording, export string
	port                           uint16
	spotToSpot                     bool
}

// defaultConsolePort is none of those that Kubernetes' own tools listen on.
const defaultConsolePort = 8484

func consoleCommand() *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show a cluster in the browser: nodes, cost, pending pods and their fixes",
		Long: `Serves a page for the browser, until Ctrl-C: a map of the nodes with their pods, use, price and state; pending pods, why they are
pending and the smallest change that makes them run; a page for each node, pod and NodePool; and what the doctor finds.

It works on a cluster that runs Karpenter or Dovetail. It only reads: it needs the verbs list and watch, reports which are missing,
and shows the rest. It listens at 127.0.0.1 only, without a login: every user of this machine can read what it shows.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context. With -f, it is a snapshot or manifests, and there is no doctor.
With --recording alone, no cluster is read: the page shows any minute that a controller has recorded, with its decisions. With --context
or another cluster beside it, the page shows both. With --export, the page and what it shows of a recording are written as files instead,
for any file server.
With several --context or --all-contexts, it begins with an overview over these clusters, and the page can switch between them.`,
		Example: `  dovetail console
  dovetail console --context production --cluster-name shop
  dovetail console --all-contexts
  dovetail console --recording decisions.rec
  dovetail console --recording decisions.rec --context production --port 9000
  dovetail console --recording decisions.rec --export site/night
  dovetail snapshot > now.yaml && dovetail console -f now.yaml`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{handlesInterrupt: "requests are finished"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			if f.export != "" {
				return f.writeExport(cmd)
			}
			return f.run(cmd)
		},
	}
	f.bindSeveral(cmd)
	bindClusterName(cmd, &f.clusterName, "name of the EKS cluster; without it, checks of the doctor that need AWS are skipped")
	fs := cmd.Flags()
	fs.Uint16Var(&f.port, "port", defaultConsolePort, "port to listen on, at 127.0.0.1; 0 for any free one")
	fs.StringVar(&f.recording, "recording", "", "recording of a controller, for the past: see dovetail recording")
	fs.StringVar(&f.export, "export", "", "directory to write the page of a recording to, instead of serving it")
	fs.BoolVar(&f.spotToSpot, "spot-to-spot", false,
		"spot nodes may replace spot nodes, as with the feature gate "+settings.GateSpotToSpot)
	return cmd
}

func (f *consoleFlags) run(cmd *cobra.Command) error {
	defer gctuning.TuneWatching()() // what is watched stays, and is most of the memory
	klog.SetLogger(logr.Discard())  // the page shows what the watch has lost
	f.source.warnings = cmd.ErrOrStderr()
	several, err := f.kube.choose()
	if err == nil && several != nil {
		err = namesOneCluster(cmd, "cluster-name", "recording")
	}
	if err != nil {
		return misused(cmd, err)
	}
	name, handler, run, err := f.shown(cmd, several)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(f.port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is in use: name another with --port, or --port 0 for any free one", f.port)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Console of %s: http://%s/\nIt only reads. Ctrl-C stops it.\n", name, listener.Addr())
	console.Serve(cmd.Context(), listener, handler, run)
	return nil
}

// shown is the console of one cluster, or of several contexts.
func (f *consoleFlags) shown(cmd *cobra.Command, contexts []string) (name string, _ http.Handler, run func(context.Context), _ error) {
	if contexts == nil {
		sources, err := f.sources(cmd)
		if err != nil {
			return "", nil, nil, err
		}
		one := console.New(sources)
		return sources.Name, one.Handler(), one.Run, nil
	}
	var all []console.Sources
	for _, context := range contexts {
		all = append(all, f.lateSources(cmd, context))
	}
	several := console.NewSeveral(all)
	return fmt.Sprintf("%d clusters", len(all)), several.Handler(), several.Run, nil
}

// sources returns those of the flags. It fails at once if nothing could be shown.
func (f *consoleFlags) sources(cmd *cobra.Command) (console.Sources, error) {
	f.search = (&explainFlags{spotToSpot: f.spotToSpot}).consolidation()
	out := console.Sources{
		Version: version, Now: time.Now, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), Search: f.search,
	}
	if f.recording != "" {
		if err := f.checkRecording(); err != nil {
			return out, err
		}
		out.Decisions = func() (*recorder.Recording, error) { return recorder.Open(f.recording) }
		out.Written = func() (time.Time, error) { return recorder.Written(f.recording) }
	}
	if f.recordingAlone() {
		return out, f.addRecording(&out)
	}
	if len(f.files) > 0 {
		return out, f.addFiles(&out, cmd.InOrStdin())
	}
	cluster, err := f.watched(cmd.Context())
	if err != nil {
		return out, err
	}
	watcher := live.NewWatcher(cluster)
	out.Name, out.Watch, out.View, out.Revision = cluster.Name, watcher.Run, watcher.View, watcher.Version
	out.Events = func(ctx context.Context, kind, name string) ([]corev1.Event, error) {
		return live.EventsOf(ctx, cluster.Client, kind, name)
	}
	out.Diagnose = func(ctx context.Context) (doctor.Report, error) { return f.diagnose(ctx, f.clusterName) }
	return out, nil
}

func (f *consoleFlags) checkRecording() error {
	recording, err := recorder.Open(f.recording)
	if err != nil {
		return fmt.Errorf("--recording: %w", err)
	}
	return recording.Close()
}

// addFiles shows a cluster from files.
func (f *consoleFlags) addFiles(out *console.Sources, stdin io.Reader) error {
	view, err := f.readWithin(context.Background(), stdin)
	if err != nil {
		return err
	}
	var names []string
	for _, file := range f.files {
		names = append(names, filepath.Base(file))
	}
	name := strings.Join(names, " ")
	observed, forecast, err := live.FromFile(view, name)
	if err != nil {
		return err
	}
	out.Name, out.File = observed.Link.Name, true
	out.View = func(context.Context) (*inspect.View, error) { return view, nil }
	out.Revision = func() int { return 0 }
	out.Watch = func(_ context.Context, send func(any)) {
		send(observed)
		send(top.Predicted{Forecast: forecast})
	}
	return nil
}

// reconnectInterval sets how long after a failure one of several clusters is tried again.
const reconnectInterval = 15 * time.Second

// lateCluster is one of several clusters. It is reached while the others are shown already.
type lateCluster struct {
	name string
	open func(context.Context) (live.Cluster, error)

	mu      sync.Mutex
	watcher *live.Watcher
}

// run connects until it succeeds, and then watches.
func (c *lateCluster) run(ctx context.Context, send func(any)) {
	var lost time.Time
	for {
		cluster, err := c.open(ctx)
		if err == nil {
			watcher := live.NewWatcher(cluster)
			c.mu.Lock()
			c.watcher = watcher
			c.mu.Unlock()
			watcher.Run(ctx, send)
			return
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		send(top.Observed{Link: top.Link{Name: c.name, Lost: lost, LostWhy: err.Error()}})
		select {
		case <-ctx.Done():
			return
		case <-time.After(reconnectInterval):
		}
	}
}

func (c *lateCluster) connected() *live.Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watcher
}

// lateSources returns those of one of several contexts.
func (f *consoleFlags) lateSources(cmd *cobra.Command, name string) console.Sources {
	f.search = (&explainFlags{spotToSpot: f.spotToSpot}).consolidation()
	one := *f
	one.kube = f.kube.of(name)
	clusterName := ""
	if known, region := f.kube.eksCluster(name); known != "" {
		clusterName, one.region = known, region
	}
	late := &lateCluster{name: name, open: one.watched}
	return console.Sources{
		Version: version, Name: name, Now: time.Now, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), Watch: late.run,
		View: func(ctx context.Context) (*inspect.View, error) {
			if w := late.connected(); w != nil {
				return w.View(ctx)
			}
			return nil, live.ErrLoading
		},
		Revision: func() int {
			if w := late.connected(); w != nil {
				return w.Version()
			}
			return 0
		},
		Events: func(ctx context.Context, kind, name string) ([]corev1.Event, error) {
			if w := late.connected(); w != nil {
				return live.EventsOf(ctx, w.Client, kind, name)
			}
			return nil, live.ErrLoading
		},
		Diagnose: func(ctx context.Context) (doctor.Report, error) { return one.diagnose(ctx, clusterName) },
	}
}

// recordingAlone reports whether the flags name a recording and no cluster. The cluster of KUBECONFIG is then not read: a recording may
// be of another one.
func (f *consoleFlags) recordingAlone() bool {
	return f.recording != "" && len(f.files) == 0 && !f.kube.given()
}

// addRecording shows a recording without a cluster.
func (f *consoleFlags) addRecording(out *console.Sources) error {
	recording, err := recorder.Open(f.recording)
	if err != nil {
		return fmt.Errorf("--recording: %w", err)
	}
	defer recording.Close() // nothing was written
	out.Name = filepath.Base(f.recording)
	if err := out.ShowRecording(recording); err != nil {
		return fmt.Errorf("--recording %s: %w", f.recording, err)
	}
	return nil
}

// writeExport writes the page of a recording as files, and the recording beside them: the page names commands that read it.
func (f *consoleFlags) writeExport(cmd *cobra.Command) error {
	if !f.recordingAlone() {
		return misused(cmd, errors.New("--export writes a recording without a cluster: name it with --recording alone"))
	}
	sources, err := f.sources(cmd)
	if err != nil {
		return err
	}
	info, err := console.New(sources).Export(cmd.Context(), f.export)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(f.recording)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.export, filepath.Base(f.recording)), data, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s has the page of %s: %d recorded passes, %.1f MB. Serve it with any file server.\n",
		f.export, sources.Name, info.Passes, float64(info.Bytes+int64(len(data)))/1e6)
	return nil
}
