package network

import (
	"sync"
	"time"
)

// Addresses keeps account of free addresses per subnet between two looks at EC2: what was counted, less
// what launches on their way will use. It is safe for concurrent use.
type Addresses struct {
	now  func() time.Time
	kept time.Duration

	mu     sync.Mutex
	counts map[string]count
	looks  int
}

// count is one subnet's account: the addresses expected to be free, and the look at EC2 it started from.
type count struct {
	free int
	look int
	at   time.Time
}

// NewAddresses returns an empty account. Counts outlive the interval at which subnets are looked at, and
// five minutes at least.
func NewAddresses(interval time.Duration, now func() time.Time) *Addresses {
	return &Addresses{now: now, kept: max(5*time.Minute, interval+4*time.Minute), counts: map[string]count{}}
}

// Observe takes over fresh counts; launches on their way are in them by now or soon will be.
func (a *Addresses) Observe(subnets []Subnet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	for _, s := range subnets {
		a.counts[s.ID] = count{free: s.FreeAddresses, look: a.looks, at: a.now()}
	}
}

// Exhausted notes that EC2 found no free address in a subnet.
func (a *Addresses) Exhausted(subnetID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	a.counts[subnetID] = count{look: a.looks, at: a.now()}
}

// Choice is the subnet of each zone for one launch. Settle must be called once its outcome is known.
type Choice struct {
	// Subnets maps a zone's name to the subnet chosen there.
	Subnets map[string]string

	addresses *Addresses
	taken     map[string]taken
}

type taken struct{ look, addresses int }

// Choose picks, per zone, the first of those subnets that have the most free addresses, and takes from
// each what the launch will use there: need maps a zone to a number of addresses, and zones that are not
// in it are left out.
func (a *Addresses) Choose(subnets []Subnet, need map[string]int) *Choice {
	a.mu.Lock()
	defer a.mu.Unlock()
	choice := &Choice{Subnets: map[string]string{}, addresses: a, taken: map[string]taken{}}
	most := map[string]int{}
	for _, s := range subnets {
		if _, wanted := need[s.Zone]; !wanted {
			continue
		}
		free := a.free(s.ID)
		if best, chosen := most[s.Zone]; !chosen || free > best {
			most[s.Zone] = free
			choice.Subnets[s.Zone] = s.ID
		}
	}
	for zone, id := range choice.Subnets {
		c := a.counts[id]
		choice.taken[id] = taken{look: c.look, addresses: need[zone]}
		c.free -= need[zone]
		a.counts[id] = c
	}
	return choice
}

// free is the expected number of free addresses; 0 when nothing recent is known.
func (a *Addresses) free(id string) int {
	c := a.counts[id]
	if a.now().Sub(c.at) > a.kept {
		return 0
	}
	return c.free
}

// Settle gives back what was taken from subnets that the launch did not use; used is empty after a failure.
// A subnet that was counted afresh in the meantime is left alone.
func (c *Choice) Settle(used string) {
	a := c.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range c.taken {
		if now := a.counts[id]; id != used && now.look == t.look {
			now.free += t.addresses
			a.counts[id] = now
		}
	}
	c.taken = nil
}
