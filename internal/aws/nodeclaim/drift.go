package nodeclaim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/drift"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// endedReservationGrace sets how long an instance may still be shown in a reservation that has finished. EC2 needs some time to
	// report such instances as on-demand; if it takes longer, they drift, which costs a replacement, not a failure.
	endedReservationGrace = 2 * time.Minute
	// missingReservationTTL sets how long the time is kept since when a reservation is missing. Claims are compared every few
	// minutes, and each comparison renews it.
	missingReservationTTL = time.Hour
)

// DriftDetector compares the instances of claims with their node classes. It is safe for concurrent use.
type DriftDetector struct {
	offerings *offerings.Source
	groups    *placement.Finder
	instances *zonalshift.Instances
	// reservations is false while the feature gate ReservedCapacity is off.
	reservations bool
	cache        *instanceCache
	// missingSince is the time when a reservation with an instance in it was first missing, by its ID.
	missingSince *ttlcache.Cache[string, time.Time]
	now          func() time.Time
}

// DriftConfig describes what a DriftDetector is made of. All of it is needed.
type DriftConfig struct {
	Offerings *offerings.Source
	Groups    *placement.Finder
	Instances *zonalshift.Instances
	// ReservedCapacity is the feature gate of that name.
	ReservedCapacity bool
	Now              func() time.Time
}

// NewDriftDetector returns a DriftDetector. It makes no calls.
func NewDriftDetector(cfg DriftConfig) *DriftDetector {
	recent := func(ctx context.Context) ([]cloudprovider.Instance, error) {
		return cfg.Instances.Recent(ctx, listingTTL)
	}
	return &DriftDetector{
		offerings: cfg.Offerings, groups: cfg.Groups, instances: cfg.Instances, reservations: cfg.ReservedCapacity, now: cfg.Now,
		cache:        &instanceCache{list: recent, get: cfg.Instances.LaunchedOrRead, now: cfg.Now},
		missingSince: ttlcache.New[string, time.Time](missingReservationTTL, cfg.Now),
	}
}

// Drift returns why the instance of a launched claim is not what its node class requires: one of the reasons of package drift,
// or "" if it is, or if the class is being deleted. The class is the claim's, as it is now, with its status. After an error
// nothing is known, and nothing may be concluded; the error is cloudprovider.ErrNotFound when the instance is gone.
func (d *DriftDetector) Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (reason string, err error) {
	if class.DeletionTimestamp != nil {
		return "", nil
	}
	if drift.Static(class, claim) {
		return drift.NodeClass, nil
	}
	if reason, err = d.compare(ctx, class, claim); err != nil {
		return "", fmt.Errorf("compare claim %s with node class %s: %w", claim.Name, class.Name, awserrors.WithoutRequestIDs(err))
	}
	return reason, nil
}

func (d *DriftDetector) compare(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (string, error) {
	mapped, err := d.offerings.ImageFor(ctx, class, claim.Labels[corev1.LabelInstanceTypeStable])
	if err != nil {
		return "", err
	}
	if other, err := drift.Image(class, claim, mapped); err != nil || other {
		return reasonIf(other, drift.AMI), err
	}
	facts := drift.Facts{Class: class, Claim: claim}
	if facts.Instance, err = d.cache.instance(ctx, claim.Status.ProviderID); err != nil {
		return "", err
	}
	group, err := d.groups.Of(ctx, class)
	if err != nil {
		return "", err
	}
	facts.GroupID = group.ID
	reason, err := drift.Dynamic(facts)
	if err != nil || reason != drift.CapacityReservation {
		return reason, err
	}
	if !d.reservations {
		facts.Instance.Reservation = cloudprovider.Reservation{} // the status of the class does not list reservations then
		return drift.Dynamic(facts)
	}
	// The reservation may have finished since the instance was read, and the instance be on-demand now.
	if facts.Instance, err = d.instances.Get(ctx, claim.Status.ProviderID); err != nil {
		return "", err
	}
	if d.justEnded(facts.Instance) {
		facts.Instance.Reservation = cloudprovider.Reservation{}
	}
	return drift.Dynamic(facts)
}

// justEnded reports whether the reservation of an instance terminated within endedReservationGrace. EC2 does not list a reservation
// from the second in which it finishes, and needs longer to report its instances as on-demand: to replace them all would be a waste.
func (d *DriftDetector) justEnded(i cloudprovider.Instance) bool {
	now := d.now()
	first, known := d.missingSince.Get(i.Reservation.ID)
	if !known {
		first = now
	}
	d.missingSince.Set(i.Reservation.ID, first) // renew it as long as the reservation is missing
	return now.Sub(first) < endedReservationGrace
}

func reasonIf(is bool, reason string) string {
	if is {
		return reason
	}
	return ""
}
