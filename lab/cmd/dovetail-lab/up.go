package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/scale"
	"github.com/dovetail-k8s/dovetail/lab/scenario/beside"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/screen"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// sampleReplicas is how many pods the sample workload begins with.
const sampleReplicas = 5

// upOptions are the flags of the command up.
type upOptions struct {
	noWorkload, noController bool
	clusters                 int
	stateDir, dovetail       string
	region                   string
	// consolePort is that of the first cluster; those of the others follow it. 0 is any free one.
	consolePort  uint16
	consoleLogin bool
	asKarpenter  bool
	// written are the nodes and pods that are written as objects; none if there are no nodes.
	written scale.Size
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Boot a cluster and a simulated AWS, run Dovetail in it, and show nodes and pods",
		Long: `Boot a cluster and a simulated AWS, run Dovetail in it, and show nodes and pods.

The cluster gets a NodePool, an EC2NodeClass and a sample Deployment. Ctrl-C stops everything and
removes all files; a second Ctrl-C kills the processes at once.

--as-karpenter boots the cluster as Karpenter leaves it: its Deployment, nodes, instances, tags and
events. A stand-in acts for it while the Deployment karpenter/karpenter has replicas. Dovetail runs
while the Deployment karpenter/dovetail has some, and in shadow mode while karpenter/dovetail-shadow
has. So check, shadow, takeover and the way back can be tried: see docs/migrate.md.

--nodes-from writes the first nodes and their pods as objects, without anything that runs for each.
They take part like all others: their pods start and finish, and Dovetail consolidates them.`,
		Example: `  dovetail-lab up
  dovetail-lab up --no-workload
  dovetail-lab up --console-port 8484
  dovetail-lab up --clusters 2        # two clusters in one AWS account
  dovetail-lab up --nodes-from 2000   # begins with 2,000 nodes and 40,000 pods
  dovetail-lab up --as-karpenter      # a cluster of Karpenter, to try the migration
  dovetail-lab up --no-controller     # prints the environment for another controller`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.clusters < 1 || o.clusters > 16 {
				return usageError(cmd, fmt.Errorf("--clusters %d is not between 1 and 16", o.clusters))
			}
			if err := o.checkAsKarpenter(cmd.Flags().Changed); err != nil {
				return usageError(cmd, err)
			}
			if err := o.checkWritten(cmd.Flags().Changed); err != nil {
				return usageError(cmd, err)
			}
			return up(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&o.noWorkload, "no-workload", false, "do not create the sample Deployment")
	cmd.Flags().BoolVar(
		&o.noController,
		"no-controller",
		false,
		"boot only the cluster and AWS, and print the environment for another controller",
	)
	cmd.Flags().BoolVar(&o.asKarpenter, "as-karpenter", false, "boot the cluster as Karpenter leaves it, without Dovetail")
	cmd.Flags().Uint16Var(&o.consolePort, "console-port", 0,
		"port of the console of the first cluster; the next ones are those of the others (default: any free ones)")
	cmd.Flags().BoolVar(&o.consoleLogin, "console-login", false,
		"serve the console as in a cluster: on all interfaces, by HTTPS, and with a login")
	cmd.Flags().IntVar(&o.clusters, "clusters", 1, "number of clusters in the account")
	cmd.Flags().IntVar(&o.written.Nodes, "nodes-from", 0, "number of nodes to begin with, written as objects (default: none)")
	cmd.Flags().IntVar(&o.written.Pods, "pods-from", 0, "number of pods on them, two on each node for daemons (default: 20 per node)")
	cmd.Flags().StringVar(
		&o.stateDir,
		"state-dir",
		"",
		"directory for keys, data and logs, kept afterward (default: a temporary one, removed)",
	)
	cmd.Flags().StringVar(&o.dovetail, "dovetail", "", "binary of dovetail (default: $DOVETAIL, or the one beside this program)")
	cmd.Flags().StringVar(&o.region, "region", "us-east-1", "AWS region")
	return cmd
}

