// Package blastradius limits how many nodes controllers terminate because of one fault: if many nodes look broken at
// once, the cause is rarely the nodes, and would affect their replacements, too.
package blastradius

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

const (
	// UnhealthyPercent is the share of nodes, rounded up, that may be unhealthy for any of them to be replaced. It is
	// Karpenter's.
	UnhealthyPercent = repair.MaxUnhealthyPercent
	// minDeletable and deletablePercent limit garbage collection: up to three orphans in one pass are plausible, more
	// are most likely a mistake in the records. The percentage, rounded down, allows more in large clusters.
	minDeletable, deletablePercent = 3, 5
)

// EventBlocked is the reason of the event on unhealthy nodes that are not replaced. It is Karpenter's.
const EventBlocked = "NodeRepairBlocked"

// Scope is a set of nodes with a common cause of failure; without a NodePool and a zone it is the cluster.
type Scope struct{ NodePool, Zone string }

// PoolOf is the scope of a claim's NodePool: the cluster for a claim without one.
func PoolOf(claim *karpv1.NodeClaim) Scope {
	return Scope{NodePool: claim.Labels[karpv1.LabelNodePool]}
}

// ZoneOf is the scope of a claim's zone: the cluster for a claim without one.
func ZoneOf(claim *karpv1.NodeClaim) Scope {
	return Scope{Zone: claim.Labels[corev1.LabelTopologyZone]}
}

// Kind is the kind of the scope as messages name it.
func (s Scope) Kind() string {
	switch {
	case s.NodePool != "":
		return "nodepool"
	case s.Zone != "":
		return "zone"
	default:
		return "cluster"
	}
}

// Count counts how many nodes a scope has, and how many of these are unhealthy.
type Count struct{ Total, Unhealthy int }

// Blocked reports whether so many nodes are unhealthy that none of them is replaced.
func (c Count) Blocked() bool { return repair.TooMany(c.Unhealthy, c.Total) }

func (c Count) String() string { return fmt.Sprintf("%d of %d", c.Unhealthy, c.Total) }

// DeletableLimit returns how many of total objects garbage collection may delete in one pass.
func DeletableLimit(total int) int { return max(minDeletable, total*deletablePercent/100) }
