package repair

import (
	"cmp"
	"time"
)

const (
	// MaxUnhealthyPercent is the share of a NodePool's nodes, rounded up, that may be unhealthy for its repairs to go on.
	// It is Karpenter's.
	MaxUnhealthyPercent = 20
	// TrialDelay sets how long a fault must have been due before its node is repaired although the breaker is open. A
	// common cause, such as an outage of the network, mostly passes within it; a fault that was there before does not.
	TrialDelay = 30 * time.Minute
)

// Breaker holds back repairs in a NodePool with too many unhealthy nodes. Nodes count from the first moment of a fault,
// tolerated or not.
//
// If the unhealthy nodes beyond the share are all in some zones, the fault is one of these zones, and repairs go on in
// the others. Where repairs are held back, the node with a fault that has been due longest is repaired all the same after
// TrialDelay, one node of the pool at a time: a fault of its own must not wait for the end of a common one, and if its
// replacement fails too, no more than one node was lost.
type Breaker struct {
	pools map[string]*poolHealth
}

type poolHealth struct {
	count
	zones map[string]*count
	// repairing is true while a repair of a node of the pool is in progress.
	repairing bool
	// oldest is the node with the fault that has been due longest among those held back.
	oldest candidateFault
}

type count struct{ nodes, unhealthy int }

// tripped reports whether the unhealthy nodes exceed the share.
func (c count) tripped() bool { return TooMany(c.unhealthy, c.nodes) }

// TooMany reports whether so many of the nodes are unhealthy that the cause is likely a common one.
func TooMany(unhealthy, nodes int) bool { return unhealthy > (nodes*MaxUnhealthyPercent+99)/100 }

type candidateFault struct {
	node string
	due  time.Time
}

// NewBreaker returns a breaker without nodes.
func NewBreaker() *Breaker { return &Breaker{pools: map[string]*poolHealth{}} }

// Health describes what the breaker counts of a node.
type Health struct {
	Pool, Zone string
	// Unhealthy is true from the first moment of a fault.
	Unhealthy bool
	// Repairing is true while a repair of the node is in progress.
	Repairing bool
}

// Count adds a node of a pool. All nodes must be counted before the first question.
func (b *Breaker) Count(h Health) {
	p := b.pools[h.Pool]
	if p == nil {
		p = &poolHealth{zones: map[string]*count{}}
		b.pools[h.Pool] = p
	}
	z := p.zones[h.Zone]
	if z == nil {
		z = &count{}
		p.zones[h.Zone] = z
	}
	for _, c := range []*count{&p.count, z} {
		c.nodes++
		if h.Unhealthy {
			c.unhealthy++
		}
	}
	p.repairing = p.repairing || h.Repairing
}

// NoteDue records since when a node has been due for repair, so that the breaker knows the one that has waited longest.
func (b *Breaker) NoteDue(node, pool string, due time.Time) {
	p := b.pools[pool]
	if p == nil {
		return
	}
	f := candidateFault{node, due}
	if p.oldest.node == "" || cmp.Or(f.due.Compare(p.oldest.due), cmp.Compare(f.node, p.oldest.node)) < 0 {
		p.oldest = f
	}
}

// Block states why a node is not repaired now.
type Block struct {
	// Zone is set if only repairs in the zone are held back.
	Zone string
	// Unhealthy of Nodes in the pool, or in its zone.
	Unhealthy, Nodes int
}

// Blocks reports whether the repair of a node is held back.
func (b *Breaker) Blocks(node, pool, zone string, now time.Time) (why Block, blocked bool) {
	p := b.pools[pool]
	if p == nil || !p.tripped() {
		return Block{}, false
	}
	why = Block{Unhealthy: p.unhealthy, Nodes: p.nodes}
	if p.inSomeZones() {
		z := p.zones[zone]
		if z == nil || !z.tripped() {
			return Block{}, false
		}
		why = Block{Zone: zone, Unhealthy: z.unhealthy, Nodes: z.nodes}
	}
	trial := !p.repairing && p.oldest.node == node && now.Sub(p.oldest.due) >= TrialDelay
	return why, !trial
}

// inSomeZones reports whether the pool without the zones that exceed the share would not exceed it.
func (p *poolHealth) inSomeZones() bool {
	rest := p.count
	for _, z := range p.zones {
		if z.tripped() {
			rest.nodes -= z.nodes
			rest.unhealthy -= z.unhealthy
		}
	}
	return rest.nodes > 0 && rest.nodes < p.nodes && !rest.tripped()
}