// podsPerNode is how many pods there are for each written node by default.
const podsPerNode = 20

// checkWritten completes and checks the flags for written nodes. given reports whether a flag was given.
func (o *upOptions) checkWritten(given func(flag string) bool) error {
	if !given("nodes-from") {
		if given("pods-from") {
			return errors.New("--pods-from needs --nodes-from")
		}
		return nil
	}
	if o.clusters > 1 || o.noController {
		return errors.New("--nodes-from is for one cluster with Dovetail's controller: leave out --clusters and --no-controller")
	}
	if !given("pods-from") {
		o.written.Pods = podsPerNode * o.written.Nodes
	}
	if err := o.written.CheckObjects(); err != nil {
		return fmt.Errorf("--nodes-from, --pods-from: %w", err)
	}
	return nil
}

// checkAsKarpenter checks the flags beside --as-karpenter. given reports whether a flag was given.
func (o *upOptions) checkAsKarpenter(given func(flag string) bool) error {
	if !o.asKarpenter {
		return nil
	}
	for _, one := range []struct{ flag, why string }{
		{"no-controller", "a stand-in acts for Karpenter; scale the Deployment karpenter/karpenter to 0, and nothing acts"},
		{"clusters", "it is for one cluster"},
		{"nodes-from", "its first nodes are launched as Karpenter launches them"},
		{"pods-from", "its first pods are those of the sample Deployment"},
		{"no-workload", "without pods, there are no nodes to take over"},
	} {
		if given(one.flag) {
			return fmt.Errorf("--as-karpenter and --%s do not go together: %s", one.flag, one.why)
		}
	}
	return nil
}

// up runs a world until ctx is done or a component of the world fails.
func up(ctx context.Context, o upOptions, out, progress io.Writer) (err error) {
	silenceLibraries()
	if err := o.written.CheckMemory(); o.written.Nodes > 0 && err != nil {
		return fmt.Errorf("--nodes-from, --pods-from: %w", err)
	}
	var dovetail string
	if !o.noController {
		if dovetail, err = dovetailBinary(o.dovetail); err != nil {
			return err
		}
	}
	dir, remove, err := stateDir(o.stateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	painter := screen.NewPainter(out, os.Getenv)
	boot := screen.NewBoot(painter, time.Now)
	painter.Print("dovetail-lab: starting")
	stopTicking := every(200*time.Millisecond, boot.Tick)
	cfg := world.Config{Dir: dir, Clusters: o.clusters, Dovetail: dovetail, Region: o.region, Progress: boot.Progress}
	if o.written.Nodes > 0 {
		cfg.Unwatched, cfg.LeasesTogether, cfg.GCPercent = true, true, scale.GCPercent
		if _, set := os.LookupEnv("GOGC"); !set {
			debug.SetGCPercent(scale.GCPercent) // this process has all pods, too
		}
	}
	begin := time.Now()
	w, err := world.Start(ctx, cfg)
	if err != nil {
		stopTicking()
		boot.Finish()
		return interrupted(ctx, err)
	}
	defer func() {
		painter.Keep()
		painter.Print("dovetail-lab: stopping")
		ending, stop := untilInterruptedAgain(ctx)
		defer stop()
		err = errors.Join(err, w.Close(ending))
	}()
	if o.written.Nodes > 0 {
		boot.Finish() // what follows are lines, which it would paint over
		report := func(text string) { fmt.Fprintf(progress, "%6.1f s  %s\n", time.Since(begin).Seconds(), text) }
		if err = scale.Fill(ctx, w, o.written, report); err == nil {
			report("the controller starts")
		}
	}
	if err == nil {
		err = setUpClusters(ctx, o, w)
	}
	if err == nil {
		var withdraw func() error
		if withdraw, err = publishEnvironment(w); err == nil {
			defer func() { err = errors.Join(err, withdraw()) }()
		}
	}
	stopTicking()
	boot.Finish()
	if err != nil {
		return interrupted(ctx, w.Explain(err))
	}
	painter.Print(welcome(o, w, time.Since(begin), invocation())...)
	if o.noController {
		if err := printEnvironment(out, w); err != nil {
			return err
		}
	}
	return show(ctx, o, w, painter)
}

// interrupted returns nil if ctx was canceled: the user's interrupt caused the error.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// setUpClusters creates each cluster's interruption queue, storage, NodePool, workload and controller.
func setUpClusters(ctx context.Context, o upOptions, w *world.World) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range w.Clusters {
		group.Go(func() error {
			if err := c.EnableInterruptionQueue(); err != nil {
				return err
			}
			if err := apply(ctx, c, manifests.Storage); err != nil {
				return err
			}
			if o.noController {
				return nil
			}
			if err := o.serveConsole(ctx, i, c); err != nil {
				return err
			}
			if o.asKarpenter {
				return o.bootKarpenter(ctx, w, c)
			}
			c.RestartControllerOnExit()
			// Written nodes have a NodePool. Another would have cheaper nodes, which would replace them.
			if o.written.Nodes == 0 {
				if err := apply(ctx, c, manifests.Default); err != nil {
					return err
				}
			}
			if !o.noWorkload {
				if err := apply(ctx, c, manifests.Sample); err != nil {
					return err
				}
			}
			return c.StartController(ctx)
		})
	}
	return group.Wait()
}

