package ec2

import (
	"encoding/binary"
	"net/netip"
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
	held    int // addresses in the prefixes of network interfaces
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
func (a *addresses) available() int { return max(0, a.free-a.held-a.outside) }

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

// isFree says whether takeThis would get the address.
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
			a.outside = max(0, a.free-a.held-free)
		}
	}
}
