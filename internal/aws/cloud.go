// Package aws is EC2 as the controllers see it: instance types to plan with, instances to launch, read and
// end, and what a node class comes to in an account.
//
// Each noun has a package of its own below this one; Cloud joins them. Only what carries the identity of
// this cluster is ever changed, see package identity.
package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	pricingapi "github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/aws/joincheck"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Config is what a Cloud is made of. AWS, Identity, Log and Now are needed.
type Config struct {
	// AWS is the SDK's configuration: region, credentials, endpoint.
	AWS      aws.Config
	Identity identity.Identity
	// Cluster is what is known of the cluster so far; Preflight fills in what is missing from EKS.
	Cluster bootstrap.Cluster
	// KubernetesVersion is the minor version of the API server, such as 1.33.
	KubernetesVersion string
	// ServerVersion asks the API server for its minor version anew. Nil leaves KubernetesVersion as it is.
	ServerVersion func(ctx context.Context) (string, error)
	// VersionFromEKS takes the version from EKS instead (settings.eksControlPlane).
	VersionFromEKS bool
	// IsolatedVPC has no way to the Pricing API, and to IAM only for making profiles.
	IsolatedVPC bool
	// MemoryOverhead is the share of memory that a machine keeps for itself, for example 0.075.
	MemoryOverhead float64
	ReservedENIs   int
	// AMIRefresh and SubnetRefresh are how long what was found is believed; a minute at least.
	AMIRefresh, SubnetRefresh time.Duration
	// StrictMinValues is true for the minValues policy Strict.
	StrictMinValues bool
	// ReservedCapacity is the feature gate of that name.
	ReservedCapacity bool
	// KubeletExpressions is the feature gate NodeClassCEL.
	KubeletExpressions bool
	// UserPrices are the user's, in $/h by type, of types that have none otherwise, with a version that changes with
	// them. Nil has none.
	UserPrices func() (prices map[string]float64, version int)
	// Overlay returns what instance types become by what users say of them for the claim's pool. Nil leaves them.
	Overlay func(ctx context.Context, claim *karpv1.NodeClaim, types []*catalog.InstanceType) ([]*catalog.InstanceType, error)
	// Fallback has the on-demand prices until the Pricing API has answered.
	Fallback pricing.Fallback
	// Match finds the NodeClaim with a provider ID, where a Node of this API server has it, too. Such an
	// instance without identity is adoptable. Nil finds none.
	Match func(providerID string) identity.Match
	// ZonalShift follows zonal shifts of the cluster: nothing is launched in a zone that it is to keep away from.
	ZonalShift bool
	// DisableDryRun leaves out asking EC2 whether instances of a class may be launched.
	DisableDryRun bool
	// NodePools are all of the cluster: they tell what is going to be launched from a class. Nil has none.
	NodePools func(ctx context.Context) ([]karpv1.NodePool, error)
	// APIServer tells of the cluster what decides whether nodes join. Nil leaves that unchecked.
	APIServer joincheck.APIServer
	// Leading is closed when this process begins to act, as one of several of which one does; nil where it does from the start.
	Leading <-chan struct{}
	// Window is how long requests are gathered for one call; zero means what EC2's limits call for.
	Window batch.Window
	// Meter is told what operators count. Nil tells nobody.
	Meter cloudprovider.Meter
	Now   func() time.Time
	Log   *slog.Logger
}

// Cloud is EC2 for one cluster. It is safe for concurrent use.
type Cloud struct {
	cfg       Config
	ec2       *ec2.Client
	eks       *eks.Client
	network   *network.Finder
	images    *image.Finder
	profiles  *instanceprofile.Profiles
	prices    *pricing.Prices
	inventory *inventory.Source
	// reservations is nil while the feature gate is off.
	reservations *reservation.Finder
	scarcity     *unavailableofferings.Memory
	instances    *instance.Instances
	templates    *launch.Templates
	launcher     *launch.Launcher
	joins        *joincheck.Checker
	groups       *placement.Finder
	observed     *discoveredmemory.Memory
	sightings    *sightings
	// missed is when a reservation was first missed in which an instance is, by its ID.
	missed     *memo.Memo[string, time.Time]
	rehearsals *dryrun.Memory
	// shifts is nil where zonal shifts are not followed.
	shifts *zonalshift.Watcher
	// shiftState is what the last attempts to read them have come to; guarded by mu.
	shiftState cloudprovider.ShiftState
	listed     listed

	mu      sync.RWMutex
	cluster bootstrap.Cluster
	arn     string // of the EKS cluster, once it is needed
	version string
	// versionJudged is true once it was said of version that it is not supported, if so.
	versionJudged bool
	// local is the API server that Preflight was told of.
	local APIServer
	// withoutCluster is true while EKS does not say what the cluster is, and that is done without.
	withoutCluster bool
}

