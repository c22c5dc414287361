// Package awsim is an AWS API simulator: an in-memory AWS account for any AWS client.
//
// Sim serves EC2, IAM, STS, SSM, EKS, SQS, Pricing and zonal shifts of one account and region on one endpoint
// (AWS_ENDPOINT_URL), each in its own protocol (package protocol); one package per service holds its state and rules.
// It accepts what the real APIs document and answers anything else with their errors, so that a client cannot work here
// and fail in AWS for that reason. A Go API does what no AWS client can: watch instances, take a role's credentials,
// inject faults, set capacity.
//
// Everything is deterministic for a seed, a clock and an order of calls. Prices on demand are real, those of spot are
// simulated: the regional average times a factor per type and zone.
package awsim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
	"github.com/dovetail-k8s/dovetail/lab/awsim/zonalshift"
)

// What callers of this package handle; the packages below define them.
type (
	Instance      = ec2.Instance
	InstanceEvent = ec2.InstanceEvent
	Call          = protocol.Call
	Credentials   = credential.Credentials
	Fault         = protocol.Fault
	FaultSource   = protocol.FaultSource
	FaultSchedule = protocol.FaultSchedule
	Pool          = ec2.Pool

	CapacityReservation = ec2.CapacityReservation
	PlacementGroup      = ec2.PlacementGroup
)

// Options are the settings of an account; the zero value is usable.
type Options struct {
	Region    string // default us-east-1
	AccountID string // twelve digits, default 111122223333
	// Seed decides IDs, spot prices, and which zones lack which types.
	Seed   uint64
	Clock  clock.Clock // default clock.System
	Timing Timing      // default DefaultTiming()
	// Latency is how long an answer takes at least, on the wall clock; default 5 ms, negative for none. See
	// protocol.Config.
	Latency time.Duration
	// Throttle answers RequestLimitExceeded to calls that exceed EC2's default rates.
	Throttle bool
	// EnforceIAM enforces the IAM policies of role sessions. Without it, every caller may do everything.
	EnforceIAM bool
	// Journal records the calls that may change the account; see package journal.
	Journal protocol.Journal
	Log     *slog.Logger
}

var accountPattern = regexp.MustCompile(`^\d{12}$`)