// bootKarpenter leaves a cluster as Karpenter does, and returns when its pods run.
func (o upOptions) bootKarpenter(ctx context.Context, w *world.World, c *world.Cluster) error {
	stage, err := beside.New(ctx, w, c, sampleReplicas)
	if err != nil {
		return err
	}
	w.Background(stage.Run)
	return stage.Ready(ctx)
}

// serveConsole prepares the console of a cluster.
func (o upOptions) serveConsole(ctx context.Context, number int, c *world.Cluster) error {
	port := int(o.consolePort)
	if port > 0 {
		port += number
	}
	if err := c.ServeConsole(port, o.consoleLogin); err != nil {
		return err
	}
	if !o.consoleLogin {
		return nil
	}
	return apply(ctx, c, manifests.ConsoleAccess)
}

func apply(ctx context.Context, c *world.Cluster, manifest string) error {
	text, err := manifests.Render(manifest, map[string]string{
		"CLUSTER_NAME": c.Name, "REPLICAS": strconv.Itoa(sampleReplicas), "TOLERATIONS": `[{"operator":"Exists"}]`,
	})
	if err != nil {
		return err
	}
	return c.Apply(ctx, text)
}

// welcome returns the commands to type in a second terminal. self is the path of this program.
func welcome(o upOptions, w *world.World, took time.Duration, self string) []string {
	lines := []string{fmt.Sprintf("dovetail-lab: ready after %.1f s", took.Seconds()), "", "In another terminal:"}
	for i, c := range w.Clusters {
		line := "  " + evalEnvironment(self, o.stateDir)
		if i > 0 {
			line = "  " + evalEnvironment(self, o.stateDir, "--cluster", c.ID)
		}
		lines = append(lines, line)
	}
	for _, command := range suggestedCommands(o) {
		lines = append(lines, "  "+self+" "+command)
	}
	if o.asKarpenter {
		lines = append(lines, "", "docs/migrate.md has the way from here: check, shadow, takeover, and back.")
	}
	if !o.noController {
		lines = append(lines, "")
		for _, c := range w.Clusters {
			lines = append(lines, "The controller of cluster "+c.Name+" logs to "+c.ControllerLog())
		}
		for _, c := range w.Clusters {
			lines = append(lines, "The console of cluster "+c.Name+": "+c.ConsoleURL())
		}
	}
	return append(lines, "Ctrl-C stops everything.", "")
}

