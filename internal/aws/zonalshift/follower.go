package zonalshift

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Follower keeps a Watcher up to date with the shifts of an EKS cluster. It is safe for concurrent use.
type Follower struct {
	watcher *Watcher
	cluster *ekscluster.Cluster
	region  string
	now     func() time.Time

	mu    sync.RWMutex
	state cloudprovider.ShiftState
}

// NewFollower returns a Follower of a cluster in a region. Without a watcher it follows nothing.
func NewFollower(watcher *Watcher, cluster *ekscluster.Cluster, region string, now func() time.Time) *Follower {
	return &Follower{watcher: watcher, cluster: cluster, region: region, now: now}
}

// RefreshZonalShifts reads the shifts of the cluster. It does nothing where zonal shifts are not followed.
func (f *Follower) RefreshZonalShifts(ctx context.Context) error {
	if f.watcher == nil {
		return nil
	}
	now := f.now()
	err := f.read(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Err = err; err == nil {
		f.state.Read = now
	}
	return err
}

func (f *Follower) read(ctx context.Context) error {
	arn, err := f.cluster.ARN(ctx)
	if err != nil {
		return err
	}
	err = f.watcher.Refresh(ctx, arn)
	if awserrors.Code(err) == ekscluster.ErrCodeNotFound {
		return fmt.Errorf("%w: zonal shift is not enabled for the cluster; enable it "+
			"(aws eks update-cluster-config --name %s --zonal-shift-config enabled=true), or turn off --enable-zonal-shift",
			awserrors.WithoutRequestIDs(err), f.cluster.Name())
	}
	return session.Explain(session.Call{
		Service: "arc-zonal-shift", Action: "GetManagedResource", Otherwise: "turn off --enable-zonal-shift",
	}, f.region, err)
}

// ZonalShiftState reports whether the zonal shifts are known; zero where they are not followed, or not read yet.
func (f *Follower) ZonalShiftState() cloudprovider.ShiftState {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state
}

// ShiftedZones are the IDs of the zones that the cluster is shifted away from, sorted.
func (f *Follower) ShiftedZones() []string {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Zones()
}