// New returns a Cloud. It calls nobody.
func New(cfg Config) (*Cloud, error) {
	if err := cfg.Identity.Validate(); err != nil {
		return nil, err
	}
	if cfg.Cluster.Name != cfg.Identity.ClusterName {
		return nil, fmt.Errorf("the cluster is named %q and identified as %q", cfg.Cluster.Name, cfg.Identity.ClusterName)
	}
	if cfg.Now == nil || cfg.Log == nil {
		return nil, errors.New("a cloud needs a clock and a log")
	}
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.Unmeasured{}
	}
	cfg.AMIRefresh, cfg.SubnetRefresh = max(cfg.AMIRefresh, time.Minute), max(cfg.SubnetRefresh, time.Minute)
	resolver, err := instancetype.New(instancetype.Settings{
		Region: cfg.Identity.Region, ReservedENIs: cfg.ReservedENIs, MemoryOverhead: cfg.MemoryOverhead, Expressions: cfg.KubeletExpressions,
	})
	if err != nil {
		return nil, err
	}
	c := &Cloud{cfg: cfg, ec2: ec2.NewFromConfig(cfg.AWS), eks: eks.NewFromConfig(cfg.AWS), cluster: cfg.Cluster, version: cfg.KubernetesVersion}
	memory := unavailableofferings.New(cfg.Now)
	c.scarcity = memory
	addresses := network.NewAddresses(cfg.SubnetRefresh, cfg.Now)
	c.network = network.NewFinder(c.ec2, cfg.SubnetRefresh, addresses, cfg.Now)
	c.images = image.NewFinder(c.ec2, ssm.NewFromConfig(cfg.AWS), cfg.AMIRefresh, cfg.Now)
	c.profiles = instanceprofile.New(iam.NewFromConfig(cfg.AWS), cfg.Identity, cfg.Now)
	c.joins = joincheck.New(joincheck.Config{
		EC2: c.ec2, EKS: c.eks, IAM: iam.NewFromConfig(cfg.AWS), STS: sts.NewFromConfig(cfg.AWS), APIServer: cfg.APIServer,
		Cluster: join.Cluster{Name: cfg.Identity.ClusterName, Region: cfg.Identity.Region}, Version: c.KubernetesVersion,
		NoIAM: cfg.IsolatedVPC, Now: cfg.Now,
	})
	c.prices = pricing.New(pricing.Config{
		Region: cfg.Identity.Region, EC2: c.ec2, Pricing: pricingClient(cfg), Fallback: cfg.Fallback, Now: cfg.Now,
	})
	for _, s := range c.prices.State() {
		if s.Unasked != "" {
			cfg.Log.Info("prices are those that ship with the program", "capacityType", s.CapacityType, "prices", s.Basis, "reason", s.Unasked)
		}
	}
	if cfg.ReservedCapacity {
		c.reservations = reservation.NewFinder(c.ec2, cfg.Now, cfg.Log)
	}
	c.groups = placement.NewFinder(c.ec2, cfg.Now)
	c.observed = discoveredmemory.New(cfg.Now)
	var shifted func(zoneID string) bool
	if cfg.ZonalShift {
		c.shifts = zonalshift.New(arczonalshift.NewFromConfig(cfg.AWS), cfg.Now)
		shifted = c.shifts.Away
	}
	c.inventory = inventory.New(inventory.Config{
		Shifted: shifted,
		EC2:     c.ec2, Resolver: resolver, Prices: c.prices, Scarcity: memory, Observed: c.observed, Groups: c.groups,
		Reservations: c.reservations, UserPrices: cfg.UserPrices, Now: cfg.Now,
	})
	c.rehearsals = dryrun.NewMemory(cfg.Now)
	c.instances = instance.New(instance.Config{EC2: c.ec2, Identity: cfg.Identity, Match: cfg.Match, Window: cfg.Window, Meter: cfg.Meter, Leading: cfg.Leading, Now: cfg.Now})
	c.missed = memo.New[string, time.Time](missedFor, cfg.Now)
	c.sightings = &sightings{list: c.List, get: c.launchedOrRead, now: cfg.Now}
	c.templates = launch.NewTemplates(c.ec2, cfg.Identity, cfg.Now)
	launching := launch.Config{
		EC2: c.ec2, Identity: cfg.Identity, Templates: c.templates, Instances: c.instances, Addresses: addresses, Scarcity: memory,
		Cluster: c.Cluster, StrictMinValues: cfg.StrictMinValues, Window: cfg.Window, Meter: cfg.Meter, Now: cfg.Now, Log: cfg.Log,
	}
	if c.reservations != nil {
		launching.Reservations = c.reservations
	}
	c.launcher = launch.New(launching)
	return c, nil
}

