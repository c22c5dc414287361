// Package world boots the environment of a node autoscaler: a simulated AWS account with EKS clusters and instances,
// all on the loopback interface of this host.
//
// A World holds one account and any number of clusters. Each cluster has a real control plane, the
// authenticator and the cloud controller manager of EKS, and the CustomResourceDefinitions of
// Dovetail. The controller is a child process that a scenario starts, stops and kills. Nothing
// of a World outlives the process that started it.
package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/node"
)

// Config configures a world.
type Config struct {
	// Dir is the state directory: keys, kubeconfigs, data, logs. It is created if absent, must not hold a
	// world yet, and is the caller's to remove. Required.
	Dir string
	// Clusters is how many clusters there are. Default: one.
	Clusters int
	// OneName gives all clusters the same name. EKS knows the first of them by it.
	OneName bool
	// Clock is the clock of the account and its instances; control planes and controllers use the
	// host's. Default: the host's.
	Clock clock.Clock
	// Executable is the multi-call binary of the control plane. Default: the running program.
	Executable string
	// Dovetail is the product's binary. It is needed by StartController only.
	Dovetail string
	// Pace divides the waits of the product's controller, see DOVETAIL_PACE. Default: 1.
	Pace int
	// Unrestricted lets the role of each cluster's autoscaler do everything in AWS, for an autoscaler that is not the
	// product. Otherwise it may do what the product states that it needs, and the account sees to it; without the product's
	// binary, everything.
	Unrestricted bool
	// RebootForRepair lets the autoscalers of the product reboot instances, too.
	RebootForRepair bool
	// Region of the account. Default: us-east-1.
	Region string
	// Unwatched leaves out Reader and History of the clusters, which keep every pod in the memory of this process,
	// until Cluster.Watch.
	Unwatched bool
	// LeasesTogether has the leases of nodes renewed together, past the API server, so that thousands of nodes join with less
	// CPU time. Otherwise each kubelet renews its own by requests.
	LeasesTogether bool
	// GCPercent is GOGC of the control plane, see controlplane.Config.
	GCPercent int
	// FeatureGates and RuntimeConfig are those of the control planes, see controlplane.Config.
	FeatureGates  map[string]bool
	RuntimeConfig []string
	// Progress, if set, is called when a component starts and when it is healthy, from several goroutines.
	Progress func(Progress)
}

// Progress is a state change of a component of the world.
type Progress struct {
	Cluster string // empty for the account
	Part    string // "AWS", "etcd", "kube-apiserver", ..., "controller"
	Healthy bool   // false = starting
}

// World is an account with clusters that run.
type World struct {
	// AWS is the account; AWSURL is where it answers.
	AWS    *awsim.Sim
	AWSURL string
	// Clusters are in the order of their IDs.
	Clusters []*Cluster

	cfg            Config
	working        context.Context // done with Close
	simulator      *node.Simulator
	log            *slog.Logger
	logFile        *os.File
	background     *errgroup.Group // farm, authenticators, cloud controller managers, watches
	stopBackground context.CancelFunc
	stopInstances  context.CancelFunc
	stopServers    context.CancelFunc
	servers        *errgroup.Group
	interceptor
	prices prices
}

// Start boots a world and returns when all of it is healthy. If ctx is done before, or a part fails, nothing
// is left running. Once started, a world does not depend on ctx; it has to be closed.
func Start(ctx context.Context, cfg Config) (*World, error) {
	cfg.Clusters = max(1, cfg.Clusters)
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	if cfg.Dir == "" {
		return nil, errors.New("world: a state directory is required")
	}
	w := &World{cfg: cfg}
	if err := w.start(ctx); err != nil {
		err = w.Explain(err)
		return nil, errors.Join(err, w.Close(context.WithoutCancel(ctx)))
	}
	return w, nil
}

