package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// RefreshZonalShifts asks from which zones the cluster is told to keep away. It does nothing where zonal shifts are not followed.
func (c *Cloud) RefreshZonalShifts(ctx context.Context) error {
	if c.shifts == nil {
		return nil
	}
	now := c.cfg.Now()
	err := c.readZonalShifts(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shiftState.Err = err; err == nil {
		c.shiftState.Read = now
	}
	return err
}

// ZonalShiftState says whether the zonal shifts are known; zero where they are not followed, or not read yet.
func (c *Cloud) ZonalShiftState() cloudprovider.ShiftState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.shiftState
}

func (c *Cloud) readZonalShifts(ctx context.Context) error {
	arn, err := c.clusterARN(ctx)
	if err != nil {
		return err
	}
	err = c.shifts.Refresh(ctx, arn)
	if awserrors.Code(err) == clusterUnknown {
		return fmt.Errorf("%w: zonal shift is not enabled for the cluster; enable it (aws eks update-cluster-config --name %s --zonal-shift-config enabled=true), "+
			"or turn off --enable-zonal-shift", awserrors.Plain(err), c.cfg.Identity.ClusterName)
	}
	return session.Explain(session.Call{
		Service: "arc-zonal-shift", Action: "GetManagedResource", Otherwise: "turn off --enable-zonal-shift",
	}, c.cfg.Identity.Region, err)
}

// clusterARN is the ARN of the cluster, which EKS is asked for once.
func (c *Cloud) clusterARN(ctx context.Context) (string, error) {
	c.mu.RLock()
	arn := c.arn
	c.mu.RUnlock()
	if arn != "" {
		return arn, nil
	}
	described, err := c.describeCluster(ctx)
	if err != nil {
		return "", err
	}
	if arn = aws.ToString(described.Arn); arn == "" {
		return "", errors.New("EKS does not tell the ARN of the cluster")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arn = arn
	return arn, nil
}

// ShiftedZones are the IDs of the zones that the cluster keeps away from, sorted.
func (c *Cloud) ShiftedZones() []string {
	if c.shifts == nil {
		return nil
	}
	return c.shifts.Zones()
}

// keepsAway reports whether the zone of a provider ID is one that the cluster keeps away from. Of a zone in which no node class has
// a subnet that is not known, and it is not.
func (c *Cloud) keepsAway(providerID string) bool {
	if c.shifts == nil {
		return false
	}
	parts := strings.Split(providerID, "/")
	return len(parts) > 1 && c.shifts.Away(c.network.ZoneID(parts[len(parts)-2]))
}

// doubted is err, unless it says no more than that EC2 does not know an instance in a zone that the cluster keeps away from: what
// ails the zone may ail what EC2 says of it. That an instance is terminated is believed.
func (c *Cloud) doubted(providerID string, err error) error {
	switch {
	case errors.Is(err, instance.ErrUnknown) && c.keepsAway(providerID):
		return fmt.Errorf("%w: the cluster keeps away from its zone, where EC2 not knowing an instance does not mean that it is gone (%s)", instance.ErrNotVisible, providerID)
	case errors.Is(err, cloudprovider.ErrNotFound):
		c.listed.drop(providerID)
	}
	return err
}

// listed is the last listing of instances.
type listed struct {
	mu   sync.Mutex
	byID map[string]cloudprovider.Instance // by provider ID
}

func (l *listed) drop(providerID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, providerID)
}

// replace notes a listing.
func (l *listed) replace(all []cloudprovider.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byID = make(map[string]cloudprovider.Instance, len(all))
	for _, i := range all {
		l.byID[i.ProviderID] = i
	}
}

// all are the instances of the last listing that are not known to be gone, by provider ID.
func (l *listed) all() map[string]cloudprovider.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.byID)
}

// withMissing adds to a listing instances that it lacks, although they were listed before and nothing says that they are gone but
// the listing: those of zones that the cluster keeps away from.
func (c *Cloud) withMissing(ctx context.Context, found []cloudprovider.Instance) []cloudprovider.Instance {
	if c.shifts == nil {
		return found
	}
	missing := c.listed.all()
	for _, i := range found {
		delete(missing, i.ProviderID)
	}
	for id, last := range missing {
		if !c.keepsAway(id) {
			continue
		}
		now, err := c.instances.Get(ctx, id)
		switch {
		case err == nil:
			found = append(found, now)
		case errors.Is(err, cloudprovider.ErrNotFound) && !errors.Is(err, instance.ErrUnknown):
		default:
			found = append(found, last)
		}
	}
	slices.SortFunc(found, func(a, b cloudprovider.Instance) int { return cmp.Compare(a.ID, b.ID) })
	c.listed.replace(found)
	return found
}
