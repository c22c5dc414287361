package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/console"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// consolePricesFrom states where the prices of a controller's console come from.
const consolePricesFrom = "the controller's, of EC2 and the AWS price list"

// reviewQPS and reviewBurst limit the reviews of tokens, apart from all other requests of the controller: made-up tokens must not keep
// the API server busy.
const reviewQPS, reviewBurst = 10, 20

// wireConsole serves the console, if there is a port for it. Without one it costs nothing; with one, nothing until somebody looks.
func (a *assembly) wireConsole() error {
	if a.settings.ConsolePort == 0 {
		return nil
	}
	reviews := rest.CopyConfig(a.mgr.GetConfig())
	reviews.QPS, reviews.Burst = reviewQPS, reviewBurst
	clientset, err := kubernetes.NewForConfig(reviews)
	if err != nil {
		return err
	}
	return a.mgr.Add(&consoleServer{
		settings: a.settings, console: console.New(a.consoleSources()), reviewer: console.APIReviewer{Interface: clientset},
	})
}

// consoleSources read the caches of the controller.
func (a *assembly) consoleSources() console.Sources {
	watcher := live.NewSharedWatcher(live.Shared{
		Name: a.settings.ClusterName, Cache: a.mgr.GetClient(), Pods: a.pods, Read: a.readView,
	}, time.Now)
	out := console.Sources{
		Version: a.build.Version, Name: a.settings.ClusterName, Now: time.Now, Log: a.log,
		OnDemand: true, Watch: watcher.Run, View: watcher.View, Revision: watcher.Version, Search: a.searchSettings(),
		Standby: func() bool {
			select {
			case <-a.mgr.Elected():
				return false
			default:
				return true
			}
		},
	}
	out.Events = func(ctx context.Context, kind, name string) ([]corev1.Event, error) {
		return live.EventsOf(ctx, a.mgr.GetAPIReader(), kind, name)
	}
	if a.settings.Shadow {
		return out // which neither makes the checks of the doctor nor records
	}
	out.Diagnose = func(ctx context.Context) (doctor.Report, error) { return doctor.Run(a.doctorFacts(ctx)), nil }
	if path := a.settings.RecorderPath; path != "" {
		out.Decisions = func() (*recorder.Recording, error) { return recorder.Open(path) }
		out.Written = func() (time.Time, error) { return recorder.Written(path) }
	}
	return out
}

// doctorFacts returns what the checks of the doctor read, from the caches.
func (a *assembly) doctorFacts(ctx context.Context) *doctor.Facts {
	return gather.Facts(ctx, gather.Sources{
		Kubernetes: a.mgr.GetClient(), Pods: a.pods.List,
		Cloud: NewDoctorAccount(a.aws), ClusterName: a.settings.ClusterName, Unproven: a.aws.Cluster.Unproven(),
		Now: time.Now(),
	})
}

// readView is the cluster as the next pass would see it, with the decisions that the caches do not show yet.
func (a *assembly) readView(ctx context.Context) (*inspect.View, error) {
	snap, objects, err := a.state.Look(ctx)
	if err != nil {
		return nil, err
	}
	view := inspect.Recorded(*objects, a.listNodeClasses(), snap)
	view.Prices, view.Catalog = consolePricesFrom, offered{ctx, a.aws.Offerings}
	view.Search, view.NominationWindow = a.searchSettings(), a.settings.NominationWindow()
	view.LifecycleConditions = a.settings.Gate(settings.GateNodeLifecycleConditions)
	view.Gates = inspect.Gates{
		TerminateFirstDrift:  a.settings.Gate(settings.GateTerminateFirstDrift),
		TerminateFirstRepair: a.settings.Gate(settings.GateTerminateFirstRepair), Reboots: a.settings.AWSGate(settings.GateRebootForRepair),
	}
	return view, nil
}

// searchSettings returns how the console searches for cheaper nodes: as consolidation does.
func (a *assembly) searchSettings() consolidate.Settings {
	return consolidate.Settings{SpotToSpot: a.settings.Gate(settings.GateSpotToSpot), MaxSteps: consolidate.DefaultMaxSteps}
}

// offered describes what the controller's node classes can launch, as a catalog.
type offered struct {
	ctx     context.Context
	sources interface {
		InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
	}
}

// Types implements planner.Catalog. A class with types that cannot be listed has none, as in plans.
func (o offered) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if class == nil {
		return nil, nil
	}
	types, err := o.sources.InstanceTypes(context.WithoutCancel(o.ctx), class)
	if err != nil {
		return nil, nil
	}
	return types, nil
}

// consoleServer serves the console of a replica. It is a manager.Runnable.
type consoleServer struct {
	settings settings.Settings
	console  *console.Console
	reviewer console.Reviewer
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica on standby answers that it is.
func (*consoleServer) NeedLeaderElection() bool { return false }

// Start serves until the context is canceled.
func (s *consoleServer) Start(ctx context.Context) error {
	address := net.JoinHostPort(s.settings.BindAddress, strconv.Itoa(s.settings.ConsolePort))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--console-port: %w", err)
	}
	if s.settings.Loopback() {
		console.Serve(ctx, listener, s.console.Handler(), s.console.Run)
		return nil
	}
	config, err := consoleTLS(ctx, s.settings.ConsoleCertDir)
	if err != nil {
		return fmt.Errorf("--console-cert-dir: %w", err)
	}
	console.Serve(ctx, tls.NewListener(listener, config), s.console.ProtectedHandler(s.reviewer), s.console.Run)
	return nil
}

// consoleTLS is HTTPS with the certificate of a directory, read again when it changes; without one, with a certificate of its own.
func consoleTLS(ctx context.Context, dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	withoutHTTP2(config)
	if dir == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		config.Certificates = []tls.Certificate{pair}
		return config, err
	}
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	config.GetCertificate = watcher.GetCertificate
	go func() { _ = watcher.Start(ctx) }() // the last certificate stays if the directory cannot be watched
	return config, nil
}
