// Package adapter builds the AWS side of the controller from one configuration: each part in it has a package of its own, and
// serves the controllers that name its methods in an interface of theirs.
//
// Only what has the identity of this cluster is ever changed, see package identity.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	pricingapi "github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/aws/joincheck"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclaim"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/preflight"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Config describes what an Adapter is made of. AWS, Identity, Log and Now are required.
type Config struct {
	// AWS is the SDK's configuration: region, credentials, endpoint.
	AWS      aws.Config
	Identity identity.Identity
	// Cluster holds what is configured of the cluster; Preflight fills in the rest from EKS.
	Cluster bootstrap.Cluster
	// KubernetesVersion is the minor version of the API server, such as 1.33.
	KubernetesVersion string
	// ServerVersion reads the minor version from the API server again. Nil keeps KubernetesVersion.
	ServerVersion func(ctx context.Context) (string, error)
	// VersionFromEKS takes the version from EKS instead (settings.eksControlPlane).
	VersionFromEKS bool
	// OnlyEKS refuses a name that EKS does not know: see ekscluster.Config.
	OnlyEKS bool
	// IsolatedVPC has no route to the Pricing API, and none to IAM other than to create profiles.
	IsolatedVPC bool
	// MemoryOverhead is the fraction of memory that the hypervisor keeps for itself, for example 0.075.
	MemoryOverhead float64
	ReservedENIs   int
	// AMIRefresh, SubnetRefresh and SecurityGroupRefresh state how long images, subnets and security groups are cached; a minute at
	// least.
	AMIRefresh, SubnetRefresh, SecurityGroupRefresh time.Duration
	// StrictMinValues is true for the minValues policy Strict.
	StrictMinValues bool
	// ReservedCapacity is the feature gate of that name.
	ReservedCapacity bool
	// KubeletExpressions is the feature gate NodeClassCEL, NVIDIADevices is DRANVIDIAGPU.
	KubeletExpressions, NVIDIADevices bool
	// DRADrivers are the DRA drivers with devices that instance types come with.
	DRADrivers []string
	// UserPrices are the user's, in $/h by type, for types without a price of AWS, and a version that changes with them. Nil has none.
	UserPrices func() (prices map[string]float64, version int)
	// Overlay applies the NodeOverlays of the claim's pool to instance types. Nil leaves the types as they are.
	Overlay func(ctx context.Context, claim *karpv1.NodeClaim, types []*catalog.InstanceType) ([]*catalog.InstanceType, error)
	// Fallback has the on-demand prices until the Pricing API has answered.
	Fallback pricing.Fallback
	// Surplus permits the termination of an instance that EC2 has launched beyond what was requested. Nil leaves it to garbage collection.
	Surplus func(ctx context.Context, i cloudprovider.Instance) (destroy.Permit, error)
	// Match finds the NodeClaim with a provider ID, if a Node of this API server has it, too. Such an instance without identity is
	// adoptable. Nil finds none.
	Match func(providerID string) identity.Match
	// ZonalShift follows zonal shifts of the cluster: nothing is launched in a zone that it is shifted away from.
	ZonalShift bool
	// DisableDryRun skips the dry run of a launch when a node class is validated.
	DisableDryRun bool
	// NodePools are all of the cluster: they decide what is launched from a class. Nil has none.
	NodePools func(ctx context.Context) ([]karpv1.NodePool, error)
	// APIServer reads what decides in the cluster whether nodes join. Nil leaves that unchecked.
	APIServer joincheck.APIServer
	// Records keep what EKS returns of the cluster for the next process; nil keeps nothing.
	Records ekscluster.Records
	// Kept keeps instance types and prices for the next process; nil keeps nothing.
	Kept offerings.Keeper
	// Waiting returns why instance types are not read yet, where somebody else calls Offerings.RefreshTypes until it succeeds. Nil has them
	// read when they are first needed.
	Waiting func() error
	// Leading is closed when this process becomes the leader; nil where it leads from the start.
	Leading <-chan struct{}
	// Window states how long requests are gathered for one call; zero means what EC2's limits require.
	Window batch.Window
	// Meter counts for metrics. Nil counts nothing.
	Meter cloudprovider.Meter
	Now   func() time.Time
	// Jitter returns a number in [0, 1).
	Jitter func() float64
	Log    *slog.Logger
}

// Adapter is AWS for one cluster. Each part is safe for concurrent use.
type Adapter struct {
	// Cluster is the EKS cluster: endpoint, CA, version, ARN.
	Cluster   *ekscluster.Cluster
	Preflight *preflight.Checker

	// NodeClasses resolves node classes, Resources deletes what was created for them, Joins checks whether their nodes can join.
	NodeClasses *nodeclass.Resolver
	Resources   *nodeclass.Resources
	Joins       *nodeclass.JoinChecks

	// Offerings are instance types and prices.
	Offerings *offerings.Source
	// Launcher launches the instances of claims, Drift compares them with their class.
	Launcher *nodeclaim.Launcher
	Drift    *nodeclaim.DriftDetector
	// Instances reads, tags and terminates instances.
	Instances *zonalshift.Instances
	// Rebooter reboots instances.
	Rebooter *zonalshift.Rebooter
	// InstanceStatus reads which instances are impaired.
	InstanceStatus *interruption.StatusReader
	// ZonalShift follows zonal shifts, where that is configured.
	ZonalShift *zonalshift.Follower
}

