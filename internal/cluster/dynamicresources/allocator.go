package dynamicresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxSteps limits how many choices of a device one search may try. A search usually takes a few per requested device, but
// some claims make the allocator try all combinations.
const maxSteps = 10_000

// allocations is a snapshot.DeviceBook: the devices that are allocated in a snapshot or a simulation on it.
type allocations struct {
	devices   *Devices
	allocated structured.AllocatedState
	// held are the claims with devices, with the nodes where these can be used.
	held map[types.UID]*corev1.NodeSelector
	// versions are the versions of nodes with devices that are not published yet, by name; see search.
	versions map[string]int
	searches *searches
}

var _ snapshot.DeviceState = (*allocations)(nil)

// Open implements snapshot.Devices.
func (d *Devices) Free(leaving map[types.UID]bool) snapshot.DeviceState {
	b := &allocations{
		devices:  d,
		held:     map[types.UID]*corev1.NodeSelector{},
		versions: map[string]int{},
		searches: newSearches(),
		allocated: structured.AllocatedState{
			AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity: structured.NewConsumedCapacityCollection(),
		},
	}
	for uid, c := range d.byUID {
		if c.Status.Allocation == nil || !d.inUse(c, leaving) {
			continue
		}
		b.held[uid] = c.Status.Allocation.NodeSelector
		for i := range c.Status.Allocation.Devices.Results {
			b.markAllocated(&c.Status.Allocation.Devices.Results[i])
		}
	}
	return b
}

// markAllocated marks the device of a result as allocated. Admin access allocates nothing.
func (b *allocations) markAllocated(r *resourcev1.DeviceRequestAllocationResult) {
	if r.AdminAccess != nil && *r.AdminAccess {
		return
	}
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	if r.ShareID == nil {
		b.allocated.AllocatedDevices.Insert(id)
		return
	}
	b.allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	b.allocated.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
}

// With implements snapshot.DeviceBook.
func (b *allocations) With(claims []snapshot.DeviceClaim, grants ...snapshot.DeviceAllocation) snapshot.DeviceState {
	out := &allocations{
		devices:  b.devices,
		held:     maps.Clone(b.held),
		versions: maps.Clone(b.versions),
		searches: b.searches,
		allocated: structured.AllocatedState{
			AllocatedDevices: maps.Clone(
				b.allocated.AllocatedDevices,
			), AllocatedSharedDeviceIDs: maps.Clone(b.allocated.AllocatedSharedDeviceIDs),
			AggregatedCapacity: b.allocated.AggregatedCapacity.Clone(),
		},
	}
	for i, claim := range claims {
		for k, g := range grants {
			r := g.Results[i]
			if r == nil {
				continue
			}
			out.held[claim.UID] = r.NodeSelector // the same in all: see describe
			for j := range r.Devices.Results {
				if device := &r.Devices.Results[j]; k == 0 || strings.HasPrefix(device.Pool, snapshot.ExpectedPool) {
					out.markAllocated(device)
					out.change(device.Pool)
				}
			}
		}
	}
	return out
}

// change gives the node of an expected pool another version.
func (b *allocations) change(pool string) {
	if strings.HasPrefix(pool, snapshot.ExpectedPool) {
		b.searches.versions++
		b.versions[nodeOfPool(pool)] = b.searches.versions
	}
}

// Find implements snapshot.DeviceBook.
func (b *allocations) Find(claims []snapshot.DeviceClaim, at snapshot.DeviceNode) (snapshot.DeviceAllocation, error) {
	g := snapshot.DeviceAllocation{Results: make([]*resourcev1.AllocationResult, len(claims))}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at.Node, Labels: at.Labels}}
	var open []*resourcev1.ResourceClaim
	var indexes []int // of open, in claims
	var names []string
	for i, c := range claims {
		selector, held := b.held[c.UID]
		if !held {
			if claim := b.claimOn(c, at.Serves()); claim != nil {
				open, indexes = append(open, claim), append(indexes, i)
				names = append(names, fmt.Sprintf("%q", c.Name))
			}
			continue
		}
		reach, ok := matchingTerm(selector, node)
		if !ok {
			return g, fmt.Errorf("resource claim %q has devices that cannot be used there", c.Name)
		}
		g.Reach = append(g.Reach, reach...)
	}
	query := b.searchFor(open, at)
	if found, ok := b.known(query, at.Node); ok && len(open) == len(claims) {
		return found, nil
	}
	results, err := b.allocate(query, open, at)
	if err != nil {
		return g, fmt.Errorf("look for devices for resource claim %s: %w", strings.Join(names, ", "), err)
	}
	if len(results) < len(open) {
		return g, fmt.Errorf("there are no free devices for resource claim %s", strings.Join(names, ", "))
	}
	for k, i := range indexes {
		g.Results[i] = &results[k]
		g.Reach = append(g.Reach, b.devices.reach(g.Results[i], node)...)
	}
	err = fillGrant(&g)
	if err == nil && len(open) == len(claims) && b.repeatable(query) {
		b.searches.found[query] = foundDevices{at.Node, g}
	}
	return g, err
}