func (o Options) withDefaults() (Options, error) {
	o.Region = cmp.Or(o.Region, "us-east-1")
	o.AccountID = cmp.Or(o.AccountID, "111122223333")
	if !accountPattern.MatchString(o.AccountID) {
		return o, fmt.Errorf("account ID %q: not twelve digits", o.AccountID)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Timing == (Timing{}) {
		o.Timing = DefaultTiming()
	}
	if o.Latency == 0 {
		o.Latency = 5 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Sim is the account. It is an http.Handler and safe for concurrent use.
type Sim struct {
	services
	seeds   seeds
	targets eventTargets
	options Options
	server  *protocol.Server
	keys    *credential.Ring
	ec2     *ec2.EC2
	shifts  *zonalshift.Shifts
}

// New returns an empty account: no network, no roles, no clusters. See SeedCluster.
func New(o Options) (*Sim, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	keys := credential.NewRing(o.AccountID, o.Seed, o.Clock.Now)
	s := &Sim{options: o, keys: keys, services: newServices(o, keys)}
	cfg := protocol.Config{
		Region:   o.Region,
		Seed:     o.Seed,
		Clock:    o.Clock,
		Keys:     s.keys,
		Log:      o.Log,
		Latency:  o.Latency,
		Throttle: o.Throttle,
		Journal:  o.Journal,
	}
	if o.EnforceIAM {
		cfg.Authorizer = s.iam
	}
	s.server = protocol.NewServer(cfg)
	s.ec2, err = ec2.New(ec2.Config{
		Region: o.Region, AccountID: o.AccountID, Seed: o.Seed, Clock: o.Clock, Timing: o.Timing,
		Profiles: profiles{s.iam},
	})
	if err != nil {
		return nil, err
	}
	s.ec2.OnEvent(s.send)
	s.shifts = zonalshift.New(zonalshift.Config{Managed: s.managed, Zones: s.zoneIDs, Now: o.Clock.Now})
	s.server.Register(append(s.wired(), s.ec2.Service(), s.shifts.Service())...)
	return s, nil
}

// ServeHTTP answers AWS API requests.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.server.ServeHTTP(w, r) }

// Replay repeats a recorded call; see protocol.Server.Replay.
func (s *Sim) Replay(r *http.Request) error { return s.server.Replay(r) }

// Close stops the account's timer, which otherwise keeps the account in memory until its last instance is forgotten.
func (s *Sim) Close() { s.ec2.Close() }

// EC2 is the part of the account that holds network, images and instances.
func (s *Sim) EC2() *ec2.EC2 { return s.ec2 }

// AccountID is the number of the account.
func (s *Sim) AccountID() string { return s.options.AccountID }

// Now is the time in the account.
func (s *Sim) Now() time.Time { return s.options.Clock.Now() }

// Instances returns all instances, terminated ones included, in the order of their launch.
func (s *Sim) Instances() []Instance { return s.ec2.Instances() }

// CopyInstance launches an instance as another was launched. tags states which tags it has.
func (s *Sim) CopyInstance(id string, tags func(launched Instance) map[string]string) (Instance, error) {
	return s.ec2.CopyInstance(id, tags)
}

// Watch reports every change of an instance's state, beginning with all instances as they are. The channel is closed
// when ctx is done; a slow reader loses nothing.
func (s *Sim) Watch(ctx context.Context) <-chan InstanceEvent { return s.ec2.Watch(ctx) }

// AppendConsole adds to the console output of an instance, as its kernel and boot scripts do.
func (s *Sim) AppendConsole(id, text string) { s.ec2.AppendConsole(id, text) }

// ImageContent is the image that the disks of an image come from: itself, or what it was copied from.
func (s *Sim) ImageContent(id string) string { return s.ec2.ImageContent(id) }

// Calls is the log of API calls, oldest first.
func (s *Sim) Calls() []Call { return s.server.Calls() }

// Inject makes the next calls of an action fail, or lose their answer after the effect.
func (s *Sim) Inject(f Fault) { s.server.Inject(f) }

// SetFaultSource has faults from w meet the calls for which none is armed; nil stops that.
func (s *Sim) SetFaultSource(w FaultSource) { s.server.SetFaultSource(w) }

// ClearFaults disarms what Inject armed, and removes the fault source.
func (s *Sim) ClearFaults() { s.server.ClearFaults() }

// SetTiming changes how long things take from now on.
func (s *Sim) SetTiming(t Timing) { s.ec2.SetTiming(t) }

// AddCapacityReservation reserves capacity in the account, and returns the reservation's ID.
func (s *Sim) AddCapacityReservation(r CapacityReservation) (string, error) {
	return s.ec2.AddCapacityReservation(r)
}

// CancelCapacityReservation gives reserved capacity back. Instances in it run on as any others.
func (s *Sim) CancelCapacityReservation(id string) error { return s.ec2.CancelCapacityReservation(id) }

// CapacityReservations returns all reservations, finished ones included, in the order in which they were added.
func (s *Sim) CapacityReservations() []CapacityReservation { return s.ec2.CapacityReservations() }

// SetCapacity limits how many more instances the pools that p covers yield; see ec2.EC2.SetCapacity.
func (s *Sim) SetCapacity(p Pool, count int) { s.ec2.SetCapacity(p, count) }

// ClearCapacity lifts every limit of SetCapacity.
func (s *Sim) ClearCapacity() { s.ec2.ClearCapacity() }

// FailPool makes every launch from the pools that p covers fail with err; see ec2.EC2.FailPool.
func (s *Sim) FailPool(p Pool, err *protocol.Error) { s.ec2.FailPool(p, err) }
