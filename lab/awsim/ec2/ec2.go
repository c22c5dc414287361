// Package ec2 is the EC2 of one simulated region: network, images, instance types, launch templates, fleets, instances.
//
// State is a set of immutable records behind one lock: a call takes the records it needs while it holds the lock, and
// filters and encodes them after; a change replaces a record. What happens by itself (pending to running, shutting-down
// to terminated, a terminated instance forgotten) is a queue of transitions that is settled up to the present whenever
// someone looks, and by a timer for those who watch.
//
// An action is a method that takes its parameters as a struct with the names of the API in its tags, and returns its
// answer likewise (see protocol.Query), and a line in EC2.Service. Parameters that the API knows and the method does
// not honor stand in the struct as unsupported, so that using them is an error and not a surprise.
package ec2

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Timing is how long things take.
type Timing struct {
	Boot           time.Duration // pending -> running
	Shutdown       time.Duration // shutting-down -> terminated
	Visible        time.Duration // from the launch until calls that describe or change it know the instance
	VisibleSpread  time.Duration // up to this much later, each instance by itself
	TerminatedKept time.Duration // terminated -> forgotten
	// TemplateVisible is how long after its creation a launch template is known, ProfileVisible how long EC2 does not hear
	// of a new instance profile, or of a change of its role.
	TemplateVisible, ProfileVisible time.Duration
}

// DefaultTiming is that of a quick account: seconds where the real one takes tens of seconds.
func DefaultTiming() Timing {
	return Timing{Boot: 2 * time.Second, Shutdown: 2 * time.Second, Visible: 500 * time.Millisecond, TerminatedKept: time.Hour}
}

// Config is what a region's EC2 needs.
type Config struct {
	Region    string
	AccountID string
	Seed      uint64
	Clock     clock.Clock
	Timing    Timing
	// Profiles looks up IAM instance profiles; nil = there are none.
	Profiles Profiles
}

// Profiles is what EC2 reads from IAM.
type Profiles interface {
	// InstanceProfile returns the profile of that name.
	InstanceProfile(name string) (InstanceProfile, bool)
}

// InstanceProfile is an IAM instance profile as EC2 sees it.
type InstanceProfile struct {
	Name string
	ARN  string
	ID   string // AIPA...
	// RoleARN is the role in the profile; empty when it has none.
	RoleARN string
	// Created and RoleChanged are the times of the changes in IAM; EC2 sees them later.
	Created, RoleChanged time.Time
}

// EC2 is the state. It is safe for concurrent use.
type EC2 struct {
	cfg    Config
	market *market
	opened time.Time // when the account came to be

	mu        sync.RWMutex
	counter   uint64 // numbers the IDs handed out
	network   network
	images    map[string]*ami
	copies    map[string]string // of each copied image, the image that it is a copy of
	templates templates
	fleet     instances
	pools     pools
	quotas    map[quota]int // vCPUs
	// noSpotRole reports that the service-linked role of EC2 Spot does not exist yet.
	noSpotRole bool
	volumes    map[string]*volume
	// reservations of capacity, in the order in which they were added.
	reservations []*reservation
	// groups are placement groups, in the order in which they were added.
	groups []*placementGroup
	tokens map[string]remembered // by action and client token
	// tokensSwept is how many tokens were left when those that finished were last removed.
	tokensSwept int
}

// New returns a region with its public images, without network and instances. It fails for a region with prices that the
// catalog does not know.
func New(cfg Config) (*EC2, error) {
	m, err := newMarket(cfg.Region, cfg.Seed)
	if err != nil {
		return nil, fmt.Errorf("ec2: %w", err)
	}
	e := &EC2{
		cfg: cfg, market: m, opened: cfg.Clock.Now(), network: newNetwork(), images: map[string]*ami{}, copies: map[string]string{},
		templates: newTemplates(cfg.Clock.Now),
		fleet:     newInstances(), pools: newPools(), volumes: map[string]*volume{}, tokens: map[string]remembered{},
	}
	for _, img := range image.List(cfg.Region) {
		e.images[img.ID] = &ami{Image: img}
	}
	return e, nil
}

// SetTiming changes how long things take from now on; what has begun keeps its time.
func (e *EC2) SetTiming(t Timing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cfg.Timing = t
}

