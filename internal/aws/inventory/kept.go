package inventory

import (
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// KeptFor is how old a listing of an earlier process may be. EC2 adds types a few times a month, and seldom withdraws one: a launch of a
// type that is gone is refused, and goes to the next.
const KeptFor = 7 * 24 * time.Hour

// Kept is a listing for a process that starts while EC2 describes nothing.
type Kept struct {
	Types []ec2types.InstanceTypeInfo `json:"types"`
	// Offered are the names of the types that are offered in a zone, by zone.
	Offered map[string][]string `json:"offered"`
}

// Keep returns the last listing, and when EC2 gave it; false before the first.
func (s *Source) Keep() (Kept, time.Time, bool) {
	s.mu.RLock()
	now := s.listing
	s.mu.RUnlock()
	if now.version == 0 {
		return Kept{}, time.Time{}, false
	}
	out := Kept{Types: now.types, Offered: map[string][]string{}}
	for _, zone := range now.zones {
		for i := range now.types {
			if name := string(now.types[i].InstanceType); now.offered[typeInZone{name, zone}] {
				out.Offered[zone] = append(out.Offered[zone], name)
			}
		}
	}
	return out, now.at, true
}

// Recall has a listing that EC2 gave to an earlier process stand in until Refresh succeeds, and reports whether it does: one that is empty
// or too old does not.
func (s *Source) Recall(k Kept, at time.Time) bool {
	of := listing{version: -1, at: at, types: k.Types, offered: map[typeInZone]bool{}}
	for zone, names := range k.Offered {
		for _, name := range names {
			of.offered[typeInZone{name, zone}] = true
		}
	}
	of.zones = zonesOf(of.offered)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing.version > 0 || !s.usable(of) {
		return false
	}
	s.recalled = of
	return true
}

// Recalled returns when the listing was given that stands in; false if none does.
func (s *Source) Recalled() (time.Time, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.recalled.at, s.usable(s.recalled)
}

// usable reports whether a listing of an earlier process may stand in.
func (s *Source) usable(l listing) bool {
	return len(l.types) > 0 && len(l.offered) > 0 && s.cfg.Now().Sub(l.at) <= KeptFor
}
