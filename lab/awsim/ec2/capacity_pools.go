package ec2

import (
	"maps"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Pool is what capacity is counted by. In SetCapacity and FailPool an empty field stands for any.
type Pool struct {
	InstanceType string
	Zone         string // name
	Lifecycle    string // "spot" or "on-demand"
}

// covers reports whether the pattern p matches the pool q.
func (p Pool) covers(q Pool) bool {
	return (p.InstanceType == "" || p.InstanceType == q.InstanceType) && (p.Zone == "" || p.Zone == q.Zone) &&
		(p.Lifecycle == "" || p.Lifecycle == q.Lifecycle)
}

// pools is what was done to capacity from outside; without it capacity is endless.
type pools struct {
	limits map[Pool]int // how many more instances a pattern yields
	errors map[Pool]*protocol.Error
}

func newPools() pools { return pools{limits: map[Pool]int{}, errors: map[Pool]*protocol.Error{}} }

// SetCapacity limits how many more instances the pools that p covers yield together, before EC2 answers
// InsufficientInstanceCapacity. What instances return when they end is not counted. A negative count lifts the
// limit.
func (e *EC2) SetCapacity(p Pool, count int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if count < 0 {
		delete(e.pools.limits, p)
		return
	}
	e.pools.limits[p] = count
}

// ClearCapacity lifts every limit.
func (e *EC2) ClearCapacity() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.pools.limits)
}

// FailPool makes every launch from the pools that p covers fail with err, as a quota or a missing permission does
// (VcpuLimitExceeded, MaxSpotInstanceCountExceeded, AuthFailure.ServiceLinkedRoleCreationNotPermitted); nil stops it.
func (e *EC2) FailPool(p Pool, err *protocol.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.pools.errors, p)
		return
	}
	e.pools.errors[p] = err
}

// left returns how many more instances a pool yields, and whether there is a limit at all.
func (ps pools) left(q Pool) (count int, limited bool) {
	for p, n := range ps.limits {
		if p.covers(q) && (!limited || n < count) {
			count, limited = n, true
		}
	}
	return count, limited
}

// take counts one instance against every limit of its pool.
func (ps pools) take(q Pool) {
	for p := range maps.Keys(ps.limits) {
		if p.covers(q) {
			ps.limits[p]--
		}
	}
}

// failure returns what launches from a pool fail with, nil if nothing. The most specific pattern wins.
func (ps pools) failure(q Pool) *protocol.Error {
	for _, p := range []Pool{
		q,
		{q.InstanceType, q.Zone, ""},
		{q.InstanceType, "", q.Lifecycle},
		{"", q.Zone, q.Lifecycle},
		{q.InstanceType, "", ""},
		{"", q.Zone, ""},
		{"", "", q.Lifecycle},
		{},
	} {
		if err := ps.errors[p]; err != nil {
			return err
		}
	}
	return nil
}
