// Package instance reads and ends EC2 instances.
//
// EC2 shows a new instance a little late. What this process launched is therefore remembered for a while,
// and an ID that EC2 does not know is believed to be gone only when it cannot be such a late one.
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

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// VisibleWithin is the time after which every instance that exists is visible to reads.
const VisibleWithin = 2 * time.Minute

// ErrNotVisible means that EC2 does not know an instance which may be too new for it. Try again.
var ErrNotVisible = errors.New("instance is not visible yet")

// API is what Instances calls of EC2.
type API interface {
	ec2.DescribeInstancesAPIClient
	TerminateInstances(ctx context.Context, in *ec2.TerminateInstancesInput, optFns ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
	CreateTags(ctx context.Context, in *ec2.CreateTagsInput, optFns ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
}

// Config is what Instances work with.
type Config struct {
	EC2      API
	Identity identity.Identity
	// Match finds the NodeClaim that has a provider ID, where a Node of this API server has it, too; it decides which
	// instances without identity can be adopted. Nil finds none.
	Match func(providerID string) identity.Match
	// Window is how long requests are gathered for one call; zero means what EC2's limits call for.
	Window batch.Window
	// Meter is told what goes wrong; nil tells nobody.
	Meter cloudprovider.Meter
	// Leading is closed when this process begins to act: until then another may launch. Nil means that it does from the start.
	Leading <-chan struct{}
	Now     func() time.Time
}

// Instances are those of one cluster. It is safe for concurrent use.
type Instances struct {
	api      API
	identity identity.Identity
	match    func(providerID string) identity.Match
	meter    cloudprovider.Meter
	now      func() time.Time
	leading  <-chan struct{}

	mu sync.Mutex
	// since is when this process began to act, as far as it has noticed; zero before.
	leadingSince time.Time

	// reading and ending gather requests about single instances, unhurried those that nobody waits for.
	describes, slowDescribes describeBatcher
	terminations             *batch.Batcher[struct{}, identity.Owned, struct{}]
	// fresh are the instances that this process launched lately, shown those of them that EC2 has shown.
	launched *memo.Memo[string, cloudprovider.Instance]
	visible  *memo.Memo[string, struct{}]
}

// New returns the Instances of a cluster.
func New(cfg Config) *Instances {
	if cfg.Match == nil {
		cfg.Match = func(string) identity.Match { return identity.Match{} }
	}
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.Unmeasured{}
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
		launched: memo.New[string, cloudprovider.Instance](VisibleWithin, cfg.Now),
		visible:  memo.New[string, struct{}](VisibleWithin, cfg.Now),
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

// ProviderID is how Kubernetes names an instance.
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

// Remember notes an instance that has just been launched.
func (s *Instances) RecordLaunch(i cloudprovider.Instance) { s.launched.Put(i.ID, i) }

// JustLaunched returns an instance that this process has launched so lately that EC2 may not show it yet, as it was launched. It
// calls nobody; one that EC2 has reported to be gone is none.
func (s *Instances) JustLaunched(providerID string) (cloudprovider.Instance, bool) {
	id, err := ParseProviderID(providerID)
	if err != nil {
		return cloudprovider.Instance{}, false
	}
	return s.launched.Get(id)
}

// Get returns an instance as EC2 describes it now. The error is cloud.ErrNotFound when it is gone for good,
// ErrNotVisible when that cannot be told yet.
func (s *Instances) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	return s.get(ctx, providerID, s.describes)
}

// reader gathers requests for single instances.
type describeBatcher = *batch.Batcher[struct{}, string, ec2types.Instance]

// get is Get by the calls of one reader.
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
	found := s.convert(described)
	s.visible.Put(id, struct{}{})
	if found.State == cloudprovider.Terminated {
		s.launched.Drop(id)
		return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, cloudprovider.ErrNotFound)
	}
	return found, nil
}

// unknown judges an ID that EC2 does not know. One that an earlier process launched just before it ended
// may still be invisible, so for a while after taking over nothing is believed to be gone.
func (s *Instances) missing(id string) (cloudprovider.Instance, error) {
	if i, ok := s.launched.Get(id); ok {
		return i, nil
	}
	if s.JustBecameLeader() {
		return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, ErrNotVisible)
	}
	return cloudprovider.Instance{}, fmt.Errorf("get instance %s: %w", id, ErrUnknown)
}

// alive are the states of an instance that is not gone.
var alive = network.Filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")

