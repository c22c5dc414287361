// Package static decides about NodePools of a fixed size: how many nodes one lacks, and which to end when it has too
// many. It is pure: nodes in, numbers and nodes out.
package static

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Counts are the nodes of a pool, those without an instance included. Each node is in one of them.
type Counts struct {
	// Active stay. Pending wait for their replacement to be up and are ended then. Deleting are going already.
	Active, Pending, Deleting int64
}

// All is how many nodes the pool has, whatever becomes of them.
func (c Counts) All() int64 { return c.Active + c.Pending + c.Deleting }

// Count counts the nodes of one pool.
func Count(nodes []snapshot.Node) (c Counts) {
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Disrupting:
			c.Pending++
		case n.Deleting:
			c.Deleting++
		default:
			c.Active++
		}
	}
	return c
}

// Missing is how many nodes to add. A node that waits for its replacement still stands for itself: whoever replaces
// it buys that, and the pool does not grow beyond its size meanwhile.
func Missing(replicas int64, c Counts) int64 { return max(0, replicas-c.Active-c.Pending) }

// Excess is how many nodes to end.
func Excess(replicas int64, c Counts) int64 { return max(0, c.Active-replicas) }

// Limit is how many nodes the pool may have at most, those that are going included.
func Limit(pool *karpv1.NodePool) int64 {
	limit, bounded := pool.Spec.Limits[karpv1.ResourceNodes]
	if !bounded {
		return math.MaxInt64
	}
	return quantity.Value(limit)
}

// Grant is how many of want nodes may be added to a pool that has so many, and whose limit others have reserved a part
// of; never negative.
func Grant(limit, have, reserved, want int64) int64 {
	return max(0, min(want, limit-have-reserved))
}

// Surplus chooses n of the pool's active nodes to end: first those without an instance, then empty ones, then those whose
// pods mind least, and last of all those with a pod that must not be disrupted. Among equals the zone with
// most nodes gives one up, so that what is left stays spread; then the youngest goes.
func Surplus(nodes []snapshot.Node, n int64, now time.Time) []*snapshot.Node {
	var left []candidate
	inZone := map[string]int{}
	for i := range nodes {
		if node := &nodes[i]; !node.Deleting && !node.Disrupting {
			left = append(left, rank(node, now))
			inZone[node.Labels[corev1.LabelTopologyZone]]++
		}
	}
	var out []*snapshot.Node
	for ; n > 0 && len(left) > 0; n-- {
		first := 0
		for i := range left {
			if order(left[i], left[first], inZone) < 0 {
				first = i
			}
		}
		out = append(out, left[first].node)
		inZone[left[first].zone()]--
		left = slices.Delete(left, first, first+1)
	}
	return out
}

// candidate is a node with what it means to end it.
type candidate struct {
	node *snapshot.Node
	tier tier
	// cost is how much the pods' moving counts, less the nearer the node is to its expiration.
	cost float64
}

type tier int

const (
	notLaunched tier = iota
	empty
	busy
	protected
)

func rank(n *snapshot.Node, now time.Time) candidate {
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
			c.cost += disrupt.EvictionCost(p)
		}
		c.cost *= lifetimeLeft(n, now)
	}
	return c
}

// lifetimeLeft is the share of its life that the node still has; 1 if it does not expire.
func lifetimeLeft(n *snapshot.Node, now time.Time) float64 {
	if n.ExpireAfter <= 0 {
		return 1
	}
	left := n.CreatedAt.Add(n.ExpireAfter).Sub(now)
	return min(max(left.Seconds()/n.ExpireAfter.Seconds(), 0), 1)
}

func (c candidate) zone() string { return c.node.Labels[corev1.LabelTopologyZone] }

func order(a, b candidate, inZone map[string]int) int {
	return cmp.Or(
		cmp.Compare(a.tier, b.tier),
		cmp.Compare(a.cost, b.cost),
		cmp.Compare(inZone[b.zone()], inZone[a.zone()]),
		b.node.CreatedAt.Compare(a.node.CreatedAt),
		cmp.Compare(a.node.Name, b.node.Name),
	)
}
