package zonalshift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// Instances are the instances of a cluster as controllers use them. While a zone is shifted away, EC2's answers about it are not
// trusted: an instance that EC2 suddenly does not know there is not taken for gone. A terminated instance is. It is safe for
// concurrent use.
type Instances struct {
	instances *instance.Instances
	network   *network.Finder
	// watcher is nil where zonal shifts are not followed.
	watcher *Watcher
	now     func() time.Time
	listed  lastListing
	// listing has an item while instances are listed: one listing at a time takes less memory, and those who want a recent one share it.
	listing chan struct{}
}

// NewInstances returns Instances. Without a watcher, every answer of EC2 is trusted.
func NewInstances(instances *instance.Instances, zones *network.Finder, watcher *Watcher, now func() time.Time) *Instances {
	return &Instances{instances: instances, network: zones, watcher: watcher, now: now, listing: make(chan struct{}, 1)}
}

// Get returns an instance. The error is cloudprovider.ErrNotFound when it is gone for good.
func (s *Instances) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	i, err := s.instances.Get(ctx, providerID)
	return i, awserrors.WithoutRequestIDs(s.distrust(providerID, err))
}

// LaunchedOrRead returns an instance as this process has just launched it, else as Get does. The parameters of the launch and
// EC2's response to it are all that is needed to compare an instance with a node class.
func (s *Instances) LaunchedOrRead(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	if i, ok := s.instances.JustLaunched(providerID); ok {
		return i, nil
	}
	return s.Get(ctx, providerID)
}

// List returns the instances of all clusters of this name, each with its owner.
func (s *Instances) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	done, err := s.beginListing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.list(ctx)
}

// beginListing waits until nobody else lists instances, and excludes others until done is called.
func (s *Instances) beginListing(ctx context.Context) (done func(), err error) {
	select {
	case s.listing <- struct{}{}:
		return func() { <-s.listing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Instances) list(ctx context.Context) ([]cloudprovider.Instance, error) {
	at := s.now()
	found, err := s.instances.List(ctx)
	if err != nil {
		return nil, err
	}
	found = s.withMissing(ctx, found)
	s.listed.replace(found, at)
	return found, nil
}

// Recent is List, or a listing that began at most maxAge ago. EC2 describes an instance at length, so that reading 5,000
// takes half a second of CPU time. The instances are shared, and must not be changed.
func (s *Instances) Recent(ctx context.Context, maxAge time.Duration) ([]cloudprovider.Instance, error) {
	recent := func() ([]cloudprovider.Instance, bool) {
		last, at := s.listed.latest()
		return last, !at.IsZero() && s.now().Sub(at) <= maxAge
	}
	if last, is := recent(); is {
		return last, nil
	}
	done, err := s.beginListing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if last, is := recent(); is { // somebody else has made it meanwhile
		return last, nil
	}
	return s.list(ctx)
}

// Terminate terminates an instance of this cluster. It returns nil while the instance shuts down, cloudprovider.ErrNotFound once
// it is gone, and identity.ErrNotOurs for an instance of somebody else.
func (s *Instances) Terminate(ctx context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	return awserrors.WithoutRequestIDs(s.distrust(providerID, s.instances.Terminate(ctx, permit)))
}

// Adopt tags an adoptable instance with this cluster's identity.
func (s *Instances) Adopt(ctx context.Context, i cloudprovider.Instance) error {
	return awserrors.WithoutRequestIDs(s.instances.Adopt(ctx, i))
}

// Release tags an instance with this cluster's identity because a person has decided that it is this cluster's.
func (s *Instances) Release(ctx context.Context, i cloudprovider.Instance) error {
	return awserrors.WithoutRequestIDs(s.instances.Release(ctx, i))
}

// Name tags an instance of this cluster with the names by which people find it, once its node has joined.
func (s *Instances) Name(ctx context.Context, providerID, node, claim string) error {
	return awserrors.WithoutRequestIDs(s.distrust(providerID, s.instances.AddNameTags(ctx, providerID, node, claim)))
}

// Partition is the partition of its placement group that an instance is in, as the label has it; empty while EC2 does not
// report it.
func (s *Instances) Partition(ctx context.Context, providerID string) (string, error) {
	i, err := s.instances.Get(ctx, providerID)
	if err != nil || i.Placement.Partition == 0 {
		return "", awserrors.WithoutRequestIDs(err)
	}
	return strconv.Itoa(i.Placement.Partition), nil
}

// shiftedAway reports whether the zone of a provider ID is shifted away. A zone in which no node class has a subnet has no known
// ID, and counts as not shifted.
func (s *Instances) shiftedAway(providerID string) bool {
	if s.watcher == nil {
		return false
	}
	parts := strings.Split(providerID, "/")
	return len(parts) > 1 && s.watcher.Away(s.network.ZoneID(parts[len(parts)-2]))
}

// distrust returns err, unless err only means that EC2 does not know an instance in a zone that is shifted away: what impairs the
// zone may impair EC2's answers about it. It returns instance.ErrNotVisible then.
func (s *Instances) distrust(providerID string, err error) error {
	switch {
	case errors.Is(err, instance.ErrUnknown) && s.shiftedAway(providerID):
		return fmt.Errorf(
			"%w: EC2 does not know %s, which is not taken for gone while its zone is shifted away",
			instance.ErrNotVisible,
			providerID,
		)
	case errors.Is(err, cloudprovider.ErrNotFound):
		s.listed.drop(providerID)
	}
	return err
}

// lastListing is the last listing of instances.
type lastListing struct {
	mu   sync.Mutex
	at   time.Time
	list []cloudprovider.Instance
	// byID holds those of list that are not known to be gone, by provider ID.
	byID map[string]*cloudprovider.Instance
}

func (l *lastListing) drop(providerID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, providerID)
}

// latest is the last listing, and when it began; zero if there is none.
func (l *lastListing) latest() ([]cloudprovider.Instance, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list, l.at
}

// replace stores a listing that began at a time.
func (l *lastListing) replace(all []cloudprovider.Instance, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.at = all, at
	l.byID = make(map[string]*cloudprovider.Instance, len(all))
	for i := range all {
		l.byID[all[i].ProviderID] = &all[i]
	}
}

// all are the instances of the last listing that are not known to be gone, by provider ID.
func (l *lastListing) all() map[string]*cloudprovider.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.byID)
}

// withMissing adds to a listing the instances of the last one that it lacks, if their zone is shifted away and EC2 does not
// report them as terminated. Cost: one read per missing instance of such a zone.
func (s *Instances) withMissing(ctx context.Context, found []cloudprovider.Instance) []cloudprovider.Instance {
	if s.watcher == nil {
		return found
	}
	missing := s.listed.all()
	for _, i := range found {
		delete(missing, i.ProviderID)
	}
	for id, last := range missing {
		if !s.shiftedAway(id) {
			continue
		}
		now, err := s.instances.Get(ctx, id)
		switch {
		case err == nil:
			found = append(found, now)
		case errors.Is(err, cloudprovider.ErrNotFound) && !errors.Is(err, instance.ErrUnknown):
		default:
			found = append(found, *last)
		}
	}
	slices.SortFunc(found, func(a, b cloudprovider.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return found
}
