package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// wireAWS builds the AWS adapter, and what reads AWS until everything is known. It waits for AWS for a moment only.
func (a *assembly) wireAWS(ctx context.Context) error {
	var err error
	if a.sdk, err = session.Load(ctx, sdkOptions(a.build.Version, a.log, a.measures.awsCalls)); err != nil {
		return err
	}
	if a.pace, err = pace.Read(os.Environ(), a.sdk.BaseEndpoint); err != nil {
		return err
	}
	if a.refusals != nil {
		a.sdk = session.ReadOnly(a.sdk, a.refusals.AWS)
	}
	a.sdk = session.Guard(a.sdk, guardCalls(func() bool { return a.aws.Cluster.Verified() }))
	local, err := APIServer(a.mgr.GetConfig())
	if err != nil {
		return err
	}
	server, err := ServerVersion(a.clientset.Discovery())
	if err != nil {
		return err
	}
	local.EKS = strings.Contains(server.GitVersion, "-eks-")
	a.dependencies = a.newDependencies(local)
	a.held, a.deleting = a.mgr.holding(a.dependencies.Hold), a.mgr.holding(a.dependencies.HoldUntilRead)
	config, err := a.awsConfig(ctx, local, server)
	if err != nil {
		return err
	}
	if a.aws, err = adapter.New(config); err != nil {
		return err
	}
	return a.beginAWS(ctx, local)
}

// awsConfig is the adapter's configuration, from the settings and from what the API server knows.
func (a *assembly) awsConfig(ctx context.Context, local ekscluster.APIServer, server kubeversion.Info) (adapter.Config, error) {
	system, err := a.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return adapter.Config{}, fmt.Errorf("read the identity of the cluster: %w", err)
	}
	prices, err := offline.Load(a.sdk.Region)
	if err != nil {
		return adapter.Config{}, err
	}
	config := adapter.Config{
		AWS: a.sdk,
		Identity: identity.Identity{
			ClusterUID: string(system.UID), ClusterName: a.settings.ClusterName, Region: a.sdk.Region,
		},
		Cluster: bootstrap.Cluster{
			Name: a.settings.ClusterName, Endpoint: a.settings.ClusterEndpoint,
			CABundle: cmp.Or(a.settings.ClusterCABundle, base64.StdEncoding.EncodeToString(local.CA)),
			DNS:      a.clusterDNS(ctx),
		},
		KubernetesVersion: MinorVersion(server),
		VersionFromEKS:    a.settings.EKSControlPlane,
		IsolatedVPC:       a.settings.IsolatedVPC,
		MemoryOverhead:    a.settings.VMMemoryOverheadPercent,
		ReservedENIs:      a.settings.ReservedENIs,
		AMIRefresh:        a.settings.AMIRefreshInterval,
		SubnetRefresh:     a.settings.SubnetRefreshInterval,

		SecurityGroupRefresh: a.settings.SecurityGroupRefreshInterval,

		StrictMinValues:    a.settings.MinValuesPolicy == settings.MinValuesStrict,
		ReservedCapacity:   a.settings.Gate(settings.GateReservedCapacity),
		KubeletExpressions: a.settings.AWSGate(settings.GateNodeClassCEL),
		NVIDIADevices:      a.settings.AWSGate(settings.GateDRANVIDIAGPU),
		DRADrivers:         draDrivers(a.settings),
		Fallback:           prices,
		DisableDryRun:      a.settings.DisableDryRun,
		ZonalShift:         a.settings.EnableZonalShift,
		NodePools:          a.nodePools,
		Match:              a.match,
		Surplus:            a.surplus,
		APIServer:          apiserver.Reader{Live: a.mgr.GetAPIReader()},
		Records:            a.records(),
		Kept:               a.keeper(string(system.UID)),
		Waiting:            a.dependencies.Err,
		Leading:            a.mgr.Elected(),
		Meter:              a.measures.cloud,
		Now:                time.Now,
		Jitter:             rand.Float64,
		Log:                a.log,
	}
	config.ServerVersion = func(context.Context) (string, error) {
		server, err := ServerVersion(a.clientset.Discovery())
		return MinorVersion(server), err
	}
	if a.overlays != nil {
		config.Overlay, config.UserPrices = a.overlay, a.overlays.Prices
	}
	return config, nil
}

