package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	goruntime "runtime"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/controller/claimevents"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/clusterstate"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/nodes"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/offering"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/savings"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// newDecisions keeps what plans decide about pods, for per-pod metrics; nil if they are switched off.
func (a *assembly) newDecisions() *podlatency.Decisions {
	if a.settings.DisableClusterStateObservability {
		return nil
	}
	return podlatency.NewDecisions(a.metrics, time.Now)
}

// wireMetrics wires what only measures.
func (a *assembly) wireMetrics() error {
	loop := &offering.Loop{
		Client: a.mgr.GetClient(), Cloud: a.aws.Offerings, Reserved: a.settings.Gate(settings.GateReservedCapacity),
		Collector: a.measures.offerings, Events: a.events, Log: a.log,
	}
	if a.overlays != nil {
		loop.ApplyOverlays = a.overlays.Apply
	}
	return errors.Join(
		a.addLoops(&clusterstate.Watch{State: a.state, Metrics: a.metrics, Log: a.log, Now: time.Now}),
		a.addHeldLoops(loop),
		a.wireTransitions(),
		a.wirePodMetrics(),
		a.wireSavings(),
	)
}

// wireSavings wires what measures lower bounds and savings. Each replica follows NodeClaims, so that a failover forgets nothing.
func (a *assembly) wireSavings() error {
	bounds := &savings.Loop{
		Look: func(ctx context.Context) (*snapshot.Snapshot, error) {
			s, _, err := a.state.Look(ctx)
			return s, err
		},
		Provisioning: a.batch, Log: a.log, Now: time.Now,
	}
	tracker := &savings.Tracker{Prices: a.prices, Now: time.Now, Since: time.Now()}
	collector := savings.NewCollector(tracker, bounds, a.hasNodePool)
	if err := claimevents.Follow(a.mgr.GetCache(), tracker.Observe, tracker.Gone); err != nil {
		return err
	}
	return errors.Join(a.measures.registry.Register(collector), a.addLoops(collector), a.addHeldLoops(bounds))
}

// hasNodePool reports whether the cache has a NodePool; if that cannot be read, it does.
func (a *assembly) hasNodePool(name string) bool {
	pool := &karpv1.NodePool{}
	return !apierrors.IsNotFound(a.mgr.GetClient().Get(context.Background(), client.ObjectKey{Name: name}, pool, client.UnsafeDisableDeepCopy))
}

// wirePodMetrics wires the metrics of single pods and nodes, which are many in a large cluster and can be switched off.
func (a *assembly) wirePodMetrics() error {
	if a.decisions == nil {
		return nil
	}
	c := a.mgr.GetClient()
	collector := podlatency.NewCollector(podlatency.Config{Cache: c, Pods: a.pods, Decisions: a.decisions, Now: time.Now, Log: a.log})
	ofNodes := nodes.NewCollector(nodes.Config{Cache: c, Pods: a.pods, Now: time.Now, Log: a.log, Labels: nodeLabels()})
	return errors.Join(
		a.measures.registry.Register(collector),
		a.measures.registry.Register(ofNodes),
		a.addLoops(collector, ofNodes,
			&podlatency.Pods{Source: a.pods, Decisions: a.decisions, Metrics: a.metrics, Now: time.Now, Log: a.log}),
	)
}

// nodeLabels are the labels of nodes that their metrics have: those that instance types and offerings have.
func nodeLabels() []string { return slices.Collect(maps.Keys(awsv1.Vocabulary().WellKnown)) }

// awsCalls counts and times calls of AWS under the metric names that dashboards for Karpenter use.
type awsCalls struct {
	calls, attempts       *prometheus.CounterVec
	callTime, attemptTime *prometheus.HistogramVec
	retries               *prometheus.HistogramVec
}

func newAWSCalls(registry prometheus.Registerer) (*awsCalls, error) {
	labels := []string{"service", "action", "code"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	times := prometheus.ExponentialBuckets(0.01, 1.5, 20)
	a := &awsCalls{
		calls:       counter("aws_sdk_go_request_total", "Calls of AWS APIs, retries included in the call."),
		attempts:    counter("aws_sdk_go_request_attempt_total", "Attempts at calls of AWS APIs."),
		callTime:    histogram("aws_sdk_go_request_duration_seconds", "How long calls of AWS APIs take, with all their attempts.", times),
		attemptTime: histogram("aws_sdk_go_request_attempt_duration_seconds", "How long attempts at calls of AWS APIs take.", times),
		retries: histogram(
			"aws_sdk_go_request_retry_count",
			"Attempts at a call of an AWS API after the first.",
			prometheus.LinearBuckets(0, 1, 11),
		),
	}
	for _, c := range []prometheus.Collector{a.calls, a.attempts, a.callTime, a.attemptTime, a.retries} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Call implements session.Observer.
func (a *awsCalls) Call(s session.Seen) {
	a.calls.WithLabelValues(s.Service, s.Action, s.Code).Inc()
	a.callTime.WithLabelValues(s.Service, s.Action, s.Code).Observe(s.Took.Seconds())
	a.retries.WithLabelValues(s.Service, s.Action, s.Code).Observe(float64(s.Retries))
}

// Attempt implements session.Observer.
func (a *awsCalls) Attempt(s session.Seen) {
	a.attempts.WithLabelValues(s.Service, s.Action, s.Code).Inc()
	a.attemptTime.WithLabelValues(s.Service, s.Action, s.Code).Observe(s.Took.Seconds())
}

// metricsOptions returns how metrics and profiles are served. With --metrics-secure, a client needs a token that the API server accepts,
// and the permission to get the path.
func metricsOptions(s settings.Settings, registry *inventory.Registry) metricsserver.Options {
	options := metricsserver.Options{
		BindAddress: net.JoinHostPort(s.BindAddress, strconv.Itoa(s.MetricsPort)), FilterProvider: listing(registry, s.MetricsSecure),
	}
	if s.EnableProfiling {
		options.ExtraHandlers = map[string]http.Handler{
			"/debug/pprof/":        http.HandlerFunc(pprof.Index),
			"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
			"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
			"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
		}
	}
	if s.MetricsSecure {
		options.SecureServing = true
		options.CertDir = s.MetricsCertDir
		options.TLSOpts = []func(*tls.Config){withoutHTTP2}
	}
	return options
}

// listing makes /metrics list every metric, and protects all paths if it is requested to.
func listing(registry *inventory.Registry, secure bool) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		protect := func(_ logr.Logger, h http.Handler) (http.Handler, error) { return h, nil }
		if secure {
			var err error
			if protect, err = filters.WithAuthenticationAndAuthorization(config, client); err != nil {
				return nil, err
			}
		}
		return func(log logr.Logger, h http.Handler) (http.Handler, error) { return protect(log, registry.Handler(h)) }, nil
	}
}

// withoutHTTP2 allows HTTP/1.1 only: scrapes need no streams, and HTTP/2 lets clients exhaust a server with streams that they reset
// at once.
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

// buildInfo is the metric karpenter_build_info, of a program.
func buildInfo(b Build) prometheus.Collector {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "karpenter", Name: "build_info", Help: "Constant 1, labeled by what is running.",
	}, []string{"version", "goversion", "goarch", "commit"})
	gauge.WithLabelValues(b.Version, goruntime.Version(), goruntime.GOARCH, b.Commit).Set(1)
	return gauge
}
