package network

import "sync"

// zones are the zones in which subnets were found. The mapping of names to IDs differs between accounts.
type zones struct {
	mu  sync.Mutex
	ids map[string]string // by name
}

func (z *zones) note(subnets []Subnet) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.ids == nil {
		z.ids = map[string]string{}
	}
	for _, s := range subnets {
		z.ids[s.Zone] = s.ZoneID
	}
}

// ZoneID is the ID of a zone by its name; empty if no subnet was found in it.
func (f *Finder) ZoneID(name string) string {
	f.zones.mu.Lock()
	defer f.zones.mu.Unlock()
	return f.zones.ids[name]
}