// pricingClient is nil where the Pricing API cannot be reached.
func pricingClient(cfg Config) pricingapi.GetProductsAPIClient {
	if cfg.IsolatedVPC {
		return nil
	}
	return pricingapi.NewFromConfig(cfg.AWS, func(o *pricingapi.Options) { o.Region = pricing.PricingRegion(cfg.Identity.Region) })
}

// Cluster is what nodes are told of the cluster, as far as it is known.
func (c *Cloud) Cluster() bootstrap.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.cluster
}

// KubernetesVersion is the minor version that images are chosen for.
func (c *Cloud) KubernetesVersion() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Refresh renews what goes out of date slowly: instance types and prices. What cannot be had stays as it was.
func (c *Cloud) Refresh(ctx context.Context) error {
	return errors.Join(c.RefreshTypes(ctx), c.RefreshPrices(ctx))
}

// RefreshTypes lists what EC2 sells in the region. Without a first success nothing can be launched.
func (c *Cloud) RefreshTypes(ctx context.Context) error { return c.inventory.Refresh(ctx) }

// RefreshPrices asks for prices. Until it succeeds, those that ship with the program are used.
func (c *Cloud) RefreshPrices(ctx context.Context) error { return c.prices.Refresh(ctx) }

// InstanceTypes returns every type as the class would launch it now, by name.
func (c *Cloud) InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	c.countReservations(ctx, class)
	return c.inventory.Types(ctx, class)
}

// countReservations makes sure that the reservations of a class are counted, so that a process that has just started uses
// them before the class is next resolved.
func (c *Cloud) countReservations(ctx context.Context, class *awsv1.EC2NodeClass) {
	if c.reservations == nil || c.reservations.Counts(class.Status.CapacityReservations) {
		return
	}
	if _, err := c.reservations.Reservations(ctx, classKey(class), class.Spec.CapacityReservationSelectorTerms); err != nil {
		c.cfg.Log.Warn("capacity reservations cannot be counted, and are not used", "nodeClass", class.Name, "error", awserrors.Plain(err))
	}
}

// Price returns the present price of an offering in $/h.
func (c *Cloud) Price(instanceType, zone, capacityType string) (float64, bool) {
	switch price, known := c.prices.OnDemand(instanceType); capacityType {
	case karpv1.CapacityTypeSpot:
		return c.prices.Spot(instanceType, zone)
	case karpv1.CapacityTypeReserved:
		return price / instancetype.ReservedDiscount, known
	default:
		return price, known
	}
}

// Get returns an instance; cloud.ErrNotFound when it is gone for good.
func (c *Cloud) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	i, err := c.instances.Get(ctx, providerID)
	return i, awserrors.Plain(c.doubted(providerID, err))
}

// launchedOrRead returns an instance as this process has just launched it, else as EC2 describes it. What a launch has asked for
// and EC2 has answered is all that can be compared with a node class.
func (c *Cloud) launchedOrRead(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	if i, ok := c.instances.JustLaunched(providerID); ok {
		return i, nil
	}
	return c.Get(ctx, providerID)
}

// List returns the instances of all clusters of this name, each with its owner.
func (c *Cloud) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	found, err := c.instances.List(ctx)
	if err != nil {
		return nil, err
	}
	return c.withMissing(ctx, found), nil
}

// FindByClaim returns our instances that were launched for a claim, whatever the claim's status says. The error says that
// it is not known yet.
func (c *Cloud) FindByClaim(ctx context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	return c.launcher.Find(ctx, claim)
}

// Terminate ends an instance that is ours. It returns nil while the instance is on its way out,
// cloud.ErrNotFound once it is gone, and an error that is identity.ErrNotOurs when it is not ours to end.
func (c *Cloud) Terminate(ctx context.Context, providerID string) error {
	return awserrors.Plain(c.doubted(providerID, c.instances.Terminate(ctx, providerID)))
}

// Adopt gives an adoptable instance this cluster's identity.
func (c *Cloud) Adopt(ctx context.Context, i cloudprovider.Instance) error {
	return awserrors.Plain(c.instances.Adopt(ctx, i))
}

// Release gives an instance this cluster's identity because a person says that it is this cluster's.
func (c *Cloud) Release(ctx context.Context, i cloudprovider.Instance) error {
	return awserrors.Plain(c.instances.Release(ctx, i))
}

// Name gives an instance of ours the tags by which people find it, once its node has joined.
func (c *Cloud) Name(ctx context.Context, providerID, node, claim string) error {
	return awserrors.Plain(c.doubted(providerID, c.instances.Name(ctx, providerID, node, claim)))
}

// Launching reports whether a launch for the claim with this UID is in progress, or its outcome not known yet.
func (c *Cloud) Launching(claimUID string) bool { return c.launcher.Busy(claimUID) }

