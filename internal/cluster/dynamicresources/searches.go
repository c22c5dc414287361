package dynamicresources

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// searches are the results of earlier searches. Pods of one template request the same devices, and each is tried on every
// planned node and every instance type that the node may become: for 50 pods with a GPU each, and all types of EC2, 97 of
// 100 searches repeat an earlier one. One value serves a state and all states derived from it, which only have fewer
// free devices.
type searches struct {
	// failed are searches without a result; nil means too few devices. They stay failed, whatever version the node has.
	failed map[search]error
	// found are searches with a result, on nodes in the given version.
	found map[search]foundDevices
	wants wants
	// extended are the claims that stand for extended resources, by pod and by what is served; nil for none.
	extended map[types.UID]*resourcev1.ResourceClaim
	// versions counts the versions of all nodes.
	versions int
}

type foundDevices struct {
	node string
	snapshot.DeviceAllocation
}

// search identifies a search for devices.
type search struct {
	// claims are numbers of what they request, or their UIDs.
	claims string
	// labels are the node's that devices outside of nodes select on, and the features of its kubelet if some device needs one.
	labels string
	// node is set if it has devices of its own, instanceType if these are not published yet. A node that nothing was
	// allocated on yet is like any other of its type: node is empty.
	node, instanceType string
	// version changes with each allocation on the node, 0 is before the first.
	version int
}

func newSearches() *searches {
	return &searches{
		failed: map[search]error{}, found: map[search]foundDevices{}, extended: map[types.UID]*resourcev1.ResourceClaim{},
		wants: wants{byClaim: map[types.UID]int{}, bySpec: map[string]int{}},
	}
}

// wants number what claims request: equal numbers, equal requests and constraints. Each claim is encoded once.
type wants struct {
	byClaim map[types.UID]int
	bySpec  map[string]int
}

func (w wants) of(c *resourcev1.ResourceClaim) int {
	if n, known := w.byClaim[c.UID]; known {
		return n
	}
	spec, err := c.Spec.Marshal()
	if err != nil {
		spec = []byte(c.UID) // then it equals no other
	}
	n, known := w.bySpec[string(spec)]
	if !known {
		n = len(w.bySpec)
		w.bySpec[string(spec)] = n
	}
	w.byClaim[c.UID] = n
	return n
}

// searchFor identifies the search for devices of the claims on a node.
func (b *allocations) searchFor(claims []*resourcev1.ResourceClaim, at snapshot.DeviceNode) search {
	var asked, labels strings.Builder
	for _, c := range claims {
		fmt.Fprintf(&asked, "%d ", b.searches.wants.of(c))
	}
	for _, key := range b.devices.labels {
		value, ok := at.Labels[key]
		fmt.Fprintf(&labels, "%q %t ", value, ok)
	}
	if b.devices.features.OptionalNodeOperations {
		fmt.Fprintf(&labels, "%q ", at.DeclaredFeatures)
	}
	s := search{claims: asked.String(), labels: labels.String()}
	switch {
	case at.Type == nil && b.devices.onNode[at.Node] != nil:
		s.node = at.Node
	case at.Type != nil && len(at.Type.DeviceSlices) > 0:
		s.instanceType = at.Type.Name
		if s.version = b.versions[at.Node]; s.version > 0 {
			s.node = at.Node
		}
	}
	return s
}

// ofClaims is the same search for these claims alone: errors name them.
func (s search) ofClaims(claims []*resourcev1.ResourceClaim) search {
	s.claims = ""
	for _, c := range claims {
		s.claims += string(c.UID) + " "
	}
	return s
}

// onAny is the same search on a node of the type that nothing is allocated on.
func (s search) onAny() search {
	if s.instanceType != "" {
		s.node, s.version = "", 0
	}
	return s
}

// failedBefore reports whether the search found nothing, on this node or on one with more free devices, and its error.
func (b *allocations) failedBefore(s search, claims []*resourcev1.ResourceClaim) (failed bool, err error) {
	s.version = 0
	for _, s := range []search{s, s.onAny(), s.ofClaims(claims)} {
		if err, failed = b.searches.failed[s]; failed {
			return true, err
		}
	}
	return false, nil
}

// noteFailure remembers a search that found nothing.
func (b *allocations) noteFailure(s search, claims []*resourcev1.ResourceClaim, err error) {
	s.version = 0
	if err != nil {
		s = s.ofClaims(claims)
	}
	b.searches.failed[s] = err
}

// repeatable reports whether the search has the same result until something is allocated on its node: all devices that
// it can find come with the node.
func (b *allocations) repeatable(s search) bool {
	return s.instanceType != "" && len(b.devices.shared) == 0
}

// known returns the result of an equal search, on the node.
func (b *allocations) known(s search, node string) (snapshot.DeviceAllocation, bool) {
	if !b.repeatable(s) {
		return snapshot.DeviceAllocation{}, false
	}
	found, ok := b.searches.found[s]
	if !ok || found.node == node {
		return found.DeviceAllocation, ok
	}
	out := found.DeviceAllocation
	out.Results = make([]*resourcev1.AllocationResult, len(found.Results))
	for i, r := range found.Results {
		out.Results[i] = moved(r, found.node, node)
	}
	return out, true
}

// moved is an allocation of devices that come with one node as one of the devices that come with another of its type.
func moved(r *resourcev1.AllocationResult, from, to string) *resourcev1.AllocationResult {
	out := *r
	out.Devices.Results = slices.Clone(r.Devices.Results)
	for i := range out.Devices.Results {
		rest, _ := strings.CutPrefix(out.Devices.Results[i].Pool, expectedPools(from))
		out.Devices.Results[i].Pool = expectedPools(to) + rest
	}
	out.NodeSelector = r.NodeSelector.DeepCopy()
	if out.NodeSelector == nil {
		return &out
	}
	for _, term := range out.NodeSelector.NodeSelectorTerms {
		for i := range term.MatchFields {
			term.MatchFields[i] = corev1.NodeSelectorRequirement{
				Key: term.MatchFields[i].Key, Operator: term.MatchFields[i].Operator, Values: []string{to},
			}
		}
	}
	return &out
}

// expectedPools returns what the names of the pools that come with a node begin with.
func expectedPools(node string) string { return snapshot.ExpectedPool + "/" + node + "/" }

// nodeOfPool is the node of an expected pool.
func nodeOfPool(pool string) string {
	node, _, _ := strings.Cut(strings.TrimPrefix(pool, snapshot.ExpectedPool+"/"), "/")
	return node
}
