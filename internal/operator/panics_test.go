package operator

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// A loop that panics once does not stop the manager, and is restarted.
func TestLoopThatPanicsDoesNotStopTheController(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	guarded := &guardedManager{Manager: mgr, restarts: &panics.Restarter{
		Count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"loop"}),
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)), FirstBackoff: time.Millisecond,
	}}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	started := 0
	if err := guarded.Add(manager.RunnableFunc(func(context.Context) error {
		if started++; started == 1 {
			panic("broken")
		}
		stop()
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	if err := guarded.Start(ctx); err != nil || started != 2 {
		t.Errorf("error %v, started %d times, want 2", err, started)
	}
}

// Reconcilers recover from panics, whatever the default of the library.
func TestReconcilersRecoverFromPanics(t *testing.T) {
	mgr, err := newManager(
		&rest.Config{Host: "http://127.0.0.1:1"},
		settings.Settings{LeaderElectionName: "lease", LeaderElectionNamespace: "kube-system"},
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	if recovers := mgr.GetControllerOptions().RecoverPanic; recovers == nil || !*recovers {
		t.Errorf("RecoverPanic %v", recovers)
	}
}

// A notification of a watch that panics is skipped, and counted.
func TestWatchThatPanicsDoesNotStopTheController(t *testing.T) {
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers })
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"loop"})
	surviveWatches(count)
	func() {
		defer utilruntime.HandleCrashWithContext(t.Context())
		panic("broken")
	}()
	if n := testutil.ToFloat64(count.WithLabelValues("watches and reconcilers")); n != 1 {
		t.Errorf("counted %v", n)
	}
}
