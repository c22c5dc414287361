// Package static decides about static NodePools (spec.replicas): how many nodes one lacks, and which to remove when
// it has too many. It is pure: nodes in, numbers and nodes out.
package static

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Counts are the nodes of a pool, those without an instance included. Each node is in one of them.
type Counts struct {
	// Active stay. Pending wait until their replacement is initialized, and are removed then. Deleting are being
	// deleted.
	Active, Pending, Deleting int64
	// Unlaunched holds those of the active ones that have no instance yet. Terminating holds those of the deleting ones with an
	// instance that terminates, or has: a capacity reservation may count its slot as free before the claim is gone.
	Unlaunched, Terminating int64
}

// All returns how many nodes the pool has, in any state.
func (c Counts) All() int64 { return c.Active + c.Pending + c.Deleting }

// Count counts the nodes of one pool.
func Count(nodes []snapshot.Node) (c Counts) {
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Disrupting:
			c.Pending++
		case n.Deleting:
			c.Deleting++
			if n.InstanceTerminating {
				c.Terminating++
			}
		default:
			c.Active++
			if !n.Launched {
				c.Unlaunched++
			}
		}
	}
	return c
}

// LaunchReason is the disruption that new nodes of a pool make up for: Drifted while nodes of it are drifted, else none.
// What becomes of such a node states whether another drifted one may go.
func LaunchReason(nodes []snapshot.Node) karpv1.DisruptionReason {
	for i := range nodes {
		if n := &nodes[i]; n.Initialized && !n.DriftedAt.IsZero() {
			return karpv1.DisruptionDrifted
		}
	}
	return ""
}

// Missing returns how many nodes to add. A node that waits for its replacement counts as one: the disruption command
// launches the replacement, and the pool does not exceed its size meanwhile.
func Missing(replicas int64, c Counts) int64 { return max(0, replicas-c.Active-c.Pending) }

// Excess returns how many nodes to remove.
func Excess(replicas int64, c Counts) int64 { return max(0, c.Active-replicas) }

// FreeSlots returns how many of the instances that capacity reservations still take are for new claims: the others are for claims
// that have no instance yet, or were of nodes that are not gone. Such a node may be held by a finalizer, with whatever it stands
// for, so that its replacement in the same slot would be one node too many.
func FreeSlots(free int64, c Counts) int64 { return max(0, free-c.Unlaunched-c.Terminating) }

// Limit returns how many nodes the pool may have, those being deleted included.
func Limit(pool *karpv1.NodePool) int64 {
	limit, bounded := pool.Spec.Limits[karpv1.ResourceNodes]
	if !bounded {
		return math.MaxInt64
	}
	return quantity.Value(limit)
}

// WithinLimit returns how many of want nodes the limit allows to add to a pool with have nodes, of which limit others have
// reserved a part; never negative.
func WithinLimit(limit, have, reserved, want int64) int64 {
	return max(0, min(want, limit-have-reserved))
}

// SelectForRemoval selects n of the pool's active nodes to remove: first those without an instance, then empty ones, then
// those with the lowest eviction cost, and last those with a pod that must not be disrupted. Among equals a node in
// the zone with most nodes is first, which keeps the pool spread over zones; then the youngest. It costs O(n x
// nodes).
func SelectForRemoval(nodes []snapshot.Node, n int64, now time.Time) []*snapshot.Node {
	var left []candidate
	inZone := map[string]int{}
	for i := range nodes {
		if node := &nodes[i]; !node.Deleting && !node.Disrupting {
			left = append(left, newCandidate(node, now))
			inZone[node.Labels[corev1.LabelTopologyZone]]++
		}
	}
	var out []*snapshot.Node
	for ; n > 0 && len(left) > 0; n-- {
		first := 0
		for i := range left {
			if compareCandidates(left[i], left[first], inZone) < 0 {
				first = i
			}
		}
		out = append(out, left[first].node)
		inZone[left[first].zone()]--
		left = slices.Delete(left, first, first+1)
	}
	return out
}

// candidate is a node with the cost of removing it.
type candidate struct {
	node *snapshot.Node
	tier tier
	// cost is the eviction cost of its pods, times the share of its lifetime that is left.
	cost float64
}

type tier int

const (
	notLaunched tier = iota
	empty
	busy
	protected
)

func newCandidate(n *snapshot.Node, now time.Time) candidate {
	c := candidate{node: n}
	switch {
	case !n.Launched:
		c.tier = notLaunched
	case slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return !snapshot.Disruptable(p, now) }):
		c.tier = protected
	case slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return !snapshot.DaemonOwned(p) && !snapshot.Mirror(p) }):
		c.tier = busy
	default:
		c.tier = empty
	}
	if c.tier >= busy {
		for _, p := range n.Pods {
			c.cost += snapshot.EvictionCost(p)
		}
		c.cost *= lifetimeLeft(n, now)
	}
	return c
}

// lifetimeLeft is the share of its lifetime that the node has left; 1 if it does not expire.
func lifetimeLeft(n *snapshot.Node, now time.Time) float64 {
	if n.ExpireAfter <= 0 {
		return 1
	}
	left := n.CreatedAt.Add(n.ExpireAfter).Sub(now)
	return min(max(left.Seconds()/n.ExpireAfter.Seconds(), 0), 1)
}

func (c candidate) zone() string { return c.node.Labels[corev1.LabelTopologyZone] }

func compareCandidates(a, b candidate, inZone map[string]int) int {
	return cmp.Or(
		cmp.Compare(a.tier, b.tier),
		cmp.Compare(a.cost, b.cost),
		cmp.Compare(inZone[b.zone()], inZone[a.zone()]),
		b.node.CreatedAt.Compare(a.node.CreatedAt),
		cmp.Compare(a.node.Name, b.node.Name),
	)
}
