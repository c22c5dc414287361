package cluster

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
)

// Devices are the objects of dynamic resource allocation.
type Devices struct {
	Claims  []*resourcev1.ResourceClaim
	Slices  []*resourcev1.ResourceSlice
	Classes []*resourcev1.DeviceClass
	// Expressions is where compiled ones are kept.
	Expressions *cel.Cache
}

// readDevices reads what there is of devices, unless they are ignored.
func (s *State) readDevices(ctx context.Context, o *Objects) error {
	if s.cfg.Devices == nil {
		return nil
	}
	var claims resourcev1.ResourceClaimList
	if err := s.list(ctx, &claims); err != nil {
		return err
	}
	var published resourcev1.ResourceSliceList
	if err := s.list(ctx, &published); err != nil {
		return err
	}
	var classes resourcev1.DeviceClassList
	if err := s.list(ctx, &classes); err != nil {
		return err
	}
	o.Devices = &Devices{
		Claims: pointers(claims.Items), Slices: pointers(published.Items), Classes: pointers(classes.Items), Expressions: s.cfg.Devices,
	}
	return nil
}

// cutDevices lets devices answer for the nodes that are up and stay.
func (w *world) cutDevices() {
	if w.Devices == nil {
		return
	}
	w.snap.Devices = dynamicresources.New(dynamicresources.Objects{
		Claims: w.Devices.Claims, Slices: w.Devices.Slices, Classes: w.Devices.Classes,
		Up: func(node string) bool {
			i, known := w.byNode[node]
			return known && w.snap.Nodes[i].Initialized && !w.snap.Nodes[i].Deleting
		},
	}, w.Devices.Expressions)
}
