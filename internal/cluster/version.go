package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Version identifies what Snapshots are made from, apart from the time. Versions can be compared with ==.
type Version struct{ objects, marks, types uint64 }

// Version returns the present version. Snapshots that are taken after two equal versions, and before the second of them, differ only
// by what depends on the time. It returns false if the version is not known: changes are not counted, or a Snapshot would read from the
// API server, or include capacity buffers. Their pod templates are in objects of any kind.
//
// Cost: independent of the number of nodes and pods.
func (s *State) Version(ctx context.Context) (Version, bool) {
	if s.cfg.Changes == nil || s.cfg.CapacityBuffers || !s.readsCacheOnly() {
		return Version{}, false
	}
	objects, err := s.cfg.Changes(ctx)
	if err != nil {
		return Version{}, false
	}
	for _, kind := range []*ServedKind{s.cfg.PodGroups, s.cfg.DeviceTaintRules} {
		if kind == nil {
			continue
		}
		changes, err := kind.Count(ctx)
		if err != nil {
			return Version{}, false
		}
		objects += changes
	}
	offered, err := s.listOffered(ctx)
	if err != nil {
		return Version{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameLists(s.offered, offered) {
		s.offered = offered
		s.types++
	}
	return Version{objects, s.marks, s.types}, true
}

// readsCacheOnly reports whether a Snapshot reads nothing from the API server.
func (s *State) readsCacheOnly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primed && len(s.created) == 0
}

// listOffered lists what each pool may launch now.
func (s *State) listOffered(ctx context.Context) (map[types.UID][]*catalog.InstanceType, error) {
	var pools karpv1.NodePoolList
	if err := s.listCached(ctx, &pools); err != nil {
		return nil, err
	}
	out := make(map[types.UID][]*catalog.InstanceType, len(pools.Items))
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			continue
		}
		instanceTypes, err := s.instanceTypesFor(ctx, pool)
		if err != nil {
			return nil, err
		}
		out[pool.UID] = instanceTypes
	}
	return out, nil
}

// sameLists reports whether the pools have the same slices.
func sameLists(a, b map[types.UID][]*catalog.InstanceType) bool {
	if len(a) != len(b) {
		return false
	}
	for uid, list := range a {
		other, known := b[uid]
		if !known || (list == nil) != (other == nil) || !sameList(list, other) {
			return false
		}
	}
	return true
}
