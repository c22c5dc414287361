package operator

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/controller/deletioncost"
	"github.com/dovetail-k8s/dovetail/internal/controller/interruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/nodes"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/offering"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/savings"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/transition"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/reboot"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/breaker"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/deletionpause"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/expiration"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
)

// measures are the metrics of the controller. All are declared before anything runs, whatever features are on, so that /metrics lists
// them from the start. Those of single pods and nodes are registered with their collectors.
type measures struct {
	registry *inventory.Registry

	requests       *metrics.APIServer
	lease          *metrics.Lease
	shared         *metrics.Metrics
	awsCalls       *awsCalls
	cloud          *metrics.Cloud
	cloudCalls     *metrics.CloudCalls
	breaker        *breaker.Metrics
	deletions      *deletionpause.Metrics
	behind         *prometheus.GaugeVec
	reboots        *reboot.Metrics
	repairs        *repair.Metrics
	deletionCosts  *deletioncost.Metrics
	interruptions  *interruption.Metrics
	shiftsReadable *prometheus.GaugeVec
	offerings      *offering.Collector
	recorder       *recorder.Metrics
	shadow         *shadow.Metrics
	// transitions by kind.
	transitions map[string]*transition.Metrics
}

// Inventory lists the metrics of a controller with all features on, on top of a registry: without those of its libraries.
func Inventory(inner inventory.Inner, s settings.Settings) ([]inventory.Metric, error) {
	m, err := declareMetrics(inner, s, Build{})
	if err != nil {
		return nil, err
	}
	m.registry.MustRegister(
		nodes.NewCollector(nodes.Config{Now: time.Now, Log: slog.Default(), Labels: nodeLabels()}),
		savings.NewCollector(nil, nil, nil),
		podlatency.NewCollector(podlatency.Config{
			Decisions: podlatency.NewDecisions(m.shared, time.Now), Now: time.Now, Log: slog.Default(),
		}),
	)
	return m.registry.Metrics()
}

// declareMetrics declares the metrics on top of a registry.
func declareMetrics(inner inventory.Inner, s settings.Settings, b Build) (*measures, error) {
	reg, err := inventory.New(inner)
	if err != nil {
		return nil, err
	}
	m := &measures{registry: reg, offerings: offering.NewCollector(), transitions: map[string]*transition.Metrics{}}
	for _, declare := range []func() error{
		func() (err error) { m.requests, err = metrics.NewAPIServer(reg); return err },
		func() (err error) { m.lease, err = metrics.NewLease(reg, s.LeaderElectionName); return err },
		func() (err error) { m.shared, err = metrics.New(reg); return err },
		func() (err error) { m.awsCalls, err = newAWSCalls(reg); return err },
		func() (err error) { m.cloud, err = metrics.NewCloud(reg); return err },
		func() (err error) { m.cloudCalls, err = metrics.NewCloudCalls(reg); return err },
		func() (err error) { m.breaker, err = breaker.NewMetrics(reg); return err },
		func() (err error) { m.deletions, err = deletionpause.NewMetrics(reg); return err },
		func() (err error) { m.behind, err = expiration.NewBehind(reg); return err },
		func() (err error) { m.reboots, err = reboot.NewMetrics(reg); return err },
		func() (err error) { m.repairs, err = repair.NewMetrics(reg); return err },
		func() (err error) { m.deletionCosts, err = deletioncost.NewMetrics(reg); return err },
		func() (err error) { m.interruptions, err = interruption.NewMetrics(reg); return err },
		func() (err error) { m.shiftsReadable, err = zonalshift.NewReadableGauge(reg); return err },
		func() (err error) { m.recorder, err = recorder.NewMetrics(reg); return err },
		func() (err error) { m.shadow, err = shadow.NewMetrics(reg); return err },
		func() error { return reg.Register(m.offerings) },
		func() error { return reg.Register(buildInfo(b)) },
	} {
		if err := declare(); err != nil {
			return nil, err
		}
	}
	var kinds []*transition.Metrics
	for _, kind := range measuredKinds(s) {
		if m.transitions[kind.Name], err = transition.NewMetrics(reg, kind, time.Now); err != nil {
			return nil, err
		}
		kinds = append(kinds, m.transitions[kind.Name])
	}
	return m, reg.Register(transition.NewCollector(time.Now, kinds))
}