// reach returns what a node like this one must match to use the devices of an allocation that are outside of it. An allocation with devices
// of the node selects the node alone, by its name, and does not state where the others can be used.
func (d *Devices) reach(r *resourcev1.AllocationResult, node *corev1.Node) []corev1.NodeSelectorRequirement {
	out, _ := matchingTerm(r.NodeSelector, node)
	for i := range r.Devices.Results {
		selector, _ := d.UsableOn(&r.Devices.Results[i])
		more, _ := matchingTerm(selector, node)
		for _, e := range more {
			if !slices.ContainsFunc(out, func(o corev1.NodeSelectorRequirement) bool { return reflect.DeepEqual(o, e) }) {
				out = append(slices.Clip(out), e)
			}
		}
	}
	return out
}

// matchingTerm returns the label requirements of the selector's first term that the node matches. A nil selector
// matches all nodes.
func matchingTerm(s *corev1.NodeSelector, node *corev1.Node) ([]corev1.NodeSelectorRequirement, bool) {
	if s == nil {
		return nil, true
	}
	for _, term := range s.NodeSelectorTerms {
		one, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}})
		if err == nil && one.Match(node) {
			return term.MatchExpressions, true
		}
	}
	return nil, false
}

// allocate runs the scheduler's allocator, unless an equal search has failed. It returns fewer results than claims if
// there are not enough devices.
func (b *allocations) allocate(
	query search,
	claims []*resourcev1.ResourceClaim,
	at snapshot.DeviceNode,
) ([]resourcev1.AllocationResult, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	if failed, err := b.failedBefore(query, claims); failed {
		return nil, err
	}
	published := b.devices.shared
	switch {
	case query.instanceType != "":
		published = slices.Concat(published, b.devices.expectedSlices(at))
	case query.node != "":
		published = b.devices.onNode[at.Node]
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at.Node, Labels: at.Labels}}
	node.Status.DeclaredFeatures = at.DeclaredFeatures
	results, err := b.runAllocator(claims, node, published)
	if len(results) == 0 {
		b.noteFailure(query, claims, err)
	}
	return results, err
}

func (b *allocations) runAllocator(
	claims []*resourcev1.ResourceClaim,
	node *corev1.Node,
	published []*resourcev1.ResourceSlice,
) ([]resourcev1.AllocationResult, error) {
	ctx := &stepLimit{Context: klog.NewContext(context.Background(), logr.Discard()), remaining: maxSteps}
	allocator, err := structured.NewAllocator(ctx, b.devices.features, b.allocated, b.devices.classes, published, b.devices.cel)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, node, claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, nil // the caller's message is clearer
	}
	return results, err
}

// expectedSlices are the slices that the drivers of a new node will publish, with the taints that rules add to their devices.
func (d *Devices) expectedSlices(at snapshot.DeviceNode) []*resourcev1.ResourceSlice {
	out := make([]*resourcev1.ResourceSlice, len(at.Type.DeviceSlices))
	for i, spec := range at.Type.DeviceSlices {
		spec.NodeName, spec.NodeSelector, spec.AllNodes, spec.PerDeviceNodeSelection = &at.Node, nil, nil, nil
		if devices := d.tainted(&spec, ""); devices != nil {
			spec.Devices = devices
		}
		spec.Pool.Name = expectedPools(at.Node) + at.Type.Name + "/" + spec.Pool.Name
		out[i] = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%06d", snapshot.ExpectedPool, i)}, Spec: spec}
	}
	return out
}

// fillGrant sets the fields of a grant that the engine compares. Grants with the same devices outside of nodes agree,
// claim by claim, on whether there are also devices that come with the node, since each request has at least one
// device.
func fillGrant(g *snapshot.DeviceAllocation) error {
	outside := make([][]resourcev1.DeviceRequestAllocationResult, len(g.Results))
	for i, r := range g.Results {
		if r == nil {
			continue
		}
		for _, device := range r.Devices.Results {
			if strings.HasPrefix(device.Pool, snapshot.ExpectedPool) {
				g.Drivers = append(g.Drivers, device.Driver)
				continue
			}
			device.ShareID = nil // random
			outside[i] = append(outside[i], device)
		}
	}
	slices.Sort(g.Drivers)
	g.Drivers = slices.Compact(g.Drivers)
	text, err := json.Marshal([]any{outside, g.Reach})
	g.Outside = string(text)
	return err
}

// stepLimit is a context that is done after a number of calls of Err, which the allocator makes at each step. Unlike a
// timeout, it is deterministic.
type stepLimit struct {
	context.Context
	remaining int
}

var errStepLimit = errors.New("there are too many ways to combine devices to try them all")

// Err implements context.Context.
func (s *stepLimit) Err() error {
	if s.remaining--; s.remaining < 0 {
		return errStepLimit
	}
	return nil
}