// CollectLaunchTemplates deletes launch templates of this cluster that were made before cutoff and are not in use.
func (c *Cloud) CollectLaunchTemplates(ctx context.Context, cutoff time.Time) error {
	return c.templates.Collect(ctx, cutoff)
}

// CollectInstanceProfiles deletes instance profiles of this cluster that have not been used for an hour, and returns their names.
// use is asked for after they have been listed. Where IAM cannot be reached it does nothing.
func (c *Cloud) CollectInstanceProfiles(ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error)) ([]string, error) {
	if c.cfg.IsolatedVPC {
		return nil, nil
	}
	return c.profiles.Collect(ctx, use)
}

// Launch gives the claim its instance: the one that was launched for it before, if there is one, else a new
// one. Called again for the same claim it returns the same instance. Errors are those of package cloud.
func (c *Cloud) Launch(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) (cloudprovider.Launched, error) {
	return c.launch(ctx, claim, class, nil)
}

// LaunchTogether is Launch, by one call with other claims that ask for the same at about the same time. Before that call
// enroll is given what the claim's annotation karpv1.AnnotationLaunch is to say; it must write that and fail if the claim has
// changed since it was read. A claim that does not have the annotation is launched alone.
func (c *Cloud) LaunchTogether(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, enroll func(ctx context.Context, mark string) error) (cloudprovider.Launched, error) {
	if claim.Annotations[karpv1.AnnotationLaunch] == "" {
		enroll = nil
	}
	return c.launch(ctx, claim, class, enroll)
}

func (c *Cloud) launch(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, enroll launch.Enroll) (cloudprovider.Launched, error) {
	defer c.launcher.Begin(string(claim.UID))()
	i, adopted, err := c.launcher.Adopt(ctx, claim)
	if err != nil {
		return cloudprovider.Launched{}, err
	}
	if key := restrictedTag(class.Spec.Tags); key != "" && !adopted {
		return cloudprovider.Launched{}, &cloudprovider.NodeClassNotReadyError{Err: fmt.Errorf("node class %q sets the tag %s, which is not the user's", class.Name, key)}
	}
	types, err := c.InstanceTypes(ctx, class)
	var kubelets inventory.Kubelet
	if err == nil {
		kubelets, err = c.inventory.Kubelets(ctx, class)
	}
	if err != nil { // without its labels not even an adopted instance is of use
		return cloudprovider.Launched{}, &cloudprovider.CreateError{Reason: "InstanceTypeResolutionFailed", Message: awserrors.Plain(err).Error(), Err: err}
	}
	if c.cfg.Overlay != nil {
		if types, err = c.cfg.Overlay(ctx, claim, types); err != nil {
			return cloudprovider.Launched{}, err
		}
	}
	group, err := c.groupToLaunchInto(ctx, class)
	order := launch.Order{Claim: claim, Class: class, Types: types, Group: group, Kubelet: kubelets}
	switch {
	case adopted:
		err = nil
	case err != nil:
	case enroll == nil:
		i, err = c.launcher.Launch(ctx, order)
	default:
		i, err = c.launcher.LaunchTogether(ctx, order, enroll)
	}
	if err != nil {
		return cloudprovider.Launched{}, err
	}
	c.cfg.Log.Debug("launched instance", "claim", claim.Name, "instance", i.ID, "type", i.Type, "zone", i.Zone,
		"capacityType", i.CapacityType, "adopted", adopted)
	return launched(i, claim, class, types, group, c.Cluster())
}

// nodeClassHash is what of a class makes nodes drift when it changes.
func nodeClassHash(class *awsv1.EC2NodeClass, cluster bootstrap.Cluster) (string, error) {
	return class.Hash(awsv1.HashInput{AMIFamily: image.Family(class), ClusterCABundle: cluster.CABundle})
}

// NodeClassHash is the hash of a class and the version of the way it is computed.
func (c *Cloud) NodeClassHash(class *awsv1.EC2NodeClass) (hash, version string, err error) {
	hash, err = nodeClassHash(class, c.Cluster())
	return hash, awsv1.NodeClassHashVersion, err
}

// DeleteNodeClassResources deletes what was made in AWS for a class: launch templates and instance profiles.
func (c *Cloud) DeleteNodeClassResources(ctx context.Context, class *awsv1.EC2NodeClass) error {
	var profiles error
	if !c.cfg.IsolatedVPC {
		profiles = c.profiles.DeleteAll(ctx, string(class.UID))
	}
	c.rehearsals.Forget(string(class.UID))
	templates := c.templates.DeleteAll(ctx, class.Name)
	if templates == nil {
		c.cfg.Meter.UserData(class.Name, -1)
	}
	return errors.Join(profiles, templates)
}
