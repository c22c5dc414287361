package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/controller/adoption"
	"github.com/dovetail-k8s/dovetail/internal/controller/disruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/memory"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/consistency"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/expiration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/garbagecollection"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/hydration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/initialization"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/launch"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/liveness"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/placementgroup"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/reservation"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/tagging"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/refresh"
	nodeclassstatus "github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/status"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/buffer"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	nodeoverlay "github.com/dovetail-k8s/dovetail/internal/controller/nodepool/overlay"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/static"
	nodepoolstatus "github.com/dovetail-k8s/dovetail/internal/controller/nodepool/status"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// assembly joins the parts of the controller.
type assembly struct {
	settings  settings.Settings
	planning  snapshot.Settings
	log       *slog.Logger
	mgr       manager.Manager
	clientset kubernetes.Interface
	events    *event.Recorder
	metrics   *metrics.Metrics
	batch     *provisioning.Batch
	// leftOut are the pods that plans leave out, panics records plans that panic.
	leftOut *quarantine.Book
	panics  *panics.Reporter
	evictor *termination.Evictor
	// decisions is nil if nobody measures what is decided of pods.
	decisions *podlatency.Decisions
	// overlays is nil unless the feature gate NodeOverlay is on.
	overlays *cluster.Overlays
	awsCalls session.Observer
}

// registrar is a reconciler that knows what it watches.
type registrar interface {
	Register(mgr manager.Manager) error
}