// List returns every instance that an autoscaler of a cluster of this name launched, each with its owner,
// by ID. Those that are not ours are there to be named, not to be touched.
func (s *Instances) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	s.JustBecameLeader() // notices that this process leads: instances are listed all the time by then
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

// ForClaim returns our instances that were launched for the NodeClaim of a UID, oldest first: those, too, that have ended
// since, as long as EC2 tells of them.
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

// Young reports whether this process has taken over so lately that EC2 may not show yet what an earlier one has launched.
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

// ForBatchLaunch returns our instances of a launch of several, by ID: those, too, that have ended since, since it is by their
// order that claims know theirs. EC2 tells of an ended instance for about an hour.
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

// withNewlyLaunched adds remembered instances that EC2 has never shown, and sorts by ID. One that EC2 has shown
// and does not list any more is gone or on its way.
func (s *Instances) withNewlyLaunched(found []cloudprovider.Instance, wanted func(cloudprovider.Instance) bool) []cloudprovider.Instance {
	for _, i := range found {
		s.visible.Put(i.ID, struct{}{})
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
	found, err := s.pages(ctx, in)
	out := make([]cloudprovider.Instance, 0, len(found))
	for _, i := range found {
		out = append(out, s.convert(i))
	}
	return out, err
}

func (s *Instances) pages(ctx context.Context, in *ec2.DescribeInstancesInput) ([]ec2types.Instance, error) {
	var out []ec2types.Instance
	pages := ec2.NewDescribeInstancesPaginator(s.api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			out = append(out, r.Instances...)
		}
	}
	return out, nil
}

// read is the instance as controllers know it.
func (s *Instances) convert(i ec2types.Instance) cloudprovider.Instance {
	out := cloudprovider.Instance{
		ID:           aws.ToString(i.InstanceId),
		Type:         string(i.InstanceType),
		CapacityType: karpv1.CapacityTypeOnDemand,
		ImageID:      aws.ToString(i.ImageId),
		SubnetID:     aws.ToString(i.SubnetId),
		Tenancy:      awsv1.TenancyDefault,
		LaunchedAt:   aws.ToTime(i.LaunchTime),
		Tags:         make(map[string]string, len(i.Tags)),
	}
	if i.State != nil {
		out.State = cloudprovider.State(i.State.Name)
	}
	if i.Placement != nil {
		out.Zone = aws.ToString(i.Placement.AvailabilityZone)
		out.ZoneID = aws.ToString(i.Placement.AvailabilityZoneId)
		out.Tenancy = cmp.Or(string(i.Placement.Tenancy), awsv1.TenancyDefault)
		out.Placement = cloudprovider.Placement{GroupID: aws.ToString(i.Placement.GroupId), Partition: int(aws.ToInt32(i.Placement.PartitionNumber))}
	}
	if i.SpotInstanceRequestId != nil {
		out.CapacityType = karpv1.CapacityTypeSpot
	}
	if id := aws.ToString(i.CapacityReservationId); id != "" && i.CapacityReservationSpecification != nil &&
		i.CapacityReservationSpecification.CapacityReservationPreference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly {
		// One that merely fell into an open reservation is not one that was asked for.
		out.CapacityType = karpv1.CapacityTypeReserved
		out.Reservation = cloudprovider.Reservation{
			ID: id, Type: reservation.Default, Interruptible: i.InstanceLifecycle == ec2types.InstanceLifecycleTypeInterruptibleCapacityReservation,
		}
		if i.InstanceLifecycle == ec2types.InstanceLifecycleTypeCapacityBlock {
			out.Reservation.Type = reservation.Block
		}
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroupIDs = append(out.SecurityGroupIDs, aws.ToString(g.GroupId))
	}
	slices.Sort(out.SecurityGroupIDs)
	for _, t := range i.Tags {
		out.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	out.ProviderID = ProviderID(out.Zone, out.ID)
	out.NodeClaim = out.Tags[awsv1.TagNodeClaim]
	out.NodeClaimUID = out.Tags[identity.TagNodeClaimUID]
	out.Launch = out.Tags[identity.TagLaunch]
	out.LeftOut = parseSlots(out.Tags[identity.TagLeftOut])
	out.Owner = s.identity.Owner(out.Tags, identity.Match{})
	if out.Owner == cloudprovider.Unknown {
		out.Owner = s.identity.Owner(out.Tags, s.match(out.ProviderID))
	}
	return out
}
