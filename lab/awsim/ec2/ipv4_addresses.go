package ec2

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// reservedAtStart is how many addresses at the start of a subnet AWS keeps: network, router, DNS, future use. The last
// address is kept too.
const reservedAtStart = 4

// addresses are the IPv4 addresses of a subnet.
type addresses struct {
	first   uint32 // the first address of the CIDR
	size    int
	used    []bool // by offset
	free    int
	cursor  int // where the search for the next free one starts; addresses are not reused at once
	outside int // addresses that something else than instances holds (SetFreeAddresses)
}

func newAddresses(cidr netip.Prefix) *addresses {
	first := cidr.Masked().Addr().As4()
	size := 1 << (32 - cidr.Bits())
	return &addresses{
		first: binary.BigEndian.Uint32(first[:]), size: size, used: make([]bool, size),
		free: size - reservedAtStart - 1, cursor: reservedAtStart,
	}
}

// available is how many addresses can still be taken.
func (a *addresses) available() int { return max(0, a.free-a.outside) }

// take hands out a free address.
func (a *addresses) take() (netip.Addr, bool) {
	if a.available() == 0 {
		return netip.Addr{}, false
	}
	for a.used[a.cursor] {
		a.advance()
	}
	at := a.cursor
	a.used[at] = true
	a.free--
	a.advance()
	return a.at(at), true
}

// takeThis hands out one particular address, if it is free and not reserved.
func (a *addresses) takeThis(ip netip.Addr) bool {
	if !a.isFree(ip) {
		return false
	}
	offset, _ := a.offset(ip)
	a.used[offset] = true
	a.free--
	return true
}

// isFree reports whether takeThis would get the address.
func (a *addresses) isFree(ip netip.Addr) bool {
	offset, ok := a.offset(ip)
	return ok && !a.used[offset] && a.available() > 0
}

func (a *addresses) release(ip netip.Addr) {
	if offset, ok := a.offset(ip); ok && a.used[offset] {
		a.used[offset] = false
		a.free++
	}
}

// prefixSize is how many addresses an IPv4 prefix of a network interface has.
const prefixSize = 16

// takePrefix hands out a /28 of which no address is in use or reserved.
func (a *addresses) takePrefix() (netip.Prefix, bool) {
	if a.available() < prefixSize {
		return netip.Prefix{}, false
	}
	for at := 0; at < a.size; at += prefixSize {
		if a.unused(at) {
			a.mark(at, true)
			return netip.PrefixFrom(a.at(at), 28), true
		}
	}
	return netip.Prefix{}, false
}

func (a *addresses) releasePrefix(p netip.Prefix) {
	if at, ok := a.offset(p.Addr()); ok && a.used[at] {
		a.mark(at, false)
	}
}

// prefixes is how many more takePrefix gives.
func (a *addresses) prefixes() int {
	n := 0
	for at := 0; at < a.size; at += prefixSize {
		if a.unused(at) {
			n++
		}
	}
	return min(n, a.available()/prefixSize)
}

// unused reports whether the prefix at an offset is free.
func (a *addresses) unused(at int) bool {
	if at < reservedAtStart || at+prefixSize > a.size-1 {
		return false // it has a reserved address
	}
	return !slices.Contains(a.used[at:at+prefixSize], true)
}

func (a *addresses) mark(at int, used bool) {
	for i := range prefixSize {
		a.used[at+i] = used
	}
	if used {
		a.free -= prefixSize
	} else {
		a.free += prefixSize
	}
}

func (a *addresses) at(offset int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a.first+uint32(offset))
	return netip.AddrFrom4(b)
}

// offset returns the place of an address that instances may have.
func (a *addresses) offset(ip netip.Addr) (int, bool) {
	b := ip.As4()
	offset := int64(binary.BigEndian.Uint32(b[:])) - int64(a.first)
	return int(offset), offset >= reservedAtStart && offset < int64(a.size-1)
}

func (a *addresses) advance() {
	a.cursor++
	if a.cursor >= a.size-1 {
		a.cursor = reservedAtStart
	}
}

// SetFreeAddresses makes a subnet have exactly free addresses left now, as if pods or others had taken the rest; it
// can only lower what instances leave. A negative number undoes it.
func (e *EC2) SetFreeAddresses(subnetID string, free int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.network.addrs[subnetID]; a != nil {
		a.outside = 0
		if free >= 0 {
			a.outside = max(0, a.free-free)
		}
	}
}
