package aws

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/drift"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Drift says why the instance of a launched claim is not what its node class asks for: one of the reasons of package drift, or ""
// if it is, or if the class is going. The class is the claim's, as it is now, with its status. After an error nothing is known,
// and nothing may be concluded; it is cloud.ErrNotFound when the instance is gone.
func (c *Cloud) Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (reason string, err error) {
	if class.DeletionTimestamp != nil {
		return "", nil
	}
	if drift.Static(class, claim) {
		return drift.NodeClass, nil
	}
	if reason, err = c.drifted(ctx, class, claim); err != nil {
		return "", fmt.Errorf("compare claim %s with node class %s: %w", claim.Name, class.Name, awserrors.Plain(err))
	}
	return reason, nil
}

func (c *Cloud) drifted(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (string, error) {
	mapped, err := c.imageFor(ctx, class, claim.Labels[corev1.LabelInstanceTypeStable])
	if err != nil {
		return "", err
	}
	if other, err := drift.Image(class, claim, mapped); err != nil || other {
		return reasonIf(other, drift.AMI), err
	}
	facts := drift.Facts{Class: class, Claim: claim}
	if facts.Instance, err = c.sightings.instance(ctx, claim.Status.ProviderID); err != nil {
		return "", err
	}
	group, err := c.groups.Of(ctx, class)
	if err != nil {
		return "", err
	}
	facts.GroupID = group.ID
	reason, err := drift.Dynamic(facts)
	if err != nil || reason != drift.CapacityReservation {
		return reason, err
	}
	if c.reservations == nil {
		facts.Instance.Reservation = cloudprovider.Reservation{} // what a class's status says of them is not kept
		return drift.Dynamic(facts)
	}
	// The reservation may have ended since EC2 was last asked, and the instance be on-demand now.
	if facts.Instance, err = c.Get(ctx, claim.Status.ProviderID); err != nil {
		return "", err
	}
	if c.justEnded(facts.Instance) {
		facts.Instance.Reservation = cloudprovider.Reservation{}
	}
	return drift.Dynamic(facts)
}

const (
	// endedFor is how long an instance may be shown in a reservation that is not there any more.
	endedFor = 2 * time.Minute
	// missedFor is how long it is remembered since when a reservation is missed; claims are compared every few minutes.
	missedFor = time.Hour
)

// justEnded reports whether an instance is in a reservation that was first missed a moment ago. A reservation that ends is not
// listed from that second on, and EC2 needs a while to say that its instances are on-demand: replacing them all would be a waste.
func (c *Cloud) justEnded(i cloudprovider.Instance) bool {
	now := c.cfg.Now()
	first, known := c.missed.Get(i.Reservation.ID)
	if !known {
		first = now
	}
	c.missed.Put(i.Reservation.ID, first) // as long as it is missed
	return now.Sub(first) < endedFor
}

func reasonIf(is bool, reason string) string {
	if is {
		return reason
	}
	return ""
}

// imageFor is the image that a class would launch an instance type with now; empty if no image suits it.
func (c *Cloud) imageFor(ctx context.Context, class *awsv1.EC2NodeClass, instanceType string) (string, error) {
	types, err := c.inventory.Types(ctx, class)
	if err != nil {
		return "", err
	}
	t := typeOf(cloudprovider.Instance{Type: instanceType}, types)
	if t == nil {
		return "", fmt.Errorf("the instance type %q is not known", instanceType)
	}
	return launch.ImageFor(class, t)
}

// sightedFor is how long a listing of all instances answers for single ones.
const sightedFor = time.Minute

// unlistedFor is how long nobody asks for a listing again after EC2 has failed to give one.
const unlistedFor = 5 * time.Second

// sightings are what EC2 last said of all instances, so that asking about each of a thousand is a few calls and not a thousand.
type sightings struct {
	list func(ctx context.Context) ([]cloudprovider.Instance, error)
	// get returns one instance, with as few calls as it takes.
	get func(ctx context.Context, providerID string) (cloudprovider.Instance, error)
	now func() time.Time

	mu   sync.Mutex
	at   time.Time
	byID map[string]cloudprovider.Instance
	// failed is when the last listing did not succeed, and why.
	failed time.Time
	err    error
}

// instance returns an instance as EC2 described it in the last minute. One that it did not list then, as it may be newer, is read
// by itself, together with others that are read at the same time, and is known then until the next listing.
func (s *sightings) instance(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	i, known, err := s.listed(ctx, providerID)
	if known || err != nil {
		return i, err
	}
	if i, err = s.get(ctx, providerID); err != nil {
		return cloudprovider.Instance{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[providerID] = i
	return i, nil
}

// listed returns an instance of the last listing, which it renews once a minute.
func (s *sightings) listed(ctx context.Context, providerID string) (i cloudprovider.Instance, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock() // callers that come meanwhile wait for the one listing
	if s.byID == nil || s.now().Sub(s.at) >= sightedFor {
		at := s.now()
		if s.err != nil && at.Sub(s.failed) < unlistedFor {
			return cloudprovider.Instance{}, false, s.err
		}
		all, err := s.list(ctx)
		if s.err = err; ctx.Err() != nil {
			s.err = nil // it was the caller who left
		}
		if err != nil {
			s.failed = s.now()
			return cloudprovider.Instance{}, false, err
		}
		s.at, s.byID = at, make(map[string]cloudprovider.Instance, len(all))
		for _, i := range all {
			s.byID[i.ProviderID] = i
		}
	}
	i, known = s.byID[providerID]
	return i, known, nil
}
