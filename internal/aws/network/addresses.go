package network

import (
	"sync"
	"time"
)

// Addresses estimates the free addresses of each subnet between two reads of EC2: those that EC2 reported, less those that launches
// in flight will use. It is safe for concurrent use.
type Addresses struct {
	now func() time.Time
	ttl time.Duration

	mu     sync.Mutex
	counts map[string]count
	// reads numbers the reads of EC2.
	reads int
}

// count is the estimate for one subnet: the addresses expected to be free, and the read of EC2 that it is based on.
type count struct {
	free int
	read int
	at   time.Time
}

const (
	// countMargin sets how much longer a count is used than the interval at which subnets are read: classes are resolved every few
	// minutes, so that a read may come that much later.
	countMargin = 4 * time.Minute
	minCountTTL = 5 * time.Minute
)

// NewAddresses returns Addresses without counts. interval is the one at which subnets are read.
func NewAddresses(interval time.Duration, now func() time.Time) *Addresses {
	return &Addresses{now: now, ttl: max(minCountTTL, interval+countMargin), counts: map[string]count{}}
}

// Observe replaces the counts of subnets by what EC2 has reported. Launches in flight are in these counts, or soon will be.
func (a *Addresses) Observe(subnets []Subnet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	for _, s := range subnets {
		a.counts[s.ID] = count{free: s.FreeAddresses, read: a.reads, at: a.now()}
	}
}

// Exhausted sets a subnet to no free address, after EC2 has found none.
func (a *Addresses) Exhausted(subnetID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	a.counts[subnetID] = count{read: a.reads, at: a.now()}
}

// Choice is the subnet of each zone for one launch. Settle must be called once its outcome is known.
type Choice struct {
	// Subnets maps a zone's name to the subnet chosen there.
	Subnets map[string]string

	addresses *Addresses
	taken     map[string]taken
}

// taken counts how many addresses a launch takes from a count, and the read that the count is based on.
type taken struct{ read, addresses int }

// Choose picks, per zone, the first of the subnets with the most free addresses, and subtracts what the launch will use there. need
// maps a zone to a number of addresses; zones that are not in it are skipped.
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
		choice.taken[id] = taken{read: c.read, addresses: need[zone]}
		c.free -= need[zone]
		a.counts[id] = c
	}
	return choice
}

// free is the expected number of free addresses; 0 without a recent count.
func (a *Addresses) free(id string) int {
	c := a.counts[id]
	if a.now().Sub(c.at) > a.ttl {
		return 0
	}
	return c.free
}

// Settle returns the addresses of subnets that the launch did not use; used is empty after a failure. Subnets that were read again
// in the meantime stay as they are.
func (c *Choice) Settle(used string) {
	a := c.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range c.taken {
		if now := a.counts[id]; id != used && now.read == t.read {
			now.free += t.addresses
			a.counts[id] = now
		}
	}
	c.taken = nil
}
