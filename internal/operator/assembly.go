package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/noderepair"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/cluster/ownwrites"
	"github.com/dovetail-k8s/dovetail/internal/controller/dependency"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/savings"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/breaker"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	enginerepair "github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
)

// assembly joins the parts of the controller. The wire methods, each in a file of its own, add reconcilers to the manager; they
// give each reconciler only the parts of the AWS adapter that its interface names.
type assembly struct {
	build     Build
	settings  settings.Settings
	planning  snapshot.Settings
	log       *slog.Logger
	mgr       *guardedManager
	clientset kubernetes.Interface
	events    *event.Recorder
	metrics   *metrics.Metrics
	measures  *measures
	batch     *provisioning.Batch
	turns     *turns.Turns
	evictor   *termination.Evictor
	// refusals are of shadow mode; nil otherwise.
	refusals *shadow.Refusals

	// What follows is set by assemble.

	sdk awssdk.Config
	aws *adapter.Adapter
	// pace divides waits where AWS is simulated.
	pace pace.Pace
	// dependencies holds what launches need of AWS; held is mgr for loops that wait for them, deleting for those that delete nodes.
	dependencies   *dependency.Set
	held, deleting manager.Manager

	pods  *cluster.CachedPods
	nodes *cluster.Cached[*corev1.Node]
	// claims have the last writes of this process where the cache shows them late.
	claims   ownwrites.Claims
	csiNodes *cluster.Cached[*storagev1.CSINode]
	state    *cluster.State
	// leftOut are the pods that plans leave out, panics records plans that panic.
	leftOut *quarantine.Registry
	// costly are the pods that cost much and get no node.
	costly *provisioning.CostlyPods
	panics *panics.Reporter
	// decisions is nil if per-pod metrics are switched off.
	decisions *podlatency.Decisions
	// overlays is nil unless the feature gate NodeOverlay is on.
	overlays *cluster.Overlays
	// registrations is the recent success rate of registrations by NodePool.
	registrations *health.Tracker
	joining       joining
	repair        nodeRepair
	// soakFaults are the conditions with which a new node has failed, whether or not nodes are repaired.
	soakFaults *enginerepair.Policies
	// pauses stop replacements with nodes that fail.
	pauses   *breaker.Breaker
	recorder *recorder.Recorder
	// deletions is what deletes.
	deletions deletions
	// prices are those of the last Snapshot.
	prices *savings.Prices
}

// registrar is a reconciler that knows what it watches.
type registrar interface {
	Register(mgr manager.Manager) error
}

