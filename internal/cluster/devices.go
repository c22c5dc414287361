package cluster

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Devices are the objects of dynamic resource allocation.
type Devices struct {
	Claims  []*resourcev1.ResourceClaim
	Slices  []*resourcev1.ResourceSlice
	Classes []*resourcev1.DeviceClass
	// TaintRules add taints to devices.
	TaintRules []*resourcev1.DeviceTaintRule
	// Expressions caches compiled CEL expressions.
	Expressions *cel.Cache
}

// readDevices reads the objects of dynamic resource allocation, unless they are ignored.
func (s *State) readDevices(ctx context.Context, o *Objects) error {
	if s.cfg.Devices == nil {
		return nil
	}
	var claims resourcev1.ResourceClaimList
	if err := s.listCached(ctx, &claims); err != nil {
		return err
	}
	var published resourcev1.ResourceSliceList
	if err := s.listCached(ctx, &published); err != nil {
		return err
	}
	var classes resourcev1.DeviceClassList
	if err := s.listCached(ctx, &classes); err != nil {
		return err
	}
	o.Devices = &Devices{
		Claims: pointers(claims.Items), Slices: pointers(published.Items), Classes: pointers(classes.Items), Expressions: s.cfg.Devices,
	}
	return s.readTaintRules(ctx, o.Devices)
}

// readTaintRules reads the DeviceTaintRules, where the API server serves them.
func (s *State) readTaintRules(ctx context.Context, devices *Devices) error {
	if s.cfg.DeviceTaintRules == nil {
		return nil
	}
	if served, err := s.cfg.DeviceTaintRules.Served(ctx); err != nil || !served {
		return err
	}
	var rules resourcev1.DeviceTaintRuleList
	if err := s.listCached(ctx, &rules); err != nil {
		return err
	}
	devices.TaintRules = pointers(rules.Items)
	return nil
}

// AddDevices adds devices to a Snapshot that has all but them, with what they report about its instance types.
func AddDevices(s *snapshot.Snapshot, devices *Devices) {
	w := &snapshotBuilder{Objects: Objects{Devices: devices}, snap: s, byNode: make(map[string]int, len(s.Nodes))}
	for i := range s.Nodes {
		w.byNode[s.Nodes[i].Name] = i
	}
	w.addDevices()
}

// addDevices adds the devices of initialized nodes that are not deleting, and what they report about new nodes.
func (w *snapshotBuilder) addDevices() {
	if w.Devices == nil {
		return
	}
	own := dynamicresources.OwnDevices(w.Devices.Slices)
	w.learnDevices(own)
	w.snap.Devices = dynamicresources.New(dynamicresources.Objects{
		Claims: w.Devices.Claims, Slices: w.Devices.Slices, Classes: w.Devices.Classes, TaintRules: w.Devices.TaintRules,
		PodGroups: w.snap.PodGroups, Served: w.serveExtended(own),
		Up: func(node string) bool {
			i, known := w.byNode[node]
			return known && w.snap.Nodes[i].Initialized && !w.snap.Nodes[i].Deleting
		},
	}, w.Devices.Expressions)
}
