package dynamicresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// maxSteps is how many choices of a device one search may try: what it takes in practice is a few per device that is asked
// for, but claims can be made that have it try all combinations.
const maxSteps = 10_000

// book is a snapshot.DeviceBook.
type book struct {
	of    *Devices
	taken structured.AllocatedState
	// held are the claims with devices, by where these can be used.
	held map[types.UID]*corev1.NodeSelector
	// none remembers what was not found where nodes have no devices of their own, nil where there are too few. Later books
	// have less.
	none map[string]error
}

var _ snapshot.DeviceBook = (*book)(nil)

// Open implements snapshot.Devices.
func (d *Devices) Open(leaving map[types.UID]bool) snapshot.DeviceBook {
	b := &book{of: d, held: map[types.UID]*corev1.NodeSelector{}, none: map[string]error{}, taken: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}}
	for uid, c := range d.byUID {
		if c.Status.Allocation == nil || !used(c, leaving) {
			continue
		}
		b.held[uid] = c.Status.Allocation.NodeSelector
		for i := range c.Status.Allocation.Devices.Results {
			b.take(&c.Status.Allocation.Devices.Results[i])
		}
	}
	return b
}

// used tells whether anybody uses the claim but those who leave.
func used(c *resourcev1.ResourceClaim, leaving map[types.UID]bool) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return !leaving[r.UID] })
}

// take marks the device of a result. Admin access takes nothing away from others.
func (b *book) take(r *resourcev1.DeviceRequestAllocationResult) {
	if r.AdminAccess != nil && *r.AdminAccess {
		return
	}
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	if r.ShareID == nil {
		b.taken.AllocatedDevices.Insert(id)
		return
	}
	b.taken.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	b.taken.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
}

// With implements snapshot.DeviceBook.
func (b *book) With(claims []snapshot.DeviceClaim, grants ...snapshot.DeviceGrant) snapshot.DeviceBook {
	out := &book{of: b.of, held: maps.Clone(b.held), none: b.none, taken: structured.AllocatedState{
		AllocatedDevices: maps.Clone(b.taken.AllocatedDevices), AllocatedSharedDeviceIDs: maps.Clone(b.taken.AllocatedSharedDeviceIDs),
		AggregatedCapacity: b.taken.AggregatedCapacity.Clone(),
	}}
	for i, claim := range claims {
		for k, g := range grants {
			r := g.Results[i]
			if r == nil {
				continue
			}
			out.held[claim.UID] = r.NodeSelector // the same in all: see describe
			for j := range r.Devices.Results {
				if device := &r.Devices.Results[j]; k == 0 || strings.HasPrefix(device.Pool, snapshot.ExpectedPool) {
					out.take(device)
				}
			}
		}
	}
	return out
}

// Find implements snapshot.DeviceBook.
func (b *book) Find(claims []snapshot.DeviceClaim, at snapshot.DeviceSite) (snapshot.DeviceGrant, error) {
	g := snapshot.DeviceGrant{Results: make([]*resourcev1.AllocationResult, len(claims))}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at.Node, Labels: at.Labels}}
	var open []*resourcev1.ResourceClaim
	var names []string
	for _, c := range claims {
		selector, held := b.held[c.UID]
		if !held {
			open = append(open, b.of.byUID[c.UID])
			names = append(names, fmt.Sprintf("%q", c.Name))
			continue
		}
		reach, ok := termFor(selector, node)
		if !ok {
			return g, fmt.Errorf("resource claim %q has devices that cannot be used there", c.Name)
		}
		g.Reach = append(g.Reach, reach...)
	}
	results, err := b.allocate(open, node, at)
	if err != nil {
		return g, fmt.Errorf("look for devices for resource claim %s: %w", strings.Join(names, ", "), err)
	}
	if len(results) < len(open) {
		return g, fmt.Errorf("there are no free devices for resource claim %s", strings.Join(names, ", "))
	}
	for i, c := range claims {
		if _, held := b.held[c.UID]; held {
			continue
		}
		g.Results[i], results = &results[0], results[1:]
		reach, _ := termFor(g.Results[i].NodeSelector, node)
		g.Reach = append(g.Reach, reach...)
	}
	return g, describe(&g)
}

// termFor is what the first term of a selector that the node matches requires of labels. No selector matches everything.
func termFor(s *corev1.NodeSelector, node *corev1.Node) ([]corev1.NodeSelectorRequirement, bool) {
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

// allocate asks the scheduler's allocator. It returns fewer results than claims if there are not enough devices.
func (b *book) allocate(claims []*resourcev1.ResourceClaim, node *corev1.Node, at snapshot.DeviceSite) ([]resourcev1.AllocationResult, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	published, own := b.of.onNode[at.Node]
	if at.Type != nil {
		published, own = slices.Concat(b.of.shared, expectedSlices(at)), len(at.Type.DeviceSlices) > 0
	}
	if !own {
		published = b.of.shared
	}
	if own {
		return b.ask(claims, node, published)
	}
	question := b.question(claims, at)
	if err, asked := b.none[question]; asked {
		return nil, err
	}
	results, err := b.ask(claims, node, published)
	if len(results) == 0 {
		b.none[question] = err
	}
	return results, err
}

// question tells claims and sites apart, as far as it matters to devices outside of nodes.
func (b *book) question(claims []*resourcev1.ResourceClaim, at snapshot.DeviceSite) string {
	var text strings.Builder
	for _, c := range claims {
		fmt.Fprintf(&text, "%s ", c.UID)
	}
	for _, key := range b.of.labels {
		value, ok := at.Labels[key]
		fmt.Fprintf(&text, "%q %t ", value, ok)
	}
	return text.String()
}

func (b *book) ask(claims []*resourcev1.ResourceClaim, node *corev1.Node, published []*resourcev1.ResourceSlice) ([]resourcev1.AllocationResult, error) {
	ctx := &steps{Context: klog.NewContext(context.Background(), logr.Discard()), left: maxSteps}
	allocator, err := structured.NewAllocator(ctx, features, b.taken, b.of.classes, published, b.of.cel)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, node, claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, nil // and its words do not say which pool
	}
	return results, err
}

// expectedSlices are what the drivers of a node that is not up will publish.
func expectedSlices(at snapshot.DeviceSite) []*resourcev1.ResourceSlice {
	out := make([]*resourcev1.ResourceSlice, len(at.Type.DeviceSlices))
	for i, spec := range at.Type.DeviceSlices {
		spec.NodeName, spec.NodeSelector, spec.AllNodes, spec.PerDeviceNodeSelection = &at.Node, nil, nil, nil
		spec.Pool.Name = strings.Join([]string{snapshot.ExpectedPool, at.Node, at.Type.Name, spec.Pool.Name}, "/")
		out[i] = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%06d", snapshot.ExpectedPool, i)}, Spec: spec}
	}
	return out
}

// describe fills in what the engine goes by. Claim by claim, grants with the same devices outside agree on whether there are
// others, which come with the node: each request has at least one.
func describe(g *snapshot.DeviceGrant) error {
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

// steps is a context that ends after it was looked at so often.
type steps struct {
	context.Context
	left int
}

var errTooHard = errors.New("there are too many ways to combine devices to try them all")

// Err implements context.Context.
func (s *steps) Err() error {
	if s.left--; s.left < 0 {
		return errTooHard
	}
	return nil
}
