// Package instance reads and terminates EC2 instances.
//
// EC2 shows a new instance with a delay. So this package remembers the instances that this process has launched, and
// treats an unknown ID as terminated only when it cannot belong to a new instance.
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/singleflight"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancexml"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// VisibleWithin is the time after which every existing instance is visible to reads.
const VisibleWithin = 2 * time.Minute

// endingTTL sets how long the reservation of an instance is remembered that is being terminated: longer than EC2 takes to shut down
// an instance, which is some minutes for bare metal.
const endingTTL = 15 * time.Minute

// ErrNotVisible means that EC2 does not know an instance that may be too new to be visible. Retry.
var ErrNotVisible = errors.New("instance is not visible yet")

// API is the calls of EC2 that Instances makes.
type API interface {
	ec2.DescribeInstancesAPIClient
	TerminateInstances(
		ctx context.Context,
		in *ec2.TerminateInstancesInput,
		optFns ...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
	CreateTags(ctx context.Context, in *ec2.CreateTagsInput, optFns ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
}

// Config configures Instances.
type Config struct {
	EC2      API
	Identity identity.Identity
	// Match finds the NodeClaim with a provider ID that a Node of this API server has, too. It decides which instances
	// without identity can be adopted. Nil finds none.
	Match func(providerID string) identity.Match
	// Window states how long requests wait for a batched call; zero uses a window that fits EC2's limits.
	Window batch.Window
	// Meter records failures; nil records nothing.
	Meter cloudprovider.Meter
	// ReservationFreed is given the capacity reservation of an instance that was seen to shut down and has terminated. Nil means that
	// nobody is informed.
	ReservationFreed func(id string)
	// Leading is closed when this process becomes the leader: until then another process may launch. Nil means that it
	// leads from the start.
	Leading <-chan struct{}
	Now     func() time.Time
}

// Instances are the instances of one cluster. It is safe for concurrent use.
type Instances struct {
	api      API
	identity identity.Identity
	match    func(providerID string) identity.Match
	meter    cloudprovider.Meter
	now      func() time.Time
	leading  <-chan struct{}

	mu sync.Mutex
	// leadingSince is the time when this process was first seen to lead; zero before.
	leadingSince time.Time

	// describes and terminations batch requests for single instances; slowDescribes batches those that nobody waits
	// for.
	describes, slowDescribes describeBatcher
	terminations             *batch.Batcher[struct{}, identity.Owned, struct{}]
	// launched are the instances that this process launched lately; visible are those of them that EC2 has shown.
	launched *ttlcache.Cache[string, cloudprovider.Instance]
	visible  *ttlcache.Cache[string, struct{}]
	// adopted are the instances that this process adopted lately, and adoptions those that it adopts now. A reader with an older
	// description must not tag an instance again: the usual policy denies that, since the instance has an owner.
	adopted   *ttlcache.Cache[string, struct{}]
	adoptions singleflight.Group
	// ending has the capacity reservations of instances that are being terminated. EC2 need not state them to the end.
	ending           *ttlcache.Cache[string, string]
	reservationFreed func(id string)
}

// New returns the Instances of a cluster.
func New(cfg Config) *Instances {
	if cfg.Match == nil {
		cfg.Match = func(string) identity.Match { return identity.Match{} }
	}
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.NoMeter{}
	}
	late := cfg.Window
	if cfg.Window == (batch.Window{}) {
		cfg.Window = batch.Window{Idle: 100 * time.Millisecond, Max: time.Second, Items: 500}
		late = batch.Window{Idle: time.Second, Max: 5 * time.Second, Items: 500} // nodes join one after another
	}
	s := &Instances{
		api:      cfg.EC2,
		identity: cfg.Identity,
		match:    cfg.Match,
		meter:    cfg.Meter,
		now:      cfg.Now,
		leading:  cfg.Leading,
		launched: ttlcache.New[string, cloudprovider.Instance](VisibleWithin, cfg.Now),
		visible:  ttlcache.New[string, struct{}](VisibleWithin, cfg.Now),
		adopted:  ttlcache.New[string, struct{}](VisibleWithin, cfg.Now),
		ending:   ttlcache.New[string, string](endingTTL, cfg.Now),

		reservationFreed: cfg.ReservationFreed,
	}
	if s.leading == nil {
		s.leadingSince = s.now()
	}
	s.describes = batch.New(batch.Config[struct{}, string, ec2types.Instance]{
		Name: "describe_instances", Window: cfg.Window, Call: s.describeBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched,
	})
	s.slowDescribes = batch.New(batch.Config[struct{}, string, ec2types.Instance]{
		Name: "describe_instances", Window: late, Call: s.describeBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched,
	})
	s.terminations = batch.New(batch.Config[struct{}, identity.Owned, struct{}]{
		Name: "terminate_instances", Window: cfg.Window, Call: s.terminateBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched,
	})
	return s
}

// ProviderID returns the provider ID of an instance, as in the spec of its Node.
func ProviderID(zone, id string) string { return fmt.Sprintf("aws:///%s/%s", zone, id) }

var providerID = regexp.MustCompile(`^(.*):///(.*)/(.*)$`)

// ParseProviderID returns the instance ID in a provider ID.
func ParseProviderID(s string) (string, error) {
	match := providerID.FindStringSubmatch(s)
	if match == nil || match[3] == "" {
		return "", fmt.Errorf("provider ID %q is not aws:///ZONE/INSTANCE", s)
	}
	return match[3], nil
}

// RecordLaunch records an instance that has just been launched.
func (s *Instances) RecordLaunch(i cloudprovider.Instance) { s.launched.Set(i.ID, i) }

// JustLaunched returns an instance as this process has launched it, if EC2 may not show it yet. It makes no call, and
// returns nothing for an instance that EC2 has reported as terminated.
func (s *Instances) JustLaunched(providerID string) (cloudprovider.Instance, bool) {
	id, err := ParseProviderID(providerID)
	if err != nil {
		return cloudprovider.Instance{}, false
	}
	return s.launched.Get(id)
}

// Get returns an instance as EC2 describes it now. The error is cloudprovider.ErrNotFound when the instance is
// terminated, and ErrNotVisible when that is not known yet.
func (s *Instances) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	return s.get(ctx, providerID, s.describes)
}

