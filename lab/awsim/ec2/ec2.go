// Package ec2 is the EC2 of one simulated region: network, images, instance types, launch templates, fleets, instances.
//
// State is a set of immutable records behind one lock: a call takes the records it needs while it holds the lock, and
// filters and encodes them after; a change replaces a record. What happens by itself (pending to running, shutting-down
// to terminated, a terminated instance forgotten) is a queue of transitions that is settled up to the present whenever
// someone looks, and by a timer for those who watch.
package ec2

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/wire"
)

// Timing is how long things take.
type Timing struct {
	Boot           time.Duration // pending -> running
	Shutdown       time.Duration // shutting-down -> terminated
	Visible        time.Duration // from the launch until the Describe calls know the instance
	TerminatedKept time.Duration // terminated -> forgotten
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

// Profiles is what EC2 asks of IAM.
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
}

// EC2 is the state. It is safe for concurrent use.
type EC2 struct {
	cfg Config

	mu      sync.RWMutex
	counter uint64 // numbers the IDs handed out
	network network
	fleet   instances
}

// New returns a region without network and instances.
func New(cfg Config) (*EC2, error) {
	return &EC2{cfg: cfg, network: newNetwork(), fleet: newInstances()}, nil
}

// Service is the wire side.
func (e *EC2) Service() wire.Service {
	return wire.Service{
		Name: "ec2", Protocol: wire.EC2Query, Version: "2016-11-15", Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		Handlers: map[string]wire.Handler{},
	}
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