// assemble identifies the cluster, builds the AWS adapter, and adds every reconciler to the manager.
func (a *assembly) assemble(ctx context.Context) error {
	if err := cluster.AddIndexes(ctx, a.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := a.shareCache(ctx); err != nil {
		return err
	}
	a.decisions, a.panics, a.leftOut = a.newDecisions(), a.panicReporter(), quarantine.NewRegistry(time.Now)
	a.costly = &provisioning.CostlyPods{}
	if a.settings.Gate(settings.GateNodeOverlay) {
		a.overlays = &cluster.Overlays{}
	}
	var err error
	if a.deletions, err = a.newDeletions(); err != nil {
		return err
	}
	a.evictor.Guard = a.deletions.Guard
	if err := a.wireAWS(ctx); err != nil {
		return err
	}
	if a.soakFaults, err = enginerepair.Compile(noderepair.Policies(false)); err != nil {
		return err
	}
	a.pauses = breaker.New(a.mgr.GetClient(), a.breakerRules(), time.Now)
	if a.repair, err = newNodeRepair(a.settings, a.measures.repairs); err != nil {
		return err
	}
	if a.recorder, err = a.newRecorder(); err != nil {
		return err
	}
	a.state = a.newState()
	a.registrations = health.NewTracker(a.mgr.GetClient(), time.Now)
	a.joining = a.newJoining()
	for _, wire := range []func() error{
		a.wireDependencies, a.wireNodeClasses, a.wireNodePools, a.wireProvisioning, a.wireNodeClaims, a.wireNodes, a.wireDisruption,
		a.wireInterruption, a.wireDeletions, a.wireDoctor, a.wireMetrics, a.wireRecorder, a.wireConsole,
	} {
		if err := wire(); err != nil {
			return err
		}
	}
	return nil
}

// shareCache is for what reads all pods, Nodes or NodeClaims, and needs no copies of them.
func (a *assembly) shareCache(ctx context.Context) (err error) {
	own, is := a.mgr.GetClient().(*ownwrites.Client)
	if !is {
		return fmt.Errorf("the client of the manager is a %T, and does not show its own writes", a.mgr.GetClient())
	}
	informers := a.mgr.GetCache()
	if a.pods, err = cluster.NewCachedPods(ctx, informers); err != nil {
		return err
	}
	if a.nodes, err = cluster.NewCached(ctx, informers, &corev1.Node{}); err != nil {
		return err
	}
	if a.csiNodes, err = cluster.NewCached(ctx, informers, &storagev1.CSINode{}); err != nil {
		return err
	}
	claims, err := cluster.NewCached(ctx, informers, &karpv1.NodeClaim{})
	a.claims = ownwrites.Claims{Cached: claims, Client: own}
	return err
}

// newState is the state of the cluster that plans are made from.
func (a *assembly) newState() *cluster.State {
	var expressions *cel.Cache
	if !a.settings.IgnoreDRARequests {
		expressions = dynamicresources.NewExpressions()
	}
	server := cluster.APIServer{Live: a.mgr.GetAPIReader(), Informers: a.mgr.GetCache(), Now: time.Now}
	cfg := cluster.Config{
		Devices:             expressions,
		Cache:               a.mgr.GetClient(),
		Pods:                a.pods,
		Nodes:               a.nodes,
		NodeClaims:          a.claims,
		CSINodes:            a.csiNodes,
		Live:                a.mgr.GetAPIReader(),
		Types:               a.measure("state").offerings(a.aws.Offerings),
		Settings:            a.planning,
		Repair:              a.repair.policies,
		LifecycleConditions: a.settings.Gate(settings.GateNodeLifecycleConditions),
		Overlays:            a.overlays,
		CapacityBuffers:     a.settings.Gate(settings.GateCapacityBuffer),
		Labels:              labels(),
		NominationWindow:    a.settings.NominationWindow(),
		TaintGracePeriod:    a.settings.StartupTaintGracePeriod,
		ClaimsShown:         cluster.ClaimsShown(a.mgr.GetCache()),
		Now:                 time.Now,
		OnSnapshot: func(s *snapshot.Snapshot, objects *cluster.Objects, facts *cluster.Facts) {
			a.recorder.Saw(s, objects, facts)
			a.prices.Saw(objects.Pools)
		},
		PodGroups: server.ServedPodGroups(func(err error) {
			a.log.Warn("PodGroups are served, and the controller may not list them: their pods are planned one by one; "+
				"apply the ClusterRole of this version", "error", err)
		}),
		OnPoolSkipped: func(pool *karpv1.NodePool, err error) {
			if errors.Is(err, cloudprovider.ErrNotKnownYet) {
				return // logged once for all pools
			}
			a.log.Error("node pool left out: its instance types are not known", "NodePool", pool.Name, "error", err)
		},
	}
	if expressions != nil {
		cfg.DeviceTaintRules = server.ServedDeviceTaintRules(func(err error) {
			a.log.Warn("DeviceTaintRules are served, and the controller may not list them: devices are planned without their taints; "+
				"apply the ClusterRole of this version", "error", err)
		})
	}
	cfg.Changes = cluster.NewChanges(a.mgr.GetCache(), cfg.SnapshotKinds()...).Count
	return cluster.NewState(cfg)
}

// register adds reconcilers of single objects.
func (a *assembly) register(reconcilers ...registrar) error {
	for _, r := range reconcilers {
		if err := r.Register(a.mgr); err != nil {
			return err
		}
	}
	return nil
}

// addLoops adds loops over the whole cluster, which run on the leader only.
func (a *assembly) addLoops(loops ...manager.Runnable) error {
	var errs []error
	for _, loop := range loops {
		errs = append(errs, a.mgr.Add(loop))
	}
	return errors.Join(errs...)
}

// labels returns what label keys mean on EKS.
func labels() requirement.Labels { return requirement.Labels{Vocabulary: awsv1.Vocabulary()} }
