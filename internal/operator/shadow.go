package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/nodes"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/refresh"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
)

// namespaceFile names the namespace of the pod that this process runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// guardShadow makes all clients of a configuration refuse to write anything but the report, and returns the report's namespace.
func guardShadow(config *rest.Config, s settings.Settings, m *shadow.Metrics, log *slog.Logger) (*shadow.Refusals, string, error) {
	namespace := s.LeaderElectionNamespace
	if namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, "", errors.New("--shadow needs a namespace for its report: set --leader-election-namespace, or run in a pod")
		}
		namespace = strings.TrimSpace(string(text))
	}
	refusals := shadow.NewRefusals(log, m.CountRefused)
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("address of the API server: %w", err)
	}
	config.Wrap(refusals.Transport(namespace, address.Path))
	return refusals, namespace, nil
}

// assembleShadow is assemble for shadow mode: it adds what reads, the planning, and the report. No reconciler that writes exists.
func (a *assembly) assembleShadow(ctx context.Context) error {
	if err := cluster.AddIndexes(ctx, a.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := a.shareCache(ctx); err != nil {
		return err
	}
	if err := a.wireAWS(ctx); err != nil {
		return err
	}
	for _, gate := range []string{settings.GateNodeOverlay, settings.GateCapacityBuffer, settings.GateStaticCapacity} {
		if a.settings.Gate(gate) {
			a.log.Warn("shadow mode leaves out what this feature gate turns on", "gate", gate)
		}
	}
	a.state = a.newState()
	loop := &shadow.Loop{
		State: a.state, Batch: a.batch, Claims: a.mgr.GetClient(), Refused: a.refusals, Metrics: a.measures.shadow, Log: a.log, Now: time.Now,
		Store: &shadow.ConfigMap{Client: a.clientset.CoreV1().ConfigMaps(a.settings.LeaderElectionNamespace)},
		Ledger: shadow.NewLedger(
			consolidate.Settings{SpotToSpot: a.settings.Gate(settings.GateSpotToSpot), MaxSteps: consolidate.DefaultMaxSteps}, a.build.Version),
	}
	c := a.mgr.GetClient()
	expirations := nodes.NewExpirationCollector(nodes.Config{Cache: c, Pods: a.pods, Now: time.Now, Log: a.log, Labels: nodeLabels()})
	if err := errors.Join(
		a.measures.registry.Register(expirations),
		a.register(&provisioning.ClaimTrigger{Client: c, Batch: a.batch}),
		a.addLoops(a.dependencies, expirations, &provisioning.PodTrigger{Pods: a.pods, Batch: a.batch, Log: a.log}),
		a.addHeldLoops(&refresh.Catalog{Cloud: refreshed{a.aws.Offerings, a.aws.Cluster}, Log: a.log}, loop),
		a.wireZonalShift(),
		a.wireConsole(),
	); err != nil {
		return fmt.Errorf("shadow mode: %w", err)
	}
	a.log.Info("shadow mode: this process changes nothing", "report", a.settings.LeaderElectionNamespace+"/"+shadow.ConfigMapName)
	return nil
}