// describeBatcher batches reads of single instances.
type describeBatcher = *batch.Batcher[struct{}, string, ec2types.Instance]

// get is Get with the given batcher.
func (s *Instances) get(ctx context.Context, providerID string, by describeBatcher) (cloudprovider.Instance, error) {
	id, err := ParseProviderID(providerID)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	described, err := by.Do(ctx, struct{}{}, id)
	if awserrors.Is(err, awserrors.NotFound) {
		return s.missing(id)
	}
	if err != nil {
		return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, err)
	}
	found := s.convert(described, func(text string) string { return text })
	s.visible.Set(id, struct{}{})
	if found.State == cloudprovider.ShuttingDown {
		s.noteEnding(found)
	}
	if found.State == cloudprovider.Terminated {
		s.launched.Delete(id)
		s.noteEnded(id)
		return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, cloudprovider.ErrNotFound)
	}
	return found, nil
}

// noteEnding remembers the reservation of an instance that is being terminated, by this process or an earlier one.
func (s *Instances) noteEnding(i cloudprovider.Instance) {
	if i.Reservation.ID != "" {
		s.ending.Set(i.ID, i.Reservation.ID)
	}
}

// noteEnded reports the reservation of an instance that has terminated, once.
func (s *Instances) noteEnded(id string) {
	if reserved, ok := s.ending.Get(id); ok && s.reservationFreed != nil {
		s.ending.Delete(id)
		s.reservationFreed(reserved)
	}
}

// missing handles an ID that EC2 does not know. An instance that an earlier leader launched last may still be
// invisible, so for a while after a leader change no instance is treated as terminated.
func (s *Instances) missing(id string) (cloudprovider.Instance, error) {
	if i, ok := s.launched.Get(id); ok {
		return i, nil
	}
	if s.JustBecameLeader() {
		return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, ErrNotVisible)
	}
	s.noteEnded(id)
	return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, ErrUnknown)
}