// Service returns the API handlers of EC2.
func (e *EC2) Service() protocol.Service {
	return protocol.Service{
		Name: "ec2", Protocol: protocol.EC2Query, Version: "2016-11-15", Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		Bucket: bucketOf, Authorizes: asking(),
		Handlers: map[string]protocol.Handler{
			"AttachVolume":                   protocol.Query(e.attachVolume),
			"CancelCapacityReservation":      protocol.Query(e.cancelCapacityReservation),
			"CopyImage":                      protocol.Query(e.copyImage),
			"CreateCapacityReservation":      protocol.Query(e.createCapacityReservation),
			"CreateFleet":                    protocol.Query(e.createFleet),
			"CreateLaunchTemplate":           protocol.Query(e.createLaunchTemplate),
			"CreateLaunchTemplateVersion":    protocol.Query(e.createLaunchTemplateVersion),
			"CreateSecurityGroup":            protocol.Query(e.createSecurityGroup),
			"CreateTags":                     protocol.Query(e.createTags),
			"CreateVolume":                   protocol.Query(e.createVolume),
			"DeleteLaunchTemplate":           protocol.Query(e.deleteLaunchTemplate),
			"DeleteLaunchTemplateVersions":   protocol.Query(e.deleteLaunchTemplateVersions),
			"DeleteSecurityGroup":            protocol.Query(e.deleteSecurityGroup),
			"DeleteTags":                     protocol.Query(e.deleteTags),
			"DeleteVolume":                   protocol.Query(e.deleteVolume),
			"DescribeAvailabilityZones":      protocol.Query(e.describeAvailabilityZones),
			"DescribeCapacityReservations":   protocol.Query(e.describeCapacityReservations),
			"DescribeImages":                 protocol.Query(e.describeImages),
			"DescribeInstanceStatus":         protocol.Query(e.describeInstanceStatus),
			"DescribeInstanceTypeOfferings":  protocol.Query(e.market.describeInstanceTypeOfferings),
			"DescribeInstanceTypes":          protocol.Query(e.market.describeInstanceTypes),
			"DescribeInstances":              protocol.Query(e.describeInstances),
			"DescribeLaunchTemplateVersions": protocol.Query(e.describeLaunchTemplateVersions),
			"DescribeLaunchTemplates":        protocol.Query(e.describeLaunchTemplates),
			"DescribeNetworkInterfaces":      protocol.Query(e.describeNetworkInterfaces),
			"CreatePlacementGroup":           protocol.Query(e.createPlacementGroup),
			"DeletePlacementGroup":           protocol.Query(e.deletePlacementGroup),
			"DescribePlacementGroups":        protocol.Query(e.describePlacementGroups),
			"DescribeRegions":                protocol.Query(e.cfg.describeRegions),
			"DescribeRouteTables":            protocol.Query(e.describeRouteTables),
			"DescribeSecurityGroups":         protocol.Query(e.describeSecurityGroups),
			"DescribeSpotInstanceRequests":   protocol.Query(e.describeSpotInstanceRequests),
			"DescribeSpotPriceHistory":       protocol.Query(e.describeSpotPriceHistory),
			"DescribeSubnets":                protocol.Query(e.describeSubnets),
			"DescribeTags":                   protocol.Query(e.describeTags),
			"DescribeVolumes":                protocol.Query(e.describeVolumes),
			"DescribeVpcs":                   protocol.Query(e.describeVpcs),
			"DetachVolume":                   protocol.Query(e.detachVolume),
			"DisableImageDeprecation":        protocol.Query(e.disableImageDeprecation),
			"EnableImageDeprecation":         protocol.Query(e.enableImageDeprecation),
			"GetConsoleOutput":               protocol.Query(e.getConsoleOutput),
			"ModifyCapacityReservation":      protocol.Query(e.modifyCapacityReservation),
			"ModifyLaunchTemplate":           protocol.Query(e.modifyLaunchTemplate),
			"ModifySubnetAttribute":          protocol.Query(e.modifySubnetAttribute),
			"RebootInstances":                protocol.Query(e.rebootInstances),
			"RunInstances":                   protocol.Query(e.runInstances),
			"StartInstances":                 protocol.Query(e.startInstances),
			"StopInstances":                  protocol.Query(e.stopInstances),
			"TerminateInstances":             protocol.Query(e.terminateInstances),
		},
	}
}

// derivedID returns an ID that follows from another, for things that exist because of it.
func derivedID(kind, of string) string {
	sum := sha256.Sum256([]byte(kind + " " + of))
	return fmt.Sprintf("%s-0%x", kind, sum[:8])
}

// newID returns an ID of 17 hex digits that no other call returned. The lock must be held.
func (e *EC2) newID(kind string) string {
	e.counter++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", kind, e.cfg.Seed, e.counter))
	return fmt.Sprintf("%s-0%x", kind, sum[:8])
}

// Zone is an availability zone.
type Zone struct {
	Name string // us-east-1a
	ID   string // use1-az1
}