func (w *World) start(ctx context.Context) error {
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	err := w.CheckDisk()
	if err != nil {
		return err
	}
	w.logFile, err = os.OpenFile(w.LogPath(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("state directory %s already has a world (choose another, or remove it): %w", w.cfg.Dir, err)
	}
	w.log = slog.New(slog.NewTextHandler(w.logFile, nil))
	// What runs beside the clusters finishes with the world, not with the caller's context.
	alive := context.WithoutCancel(ctx)
	serving, endServers := context.WithCancel(alive)
	working, end := context.WithCancel(alive)
	w.stopServers, w.stopBackground, w.working = endServers, end, working
	w.servers, w.background = new(errgroup.Group), new(errgroup.Group)

	if err := w.startAWS(serving); err != nil {
		return fmt.Errorf("start AWS: %w", err)
	}
	w.simulator, err = node.New(node.Config{Cloud: w.AWS, Region: w.cfg.Region, STSEndpoint: w.AWSURL, Now: w.AWS.Now, Log: w.log})
	if err != nil {
		return fmt.Errorf("prepare the instance simulator: %w", err)
	}
	simulating, stop := context.WithCancel(working)
	w.stopInstances = stop
	w.background.Go(func() error { return w.simulator.Run(simulating) })
	return w.startClusters(ctx, working)
}

func (w *World) startAWS(ctx context.Context) error {
	w.cfg.Progress(Progress{Part: "AWS"})
	var err error
	if w.AWS, err = awsim.New(awsim.Options{Region: w.cfg.Region, Clock: w.cfg.Clock, Log: w.log, EnforceIAM: true}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.AWSURL = "http://" + listener.Addr().String()
	server := &http.Server{Handler: w.intercepted(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	w.servers.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve AWS: %w", err)
		}
		return nil
	})
	w.cfg.Progress(Progress{Part: "AWS", Healthy: true})
	return nil
}

// startClusters boots all clusters at the same time. What it starts works until working finishes.
func (w *World) startClusters(ctx, working context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	clusters := make([]*Cluster, w.cfg.Clusters)
	for i := range clusters {
		group.Go(func() error {
			id := clusterName(i, w.cfg.Clusters)
			c := &Cluster{world: w, Name: id, ID: id, dir: filepath.Join(w.cfg.Dir, id), namespace: metav1.NamespaceSystem}
			if w.cfg.OneName {
				c.Name = clusterName(0, 1)
			}
			mu.Lock()
			clusters[i] = c
			mu.Unlock()
			if err := c.start(ctx, working); err != nil {
				return fmt.Errorf("cluster %s: %w", c.ID, err)
			}
			return nil
		})
	}
	err := group.Wait()
	w.Clusters = clusters
	return err
}

func clusterName(i, of int) string {
	if of == 1 {
		return "lab"
	}
	return fmt.Sprintf("lab-%d", i+1)
}

// Region is where the account's resources are.
func (w *World) Region() string { return w.cfg.Region }

// Dir is the state directory.
func (w *World) Dir() string { return w.cfg.Dir }

// FailImageAfter lets nodes of instances that boot with this image from now on fail, so long after kubelet has started.
func (w *World) FailImageAfter(id string, after time.Duration) { w.simulator.FailImageAfter(id, after) }

// PlantFault gives instances a fault that boot with this image from now on for a NodePool, so long after their boot.
func (w *World) PlantFault(image, pool string, fault node.ImageFault, after time.Duration) {
	w.simulator.PlantFault(image, pool, fault, after)
}

// BreakImage lets instances with this image panic when they boot from now on.
func (w *World) BreakImage(id string) { w.simulator.BreakImage(id) }

// BlockNetworkPlugin keeps the network plugin of nodes that boot from now on from starting: they register, but do not
// become Ready until UnblockNetworkPlugin.
func (w *World) BlockNetworkPlugin() { w.simulator.BlockNetworkPlugin() }

// UnblockNetworkPlugin lets the network plugins of all nodes start.
func (w *World) UnblockNetworkPlugin() { w.simulator.UnblockNetworkPlugin() }

// RemoveDevicePlugins lets instances that boot from now on run no device plugins.
func (w *World) RemoveDevicePlugins() { w.simulator.RemoveDevicePlugins() }

// InstallDRADrivers lets instances that boot from now on publish the devices of these DRA drivers.
func (w *World) InstallDRADrivers(names ...string) error {
	return w.simulator.InstallDRADrivers(names...)
}

// Fail gives an instance a fault, which the EKS node monitoring agent on it reports.
func (w *World) Fail(instance string, fault node.Fault) { w.simulator.Fail(instance, fault) }

// Recover stops an instance's fault of a condition.
func (w *World) Recover(instance string, condition corev1.NodeConditionType) {
	w.simulator.Recover(instance, condition)
}

// RunJoined has an instance that does not run yet skip its boot, and run something else until it stops or reboots.
func (w *World) RunJoined(instance string, run func(ctx context.Context)) {
	w.simulator.RunJoined(instance, run)
}

// Background runs something beside the clusters. Its context is done when the world closes, which waits for it.
func (w *World) Background(run func(ctx context.Context) error) {
	w.background.Go(func() error { return run(w.working) })
}

// Log is the log of the account and its instances, see LogPath.
func (w *World) Log() *slog.Logger { return w.log }

// LogPath is the log file of the account, the instances and the authenticators.
func (w *World) LogPath() string { return filepath.Join(w.cfg.Dir, "lab.log") }

// AwaitFailure waits until a component of the world exits unexpectedly, and returns it as an error; at the end of ctx
// it returns nil then.
func (w *World) AwaitFailure(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, len(w.Clusters))
	for _, c := range w.Clusters {
		go func() { failures <- c.awaitFailure(ctx) }()
	}
	return w.Explain(<-failures)
}

// Close stops all components in the reverse order of their dependencies. When it returns, no process and no goroutine
// of the world is left. Components that have not exited when ctx is done are killed.
func (w *World) Close(ctx context.Context) error {
	var errs []error
	each := func(do func(*Cluster) error) {
		var group errgroup.Group
		for _, c := range w.Clusters {
			group.Go(func() error { return do(c) })
		}
		errs = append(errs, group.Wait())
	}
	each(func(c *Cluster) error { return errors.Join(c.StopController(ctx), c.stopShadows(ctx)) })
	if w.stopBackground != nil {
		w.stopBackground()
		errs = append(errs, w.background.Wait())
	}
	each(func(c *Cluster) error { return c.stop(ctx) })
	if w.stopServers != nil {
		w.stopServers()
		errs = append(errs, w.servers.Wait())
	}
	if w.logFile != nil {
		errs = append(errs, w.logFile.Close())
		w.logFile = nil
	}
	return errors.Join(errs...)
}