// assemble finds out which cluster this is, makes the cloud, and adds every reconciler to the manager.
func (a *assembly) assemble(ctx context.Context) error {
	if err := cluster.AddIndexes(ctx, a.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	a.decisions, a.panics, a.leftOut = a.newDecisions(), a.panicReporter(), quarantine.NewBook(time.Now)
	if a.settings.Gate(settings.GateNodeOverlay) {
		a.overlays = &cluster.Overlays{}
	}
	ec2, err := a.cloud(ctx)
	if err != nil {
		return err
	}
	var expressions *cel.Cache
	if !a.settings.IgnoreDRARequests {
		expressions = dynamicresources.NewExpressions()
	}
	state := cluster.NewState(cluster.Config{
		Devices:          expressions,
		Cache:            a.mgr.GetClient(),
		Live:             a.mgr.GetAPIReader(),
		Types:            ec2,
		Settings:         a.planning,
		Overlays:         a.overlays,
		CapacityBuffers:  a.settings.Gate(settings.GateCapacityBuffer),
		Labels:           labels(),
		NominationWindow: a.settings.NominationWindow(),
		Now:              time.Now,
		PoolLeftOut: func(pool *karpv1.NodePool, err error) {
			a.log.Error("node pool left out: its instance types are not known", "NodePool", pool.Name, "error", err)
		},
	})
	transitions, err := a.transitions(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	health, err := a.health()
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(a.reconcilers(ec2), a.optional(ec2, state), health, transitions) {
		if err := r.Register(a.mgr); err != nil {
			return err
		}
	}
	return errors.Join(a.addLoops(ec2, state), a.addZonalShift(ec2), a.addDisruption(ec2, state), a.addMeasuring(ec2, state))
}

// reconcilers react to single objects.
func (a *assembly) reconcilers(ec2 *aws.Cloud) []registrar {
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	registrations := health.NewTracker(c, now)
	joins := a.joins(ec2)
	return []registrar{
		&health.Reconciler{Client: c, Tracker: registrations, Log: log},
		joins.Reconciler,
		&nodepoolstatus.Reconciler{
			Client: c, Events: a.events, Log: log, Now: now, StaticCapacity: a.settings.Gate(settings.GateStaticCapacity),
			Held: joins.guard.PoolHeld, Wake: joins.pools,
		},
		&nodeclassstatus.Reconciler{Client: c, Cloud: joins.guard, Events: a.events, Log: log, Now: now, Wake: joins.classes},
		&provisioning.PodTrigger{Client: c, Batch: a.batch, Decisions: a.decisions},
		&provisioning.ClaimTrigger{Client: c, Batch: a.batch},
		&provisioning.PoolTrigger{Client: c, Batch: a.batch},
		&launch.Reconciler{Client: c, Cloud: joins.guard, Events: a.events, Metrics: a.metrics, Log: log, Now: now},
		&registration.Reconciler{
			Client: c, Live: a.mgr.GetAPIReader(), Health: registrations, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
			Hooks: []registration.Hook{&placementgroup.Hook{Cloud: ec2}},
		},
		&initialization.Reconciler{
			Client: c, Events: a.events, Log: log, Now: now, Patience: a.settings.UsualTaintTime, MendLostTaints: a.settings.MendLostTaints,
			Removals: joins.removals, Devices: !a.settings.IgnoreDRARequests,
		},
		&liveness.Reconciler{
			Client: c, Health: registrations, Events: a.events, LaunchTimeout: liveness.LaunchTimeout, Metrics: a.metrics, Log: log, Now: now,
		},
		&expiration.Reconciler{Client: c, Metrics: a.metrics, Log: log, Now: now},
		&hydration.Reconciler{Client: c, Now: now},
		&consistency.Reconciler{Client: c, Events: a.events, Log: log, Now: now},
		&tagging.Reconciler{Client: c, Cloud: ec2, Log: log},
		&memory.Reconciler{Client: c, Cloud: ec2},
		&disruption.Consolidatable{Client: c, Log: log, Now: now},
		&disruption.PodEvents{Client: c},
		&termination.ClaimReconciler{Client: c, Cloud: ec2, Events: a.events, Metrics: a.metrics, Log: log, Now: now},
		&termination.NodeReconciler{Client: c, Cloud: ec2, Evictor: a.evictor, Events: a.events, Metrics: a.metrics, Log: log, Now: now},
	}
}

// optional are the reconcilers of features that are off unless their gate is on.
func (a *assembly) optional(ec2 *aws.Cloud, state *cluster.State) (out []registrar) {
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	if a.settings.Gate(settings.GateStaticCapacity) {
		out = append(out, &static.Reconciler{Client: c, State: state, Labels: labels(), Events: a.events, Metrics: a.metrics, Log: log, Now: now})
	}
	if a.settings.Gate(settings.GateCapacityBuffer) {
		out = append(out, &buffer.Reconciler{Client: c, Batch: a.batch, Log: log, Now: now})
	}
	if a.overlays != nil {
		terms := overlay.Terms{Labels: labels(), Resources: awsv1.Resources()}
		out = append(out, &nodeoverlay.Reconciler{Client: c, Types: ec2, Planning: a.overlays, Terms: terms, Log: log, Now: now})
	}
	return out
}

// overlay lays what users say of instance types over those that a claim is launched from.
func (a *assembly) overlay(ctx context.Context, claim *karpv1.NodeClaim, types []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
	name := claim.Labels[karpv1.LabelNodePool]
	if name == "" {
		return types, nil
	}
	pool := &karpv1.NodePool{}
	if err := a.mgr.GetClient().Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, fmt.Errorf("read the node overlays of pool %q: %w", name, err)
	}
	laid, judged := a.overlays.Lay(pool, types)
	if !judged {
		return nil, fmt.Errorf("the node overlays of pool %q are not known yet", name)
	}
	return laid, nil
}

// labels is what label keys mean on EKS.
func labels() requirement.Labels { return requirement.Labels{Vocabulary: awsv1.Vocabulary()} }

// addLoops adds what looks at the whole cluster, on the leader only.
func (a *assembly) addLoops(ec2 *aws.Cloud, state *cluster.State) error {
	c, live, log, now := a.mgr.GetClient(), a.mgr.GetAPIReader(), a.log, time.Now
	interruption, err := a.interruption(ec2)
	errs := []error{err}
	for _, loop := range append(interruption, []manager.Runnable{
		a.evictor,
		a.checkup(ec2),
		&provisioning.Provisioner{
			Client: c, Live: live, State: state, Batch: a.batch, Events: a.events, Metrics: a.metrics, Decisions: a.decisions, Log: log, Now: now,
			ValidatePlans: a.settings.ValidatePlans, Quarantine: a.leftOut, Panics: a.panics,
		},
		&nodepoolstatus.Counter{Client: c, State: state, Metrics: a.metrics, Unmeasured: a.settings.DisableClusterStateObservability, Log: log},
		&adoption.Loop{Client: c, Cloud: ec2, Events: a.events, Metrics: a.metrics, Log: log, Now: now},
		&garbagecollection.Instances{Client: c, Live: live, Cloud: ec2, Events: a.events, Metrics: a.metrics, Log: log, Now: now},
		&garbagecollection.Claims{Client: c, Cloud: ec2, Events: a.events, Metrics: a.metrics, Log: log},
		&reservation.Loop{Client: c, Cloud: ec2, Metrics: a.metrics, Log: log},
		&refresh.Catalog{Cloud: ec2, Log: log},
		&refresh.Templates{Cloud: ec2, Log: log, Now: now},
		&instanceprofile.Loop{Live: live, Cloud: ec2, Log: log},
	}...) {
		errs = append(errs, a.mgr.Add(loop))
	}
	return errors.Join(errs...)
}

// cloud prepares AWS.
func (a *assembly) cloud(ctx context.Context) (*aws.Cloud, error) {
	var cfg awssdk.Config
	if err := patiently(ctx, a.log, "region and credentials", func(ctx context.Context) (err error) {
		if cfg, err = loadSDK(ctx, a.log, a.awsCalls); err != nil {
			return err
		}
		return session.Authenticate(ctx, cfg, os.Getenv)
	}); err != nil {
		return nil, err
	}
	system, err := a.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the identity of the cluster: %w", err)
	}
	server, err := serverVersion(a.clientset.Discovery())
	if err != nil {
		return nil, err
	}
	data, err := offline.Load(cfg.Region)
	if err != nil {
		return nil, err
	}
	local, err := apiServer(a.mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	local.EKS = strings.Contains(server.GitVersion, "-eks-")
	meter, err := metrics.NewCloud(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	config := aws.Config{
		AWS: cfg,
		Identity: identity.Identity{
			ClusterUID: string(system.UID), ClusterName: a.settings.ClusterName, Region: cfg.Region,
		},
		Cluster: bootstrap.Cluster{
			Name: a.settings.ClusterName, Endpoint: a.settings.ClusterEndpoint,
			CABundle: cmp.Or(a.settings.ClusterCABundle, base64.StdEncoding.EncodeToString(local.CA)),
			DNS:      a.clusterDNS(ctx),
		},
		KubernetesVersion:  minor(server),
		VersionFromEKS:     a.settings.EKSControlPlane,
		IsolatedVPC:        a.settings.IsolatedVPC,
		MemoryOverhead:     a.settings.VMMemoryOverheadPercent,
		ReservedENIs:       a.settings.ReservedENIs,
		AMIRefresh:         a.settings.AMIRefreshInterval,
		SubnetRefresh:      a.settings.SubnetRefreshInterval,
		StrictMinValues:    a.settings.MinValuesPolicy == "Strict",
		ReservedCapacity:   a.settings.Gate(settings.GateReservedCapacity),
		KubeletExpressions: a.settings.AWSGate(settings.GateNodeClassCEL),
		Fallback:           data,
		DisableDryRun:      a.settings.DisableDryRun,
		ZonalShift:         a.settings.EnableZonalShift,
		NodePools:          a.nodePools,
		Match:              a.match,
		APIServer:          apiserver.Reader{Live: a.mgr.GetAPIReader()},
		Leading:            a.mgr.Elected(),
		Meter:              meter,
		Now:                time.Now,
		Log:                a.log,
	}
	config.ServerVersion = func(context.Context) (string, error) {
		server, err := serverVersion(a.clientset.Discovery())
		return minor(server), err
	}
	if a.overlays != nil {
		config.Overlay, config.UserPrices = a.overlay, a.overlays.Prices
	}
	ec2, err := aws.New(config)
	if err != nil {
		return nil, err
	}
	if err := a.ready(ctx, ec2, local); err != nil {
		return nil, err
	}
	return ec2, nil
}

// ready refuses to start on the wrong cluster or without AWS, and reads what has to be known before the first plan.
func (a *assembly) ready(ctx context.Context, ec2 *aws.Cloud, local aws.APIServer) error {
	if err := patiently(ctx, a.log, "the cluster", func(ctx context.Context) error { return ec2.Preflight(ctx, local) }); err != nil {
		return err
	}
	if missing := ec2.MissingPermissions(ctx); len(missing) > 0 {
		a.log.Error("the controller's role lacks permissions; allow them as the policy does that `dovetail iam-policy` prints", "missing", missing)
	}
	if err := firstShifts(ctx, a.log, ec2.RefreshZonalShifts); err != nil {
		return err
	}
	if err := patiently(ctx, a.log, "instance types", ec2.RefreshTypes); err != nil {
		return fmt.Errorf("read instance types: %w", err)
	}
	if err := ec2.RefreshPrices(ctx); err != nil {
		a.log.Warn("prices cannot be read; those that ship with the program are used", "error", err)
	}
	return nil
}

// nodePools are all of the cluster.
func (a *assembly) nodePools(ctx context.Context) ([]karpv1.NodePool, error) {
	var pools karpv1.NodePoolList
	if err := a.mgr.GetClient().List(ctx, &pools); err != nil {
		return nil, err
	}
	return pools.Items, nil
}

// match finds the NodeClaim with a provider ID, where a Node has it, too.
func (a *assembly) match(providerID string) identity.Match {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	match, _ := matching(ctx, a.mgr.GetClient(), providerID) // what cannot be read is no match
	return match
}

// matching finds the NodeClaim with a provider ID, where exactly one Node has it, too.
func matching(ctx context.Context, r client.Reader, providerID string) (identity.Match, error) {
	nodes, err := cluster.NodesOf(ctx, r, providerID)
	if err != nil || len(nodes) != 1 {
		return identity.Match{}, err
	}
	claims, err := cluster.ClaimsOf(ctx, r, providerID)
	if err != nil || len(claims) != 1 || !awsv1.IsEC2NodeClass(claims[0].Spec.NodeClassRef) {
		return identity.Match{}, err
	}
	return identity.Match{ClaimName: claims[0].Name, ClaimUID: string(claims[0].UID)}, nil
}

// clusterDNS is the address of the cluster's DNS service; empty if it has none, and nodes find out themselves.
func (a *assembly) clusterDNS(ctx context.Context) string {
	service, err := a.clientset.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		a.log.Warn("the address of the cluster's DNS is not known; nodes use their own default", "error", err)
		return ""
	}
	return service.Spec.ClusterIP
}

// apiServer is how this process reaches and trusts the API server.
func apiServer(config *rest.Config) (aws.APIServer, error) {
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return aws.APIServer{}, fmt.Errorf("read the API server's CA: %w", err)
		}
	}
	return aws.APIServer{Endpoint: config.Host, CA: ca}, nil
}
