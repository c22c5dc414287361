// Package operator runs the controller: it builds the AWS adapter, the caches and every reconciler from the settings, and joins them.
package operator

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"
	"github.com/dovetail-k8s/dovetail/internal/planner"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/ownwrites"
	"github.com/dovetail-k8s/dovetail/internal/cluster/reduced"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/savings"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
)

// evictionWorkers sets how many evictions are in progress at once. Twenty drain the nodes of one disruption in parallel, and stay far
// below the request limits of the API server.
const evictionWorkers = 20

// Build names the program.
type Build struct{ Version, Commit string }

// Config describes what a controller is made of.
type Config struct {
	Settings settings.Settings
	// Cluster returns how to reach the API server. It is called once the settings have been checked.
	Cluster func() (*rest.Config, error)
	Build   Build
	Log     *slog.Logger
}

// Run builds the autoscaler and runs it until ctx is done.
func Run(ctx context.Context, c Config) error {
	s, log := c.Settings, c.Log
	if s.MemoryLimit > 0 {
		debug.SetMemoryLimit(gctuning.UserLimit(s.MemoryLimit))
	}
	var gc *gctuning.Controller
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		gc = gctuning.TuneController(gctuning.UserLimit(s.MemoryLimit))
		defer gc.Stop()
	}
	planning, err := planner.Settings(s.Planning)
	if err != nil {
		return err
	}
	config, err := c.Cluster()
	if err != nil {
		return fmt.Errorf("find the cluster: %w (set KUBECONFIG, or run inside the cluster)", err)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "dovetail/" + c.Build.Version
	measures, err := declareMetrics(ctrlmetrics.Registry, s, c.Build)
	if err != nil {
		return err
	}
	config.Wrap(measures.requests.Wrap)
	config.Wrap(measures.lease.Wrap)
	// Each client that is made from it has a rate limit of its own: events do not wait for other requests.
	config.QPS, config.Burst = float32(s.KubeClientQPS), s.KubeClientBurst
	var refusals *shadow.Refusals
	if s.Shadow {
		if refusals, s.LeaderElectionNamespace, err = guardShadow(config, s, measures.shadow, log); err != nil {
			return err
		}
	}
	if err := await(ctx, s, log, func() error { return Reach(config, s) }); err != nil {
		return err
	}
	mgr, err := newManager(config, s, measures.registry)
	if err != nil {
		return err
	}
	probes, err := addProbes(mgr, s)
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	stopEvents, recorder := newRecorder(clientset, mgr.GetScheme(), s.Shadow)
	defer stopEvents()
	metrics := measures.shared
	surviveWatches(metrics.RunnablePanics)
	a := &assembly{
		build: c.Build, settings: s, planning: planning, log: log, clientset: clientset,
		mgr:    &guardedManager{Manager: mgr, restarts: &panics.Restarter{Count: metrics.RunnablePanics, Log: log}},
		events: event.NewRecorder(recorder, time.Now), metrics: metrics, measures: measures,
		batch: provisioning.NewBatch(s.BatchIdleDuration, s.BatchMaxDuration), turns: &turns.Turns{},
		refusals: refusals, prices: &savings.Prices{},
	}
	a.batch.OnBurst(gc.Burst)
	a.evictor = &termination.Evictor{
		Client: mgr.GetClient(), Events: a.events, Metrics: metrics, Log: log, Now: time.Now, Workers: evictionWorkers,
	}
	assemble := a.assemble
	if s.Shadow {
		assemble = a.assembleShadow
	}
	err = assemble(ctx)
	defer func() { a.recorder.Close() }() // after the manager has stopped
	if err != nil {
		return err
	}
	probes.dependencies.Store(a.dependencies)
	log.Info("starting", "version", c.Build.Version, "commit", c.Build.Commit, "cluster", s.ClusterName)
	defer context.AfterFunc(ctx, func() { log.Info("stopping") })()
	return run(ctx, mgr.Start, func(ctx context.Context) bool {
		defer gc.Started()
		return mgr.GetCache().WaitForCacheSync(ctx)
	})
}

// run starts the manager and returns when it has stopped. A manager that is stopped before its caches have synced, because the
// API server refuses a list, never returns from Start: run does not wait for it, since no work has begun.
func run(ctx context.Context, start func(context.Context) error, synced func(context.Context) bool) error {
	begun, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		if synced(ctx) {
			close(begun)
		}
	}()
	go func() { stopped <- start(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	select {
	case <-begun:
		return <-stopped
	default:
		return nil
	}
}

// Reach checks that the API server answers, and has the CRDs that the controller needs.
func Reach(config *rest.Config, s settings.Settings) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	kinds := []schema.GroupVersion{karpv1.GroupVersion, awsv1.GroupVersion}
	if s.Gate(settings.GateNodeOverlay) {
		kinds = append(kinds, v1alpha1.GroupVersion)
	}
	if s.Gate(settings.GateCapacityBuffer) {
		kinds = append(kinds, bufferv1.GroupVersion)
	}
	for _, gv := range kinds {
		_, err := client.ServerResourcesForGroupVersion(gv.String())
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("the API server %s does not serve %s: apply the CRDs first", config.Host, gv)
		case err != nil:
			return fmt.Errorf("reach the API server %s: %w", config.Host, err)
		}
	}
	return nil
}

// newManager prepares caches, leader election and the metrics endpoint. It starts nothing.
func newManager(config *rest.Config, s settings.Settings, registry *inventory.Registry) (manager.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                !s.DisableLeaderElection && !s.Shadow,
		LeaderElectionID:              s.LeaderElectionName,
		LeaderElectionNamespace:       s.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        "0", // see probes
		Metrics:                       metricsOptions(s, registry),
		Cache:                         cache.Options{DefaultTransform: reduced.NewSharer().Transform, NewInformer: cluster.NewInformer},
		Controller:                    ctrlconfig.Controller{EnableWarmup: new(!s.DisableControllerWarmup), RecoverPanic: new(true)},
		NewClient: func(config *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.New(config, o)
			return ownwrites.New(c, time.Now), err
		},
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("prepare the controller manager: %w", err)
	}
	return mgr, nil
}

// Scheme has the kinds of Kubernetes, Karpenter and Dovetail.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, karpv1.AddToScheme, awsv1.AddToScheme,
		v1alpha1.AddToScheme, bufferv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// newRecorder sends events to the API server with the source component of Karpenter, which operators filter by. A shadow sends none.
func newRecorder(clientset kubernetes.Interface, scheme *runtime.Scheme, silent bool) (stop func(), _ record.EventRecorder) {
	broadcaster := record.NewBroadcaster()
	if !silent {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	}
	return broadcaster.Shutdown, broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "karpenter"})
}