// New returns an Adapter. It makes no calls.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	resolver, err := instancetype.New(instancetype.Settings{
		Region: cfg.Identity.Region, ReservedENIs: cfg.ReservedENIs, MemoryOverhead: cfg.MemoryOverhead, Expressions: cfg.KubeletExpressions,
		DRADrivers: cfg.DRADrivers,
	})
	if err != nil {
		return nil, err
	}
	l := newLeaves(cfg, resolver)
	a := &Adapter{
		Cluster:        l.cluster,
		Preflight:      preflight.New(l.ec2, l.cluster, cfg.Identity.Region),
		Joins:          nodeclass.NewJoinChecks(l.joins),
		Instances:      zonalshift.NewInstances(l.instances, l.network, l.shifts, cfg.Now),
		InstanceStatus: &interruption.StatusReader{EC2: l.ec2, Now: cfg.Now},
		ZonalShift:     zonalshift.NewFollower(l.shifts, l.cluster, cfg.Identity.Region, cfg.Now),
	}
	a.Rebooter = zonalshift.NewRebooter(a.Instances, &instance.Rebooter{Instances: l.instances, EC2: l.ec2})
	a.Offerings = offerings.New(offerings.Config{
		Inventory: l.inventory, Prices: l.prices, Reservations: l.reservations, Unavailable: l.unavailable, Discovered: l.discovered,
		Kept: cfg.Kept, Log: cfg.Log,
	})
	a.Resources = nodeclass.NewResources(nodeclass.ResourcesConfig{
		Profiles: l.profiles, Templates: l.templates, DryRuns: l.dryRuns, Meter: cfg.Meter, IsolatedVPC: cfg.IsolatedVPC,
	})
	a.NodeClasses = nodeclass.NewResolver(nodeclass.Config{
		EC2: l.ec2, Cluster: l.cluster, Network: l.network, Images: l.images, Groups: l.groups, Reservations: l.reservations,
		Profiles: l.profiles, Offerings: a.Offerings, Inventory: l.inventory, Joins: l.joins, Launcher: l.launcher, DryRuns: l.dryRuns,
		NodePools: cfg.NodePools, DisableDryRun: cfg.DisableDryRun, KubeletExpressions: cfg.KubeletExpressions,
		NVIDIADevices: cfg.NVIDIADevices, Now: cfg.Now,
	})
	a.Launcher = nodeclaim.NewLauncher(nodeclaim.LauncherConfig{
		Launch: l.launcher, Offerings: a.Offerings, Inventory: l.inventory, Groups: l.groups, Cluster: l.cluster, Overlay: cfg.Overlay,
		Log: cfg.Log,
	})
	a.Drift = nodeclaim.NewDriftDetector(nodeclaim.DriftConfig{
		Offerings: a.Offerings, Groups: l.groups, Instances: a.Instances, ReservedCapacity: cfg.ReservedCapacity, Now: cfg.Now,
	})
	return a, nil
}

// complete validates the configuration, and sets defaults.
func (cfg *Config) complete() error {
	if err := cfg.Identity.Validate(); err != nil {
		return err
	}
	if cfg.Cluster.Name != cfg.Identity.ClusterName {
		return fmt.Errorf("the cluster is named %q and identified as %q", cfg.Cluster.Name, cfg.Identity.ClusterName)
	}
	if cfg.Now == nil || cfg.Log == nil {
		return errors.New("an adapter needs a clock and a log")
	}
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.NoMeter{}
	}
	cfg.AMIRefresh, cfg.SubnetRefresh = max(cfg.AMIRefresh, time.Minute), max(cfg.SubnetRefresh, time.Minute)
	cfg.SecurityGroupRefresh = max(cfg.SecurityGroupRefresh, time.Minute)
	return nil
}

// leaves are the parts that several others share.
type leaves struct {
	ec2       *ec2.Client
	cluster   *ekscluster.Cluster
	network   *network.Finder
	addresses *network.Addresses
	images    *image.Finder
	groups    *placement.Finder
	// reservations is nil while the feature gate is off.
	reservations *reservation.Finder
	profiles     *instanceprofile.Profiles
	prices       *pricing.Prices
	unavailable  *unavailableofferings.Cache
	discovered   *discoveredmemory.Memory
	// shifts is nil where zonal shifts are not followed.
	shifts    *zonalshift.Watcher
	inventory *inventory.Source
	joins     *joincheck.Checker
	dryRuns   *dryrun.Cache
	instances *instance.Instances
	templates *launch.Templates
	launcher  *launch.Launcher
}