// evalEnvironment returns the shell command that imports the lab's environment.
func evalEnvironment(self, stateDir string, arguments ...string) string {
	if stateDir != "" {
		arguments = append([]string{"--state-dir", stateDir}, arguments...)
	}
	return fmt.Sprintf(`eval "$(%s)"`, strings.Join(append([]string{self, "env"}, arguments...), " "))
}

// suggestedCommands are the first commands to try. README has the same.
func suggestedCommands(o upOptions) []string {
	commands := []string{"kubectl get nodes"}
	if o.asKarpenter {
		return []string{"kubectl get nodeclaims", "kubectl -n karpenter get deployments"}
	}
	if o.noController {
		return commands
	}
	if o.written.Nodes > 0 {
		commands = append(commands, "kubectl scale deployment/app-00 --replicas 10")
	}
	if !o.noWorkload {
		commands = append(commands, "kubectl scale deployment/sample --replicas 20")
	}
	commands = append(commands, "kubectl get nodeclaims")
	if !o.noWorkload {
		commands = append(commands, "kubectl delete deployment/sample")
	}
	return commands
}

// printEnvironment prints the environment for another controller.
func printEnvironment(out io.Writer, w *world.World) error {
	for _, c := range w.Clusters {
		variables, err := c.Environment()
		if err != nil {
			return err
		}
		fmt.Fprintf(
			out,
			"# Environment of a controller for cluster %s (AWS credentials of role %s, which allows every action):\n",
			c.Name,
			c.Role(),
		)
		printExports(out, append([]world.Variable{{Name: "KUBECONFIG", Value: c.Kubeconfig()}}, variables...))
		fmt.Fprintln(out)
	}
	return nil
}

const (
	// refreshInterval is how often the screen is refreshed, if reading the clusters takes little. maxRefreshInterval is
	// for large ones.
	refreshInterval, maxRefreshInterval = 500 * time.Millisecond, 5 * time.Second
	// refreshPause is how many times as long as reading the clusters the next refresh waits, so that it takes a
	// twentieth of a core.
	refreshPause = 19
)

// show shows the clusters until ctx is done or a component of the world fails, which is its error.
func show(ctx context.Context, o upOptions, w *world.World, painter *screen.Painter) error {
	failed := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { failed <- w.AwaitFailure(watching) }()
	next := time.NewTimer(refreshInterval)
	defer next.Stop()
	var last []string
	comparisons := make([]screen.Comparison, len(w.Clusters))
	for {
		select {
		case err := <-failed:
			return interrupted(ctx, err)
		case <-next.C:
		}
		begin := time.Now()
		statuses, err := readAll(ctx, w)
		took := time.Since(begin)
		for i := range statuses {
			// No single node fits the pods of thousands.
			if !o.noController && o.written.Nodes == 0 {
				comparisons[i].Explain(ctx, w.Clusters[i], &statuses[i])
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		last = paint(painter, statuses, last)
		next.Reset(min(max(refreshInterval, refreshPause*took), maxRefreshInterval))
	}
}

func readAll(ctx context.Context, w *world.World) ([]screen.Status, error) {
	var out []screen.Status
	for _, c := range w.Clusters {
		status, err := screen.Read(ctx, w, c)
		if err != nil {
			return nil, err
		}
		out = append(out, status)
	}
	return out, nil
}

// paint redraws a terminal, or prints the lines that changed since the last call. It returns the current lines.
func paint(painter *screen.Painter, statuses []screen.Status, last []string) []string {
	var full, brief []string
	for _, s := range statuses {
		full = append(full, s.Lines()...)
		brief = append(brief, s.Line(), s.Note())
	}
	if painter.InPlace() {
		painter.Paint(full)
		return brief
	}
	for i, line := range brief {
		if line != "" && (i >= len(last) || last[i] != line) {
			painter.Print(time.Now().Format(time.TimeOnly) + " " + line)
		}
	}
	return brief
}

// every calls do periodically until stop is called.
func every(interval time.Duration, do func()) (stop func()) {
	ticker, done := time.NewTicker(interval), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				do()
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
	}
}
