package ec2

import (
	"encoding/binary"
	"net/netip"
)

// addresses6 hands out what a subnet's IPv6 block has: its first /80 address by address, the others whole. There are so
// many that none is used twice.
type addresses6 struct {
	block    netip.Prefix // /64
	singles  uint64       // handed out so far
	prefixes uint16
}

// prefixes6 is how many /80 a /64 has, besides the first.
const prefixes6 = 1<<16 - 1

// firstSingle is the first address that is not reserved.
const firstSingle = 4

func (a *addresses6) take() netip.Addr {
	a.singles++
	return a.at(firstSingle + a.singles - 1)
}

// takePrefix returns a /80, and false when there is none left.
func (a *addresses6) takePrefix() (netip.Prefix, bool) {
	if a.prefixes == prefixes6 {
		return netip.Prefix{}, false
	}
	a.prefixes++
	return netip.PrefixFrom(a.at(uint64(a.prefixes)<<48), 80), true
}

func (a *addresses6) at(suffix uint64) netip.Addr {
	b := a.block.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], suffix)
	return netip.AddrFrom16(b)
}