// alive are the states of instances that are not terminated.
var alive = network.Filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")

// List returns every instance that an autoscaler of a cluster with this name launched, each with its owner, by ID.
// Instances of other owners are only for reports and must not be changed.
func (s *Instances) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	s.JustBecameLeader() // records that this process leads: the leader lists instances regularly
	found, err := s.describe(ctx, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			network.Filter("tag-key", awsv1.TagNodePool),
			network.Filter("tag-key", awsv1.TagNodeClass),
			network.Filter("tag:"+awsv1.TagClusterName, s.identity.ClusterName),
			alive,
		},
		MaxResults: aws.Int32(1000),
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return s.withNewlyLaunched(found, func(cloudprovider.Instance) bool { return true }), nil
}

// ForClaim returns our instances that were launched for the NodeClaim with the UID, oldest first, including terminated
// ones as long as EC2 shows them.
func (s *Instances) ForClaim(ctx context.Context, claimUID string) ([]cloudprovider.Instance, error) {
	mine := func(i cloudprovider.Instance) bool {
		return i.NodeClaimUID == claimUID && i.Owner == cloudprovider.Ours
	}
	found, err := s.describe(ctx, &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{network.Filter("tag:"+identity.TagNodeClaimUID, claimUID)},
		MaxResults: aws.Int32(1000),
	})
	if err != nil {
		return nil, fmt.Errorf("find the instance of claim %s: %w", claimUID, err)
	}
	found = slices.DeleteFunc(s.withNewlyLaunched(found, mine), func(i cloudprovider.Instance) bool { return !mine(i) })
	slices.SortFunc(found, func(a, b cloudprovider.Instance) int {
		return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// JustBecameLeader reports whether EC2 may not show yet what an earlier leader has launched.
func (s *Instances) JustBecameLeader() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leadingSince.IsZero() {
		select {
		case <-s.leading:
			s.leadingSince = s.now()
		default:
			return true
		}
	}
	return s.now().Sub(s.leadingSince) < VisibleWithin
}

// ForBatchLaunch returns our instances of a batch launch, by ID. It includes terminated ones, because slots are
// assigned by the order of all instances. EC2 shows a terminated instance for about an hour.
func (s *Instances) ForBatchLaunch(ctx context.Context, launch string) ([]cloudprovider.Instance, error) {
	found, err := s.describe(ctx, &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{network.Filter("tag:"+identity.TagLaunch, launch)},
		MaxResults: aws.Int32(1000),
	})
	if err != nil {
		return nil, fmt.Errorf("find the instances of launch %s: %w", launch, err)
	}
	found = slices.DeleteFunc(found, func(i cloudprovider.Instance) bool { return i.Owner != cloudprovider.Ours })
	slices.SortFunc(found, func(a, b cloudprovider.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

// withNewlyLaunched adds launched instances that EC2 has never shown, and sorts by ID. An instance that EC2 has shown
// and no longer lists is terminated or terminating.
func (s *Instances) withNewlyLaunched(
	found []cloudprovider.Instance,
	wanted func(cloudprovider.Instance) bool,
) []cloudprovider.Instance {
	for _, i := range found {
		s.visible.Set(i.ID, struct{}{})
	}
	for _, i := range s.launched.Values() {
		if _, shown := s.visible.Get(i.ID); !shown && wanted(i) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b cloudprovider.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

func (s *Instances) describe(ctx context.Context, in *ec2.DescribeInstancesInput) ([]cloudprovider.Instance, error) {
	var out []cloudprovider.Instance
	// Of 2 KB of an instance, half are types, zones, and keys and values of tags that many have.
	texts := map[string]string{}
	share := func(text string) string {
		if known, found := texts[text]; found {
			return known
		}
		texts[text] = text
		return text
	}
	if err := s.eachPage(ctx, in, func(i ec2types.Instance) { out = append(out, s.convert(i, share)) }); err != nil {
		return nil, err
	}
	return slices.Clip(out), nil
}

// pages returns the instances of all pages.
func (s *Instances) pages(ctx context.Context, in *ec2.DescribeInstancesInput) ([]ec2types.Instance, error) {
	var out []ec2types.Instance
	if err := s.eachPage(ctx, in, func(i ec2types.Instance) { out = append(out, i) }); err != nil {
		return nil, err
	}
	return out, nil
}

// eachPage reads one page after another. EC2 describes an instance in 15 KB, ten times what controllers use of it.
func (s *Instances) eachPage(ctx context.Context, in *ec2.DescribeInstancesInput, do func(ec2types.Instance)) error {
	pages, options := ec2.NewDescribeInstancesPaginator(s.api, in), []func(*ec2.Options){instancexml.Lean()}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx, options...)
		if errors.Is(err, instancexml.ErrNotDecoded) {
			options = nil
			page, err = pages.NextPage(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				do(i)
			}
		}
	}
	return nil
}

// convert returns the instance in the form that controllers use. It reads no fields but those of instancexml.Fields.
// share returns a text that other instances may have, too.
func (s *Instances) convert(i ec2types.Instance, share func(string) string) cloudprovider.Instance {
	out := cloudprovider.Instance{
		ID:           aws.ToString(i.InstanceId),
		Type:         share(string(i.InstanceType)),
		CapacityType: karpv1.CapacityTypeOnDemand,
		ImageID:      share(aws.ToString(i.ImageId)),
		SubnetID:     share(aws.ToString(i.SubnetId)),
		Tenancy:      awsv1.TenancyDefault,
		LaunchedAt:   aws.ToTime(i.LaunchTime),
		Tags:         make(map[string]string, len(i.Tags)),
	}
	if i.State != nil {
		out.State = cloudprovider.State(share(string(i.State.Name)))
	}
	if i.Placement != nil {
		out.Zone = share(aws.ToString(i.Placement.AvailabilityZone))
		out.ZoneID = share(aws.ToString(i.Placement.AvailabilityZoneId))
		out.Tenancy = cmp.Or(share(string(i.Placement.Tenancy)), awsv1.TenancyDefault)
		out.Placement = cloudprovider.Placement{
			GroupID:   aws.ToString(i.Placement.GroupId),
			Partition: int(aws.ToInt32(i.Placement.PartitionNumber)),
		}
	}
	if i.SpotInstanceRequestId != nil {
		out.CapacityType = karpv1.CapacityTypeSpot
	}
	if id := aws.ToString(i.CapacityReservationId); id != "" && i.CapacityReservationSpecification != nil &&
		i.CapacityReservationSpecification.CapacityReservationPreference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly {
		// An instance that merely matched an open reservation did not request it.
		out.CapacityType = karpv1.CapacityTypeReserved
		out.Reservation = cloudprovider.Reservation{
			ID: id, Type: reservation.Default, Interruptible: i.InstanceLifecycle == ec2types.InstanceLifecycleTypeInterruptibleCapacityReservation,
		}
		if i.InstanceLifecycle == ec2types.InstanceLifecycleTypeCapacityBlock {
			out.Reservation.Type = reservation.Block
		}
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroupIDs = append(out.SecurityGroupIDs, share(aws.ToString(g.GroupId)))
	}
	slices.Sort(out.SecurityGroupIDs)
	for _, t := range i.Tags {
		out.Tags[share(aws.ToString(t.Key))] = share(aws.ToString(t.Value))
	}
	out.ProviderID = ProviderID(out.Zone, out.ID)
	out.NodeClaim = out.Tags[awsv1.TagNodeClaim]
	out.NodeClaimUID = out.Tags[identity.TagNodeClaimUID]
	out.Launch = out.Tags[identity.TagLaunch]
	out.UnusedSlots = parseSlots(out.Tags[identity.TagUnusedSlots])
	out.Owner = s.identity.Owner(out.Tags, identity.Match{})
	if out.Owner == cloudprovider.Unknown {
		out.Owner = s.identity.Owner(out.Tags, s.match(out.ProviderID))
	}
	return out
}