// draDrivers are the DRA drivers with devices that instance types come with: none while resource claims are ignored.
func draDrivers(s settings.Settings) (drivers []string) {
	if s.AWSGate(settings.GateDRANVIDIAGPU) && !s.IgnoreDRARequests {
		drivers = append(drivers, awsv1.DRADriverNVIDIA)
	}
	if s.AWSGate(settings.GateDRAEFA) && !s.IgnoreDRARequests {
		drivers = append(drivers, awsv1.DRADriverEFA)
	}
	return drivers
}

// overlay applies the NodeOverlays of a claim's pool to the instance types that the claim is launched from.
func (a *assembly) overlay(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	types []*catalog.InstanceType,
) ([]*catalog.InstanceType, error) {
	name := claim.Labels[karpv1.LabelNodePool]
	if name == "" {
		return types, nil
	}
	pool := &karpv1.NodePool{}
	if err := a.mgr.GetClient().Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, fmt.Errorf("read the node overlays of pool %q: %w", name, err)
	}
	laid, judged := a.overlays.Apply(pool, types)
	if !judged {
		return nil, fmt.Errorf("the node overlays of pool %q are not known yet", name)
	}
	return laid, nil
}

// nodePools are all NodePools of the cluster.
func (a *assembly) nodePools(ctx context.Context) ([]karpv1.NodePool, error) {
	var pools karpv1.NodePoolList
	if err := a.mgr.GetClient().List(ctx, &pools); err != nil {
		return nil, err
	}
	return pools.Items, nil
}

// match finds the NodeClaim with a provider ID, if a Node has it, too.
func (a *assembly) match(providerID string) identity.Match {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	match, _ := matching(ctx, a.mgr.GetClient(), providerID) // what cannot be read is no match
	return match
}

// matching finds the NodeClaim with a provider ID, if exactly one Node has it, too.
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

// clusterDNS is the address of the cluster's DNS service; empty if there is none, and nodes use their own default.
func (a *assembly) clusterDNS(ctx context.Context) string {
	service, err := a.clientset.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		a.log.Warn("the address of the cluster's DNS is not known; nodes use their own default", "error", err)
		return ""
	}
	return service.Spec.ClusterIP
}

// APIServer returns how this process reaches and trusts the API server.
func APIServer(config *rest.Config) (ekscluster.APIServer, error) {
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return ekscluster.APIServer{}, fmt.Errorf("read the API server's CA: %w", err)
		}
	}
	return ekscluster.APIServer{Endpoint: config.Host, CA: ca}, nil
}

// ServerVersion is the version of the API server.
func ServerVersion(client discovery.ServerVersionInterface) (kubeversion.Info, error) {
	server, err := client.ServerVersion()
	if err != nil {
		return kubeversion.Info{}, fmt.Errorf("read the version of the cluster: %w", err)
	}
	return *server, nil
}

// MinorVersion is a version as in image names, such as 1.33.
func MinorVersion(v kubeversion.Info) string { return v.Major + "." + strings.TrimSuffix(v.Minor, "+") }

// LoadSDK reads the region and credentials of AWS for a program of some version. A region that is named wins.
func LoadSDK(ctx context.Context, version, region string, log *slog.Logger) (awssdk.Config, error) {
	options := sdkOptions(version, log, nil)
	options.Region = region
	return session.Load(ctx, options)
}

func sdkOptions(version string, log *slog.Logger, calls session.Observer) session.Options {
	return session.Options{AppID: "dovetail-" + strings.ReplaceAll(version, "+", "-"), Logger: sdkLogger(log), Observer: calls}
}