func newLeaves(cfg Config, resolver *instancetype.Resolver) *leaves {
	l := &leaves{ec2: ec2.NewFromConfig(cfg.AWS)}
	clusterAPI, iamAPI := eks.NewFromConfig(cfg.AWS), iam.NewFromConfig(cfg.AWS)
	l.cluster = ekscluster.New(ekscluster.Config{
		EKS: clusterAPI, Name: cfg.Identity.ClusterName, Region: cfg.Identity.Region, Known: cfg.Cluster,
		KubernetesVersion: cfg.KubernetesVersion, ServerVersion: cfg.ServerVersion, VersionFromEKS: cfg.VersionFromEKS, OnlyEKS: cfg.OnlyEKS,
		Log: cfg.Log, ClusterUID: cfg.Identity.ClusterUID, Records: cfg.Records,
	})
	l.addresses = network.NewAddresses(cfg.SubnetRefresh, cfg.Now)
	l.network = network.NewFinder(
		l.ec2,
		network.Intervals{Subnets: cfg.SubnetRefresh, SecurityGroups: cfg.SecurityGroupRefresh},
		l.addresses,
		cfg.Now,
	)
	l.images = image.NewFinder(l.ec2, ssm.NewFromConfig(cfg.AWS), cfg.AMIRefresh, cfg.Now)
	l.groups = placement.NewFinder(l.ec2, cfg.Now)
	l.profiles = instanceprofile.New(iamAPI, cfg.Identity, cfg.Now)
	l.joins = joincheck.New(joincheck.Config{
		EC2: l.ec2, EKS: clusterAPI, IAM: iamAPI, STS: sts.NewFromConfig(cfg.AWS), APIServer: cfg.APIServer,
		Cluster: join.Cluster{Name: cfg.Identity.ClusterName, Region: cfg.Identity.Region}, Version: l.cluster.KubernetesVersion,
		NoIAM: cfg.IsolatedVPC, Now: cfg.Now,
	})
	l.prices = newPrices(cfg, l.ec2)
	if cfg.ReservedCapacity {
		l.reservations = reservation.NewFinder(l.ec2, cfg.Now, cfg.Log)
	}
	l.unavailable = unavailableofferings.New(cfg.Now)
	l.discovered = discoveredmemory.New(cfg.Now)
	l.dryRuns = dryrun.NewCache(cfg.Now, cfg.Jitter)
	l.inventory = l.newInventory(cfg, resolver)
	instances := instance.Config{
		EC2: l.ec2, Identity: cfg.Identity, Match: cfg.Match, Window: cfg.Window, Meter: cfg.Meter, Leading: cfg.Leading, Now: cfg.Now,
	}
	if l.reservations != nil {
		instances.ReservationFreed = l.reservations.Ended
	}
	l.instances = instance.New(instances)
	l.templates = launch.NewTemplates(l.ec2, cfg.Identity, cfg.Now)
	l.launcher = l.newLauncher(cfg)
	return l
}

// newPrices logs which prices are never read from AWS.
func newPrices(cfg Config, api *ec2.Client) *pricing.Prices {
	prices := pricing.New(pricing.Config{
		Region: cfg.Identity.Region, EC2: api, Pricing: pricingClient(cfg), Fallback: cfg.Fallback, Now: cfg.Now,
	})
	for _, s := range prices.State() {
		if s.NotReadReason != "" {
			cfg.Log.Info(
				"prices are those that ship with the program",
				"capacityType",
				s.CapacityType,
				"prices",
				s.Basis,
				"reason",
				s.NotReadReason,
			)
		}
	}
	return prices
}

// pricingClient is nil where the Pricing API cannot be reached.
func pricingClient(cfg Config) pricingapi.GetProductsAPIClient {
	if cfg.IsolatedVPC {
		return nil
	}
	return pricingapi.NewFromConfig(cfg.AWS, func(o *pricingapi.Options) { o.Region = pricing.PricingRegion(cfg.Identity.Region) })
}

func (l *leaves) newInventory(cfg Config, resolver *instancetype.Resolver) *inventory.Source {
	var shifted func(zoneID string) bool
	if cfg.ZonalShift {
		l.shifts = zonalshift.New(arczonalshift.NewFromConfig(cfg.AWS), cfg.Now)
		shifted = l.shifts.Away
	}
	return inventory.New(inventory.Config{
		ZoneShifted: shifted,
		EC2:         l.ec2, Resolver: resolver, Prices: l.prices, UnavailableOfferings: l.unavailable, DiscoveredMemory: l.discovered,
		Groups:       l.groups,
		Reservations: l.reservations, UserPrices: cfg.UserPrices, Waiting: cfg.Waiting, Now: cfg.Now,
	})
}

func (l *leaves) newLauncher(cfg Config) *launch.Launcher {
	launching := launch.Config{
		EC2: l.ec2, Identity: cfg.Identity, Templates: l.templates, Instances: l.instances, Addresses: l.addresses,
		UnavailableOfferings: l.unavailable,
		Cluster:              l.cluster.Bootstrap, StrictMinValues: cfg.StrictMinValues, Window: cfg.Window, Meter: cfg.Meter, Now: cfg.Now,
		Log: cfg.Log, Surplus: cfg.Surplus,
	}
	if l.reservations != nil { // a nil pointer would make an interface that is not nil
		launching.Reservations = l.reservations
	}
	return launch.New(launching)
}
