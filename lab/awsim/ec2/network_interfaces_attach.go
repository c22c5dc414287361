package ec2

import (
	"net/netip"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// nic is a network interface of an instance.
type nic struct {
	plannedInterface
	id   string
	ip   netip.Addr // zero for efa-only
	more []netip.Addr
	// blocks are its IPv4 prefixes; six and blocks6 are addresses and prefixes of IPv6.
	blocks  []netip.Prefix
	six     []netip.Addr
	blocks6 []netip.Prefix
	tags    map[string]string
}

// addressesNeeded is how many addresses of its subnet one instance of the order takes.
func (o *launchPlan) addressesNeeded() int {
	need := 0
	for _, p := range o.nics {
		need += p.prefixes*prefixSize + p.secondaries
		if p.kind != "efa-only" {
			need++
		}
	}
	return need
}

// prefixesNeeded is how many IPv4 prefixes one instance of the order takes.
func (o *launchPlan) prefixesNeeded() int {
	need := 0
	for _, p := range o.nics {
		need += p.prefixes
	}
	return need
}

func noAddresses(o *launchPlan) error {
	return protocol.Errorf("InsufficientFreeAddressesInSubnet",
		"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", o.subnet.ID)
}

// attach makes the network interfaces of a launch plan, or takes nothing at all.
func (e *EC2) attach(o *launchPlan) ([]nic, error) {
	addrs := e.network.addrs[o.subnet.ID]
	if addrs.available() < o.addressesNeeded() {
		return nil, noAddresses(o)
	}
	if o.privateIP.IsValid() && !addrs.takeThis(o.privateIP) {
		return nil, protocol.Errorf("InvalidIPAddress.InUse", "Address %s is in use.", o.privateIP)
	}
	nics := make([]nic, len(o.nics))
	for i, p := range o.nics {
		nics[i] = nic{plannedInterface: p, id: e.newID("eni"), tags: o.tags.nic}
		switch {
		case p.kind == "efa-only":
		case i == 0 && o.privateIP.IsValid():
			nics[i].ip = o.privateIP
		default:
			nics[i].ip, _ = addrs.take() // there are enough, see above
		}
		for range p.secondaries {
			ip, _ := addrs.take()
			nics[i].more = append(nics[i].more, ip)
		}
		if !nics[i].fill(addrs, e.network.addrs6[o.subnet.ID]) {
			releaseAddresses(addrs, nics)
			return nil, noBlocks()
		}
	}
	return nics, nil
}

func noBlocks() error {
	return protocol.Errorf("InsufficientCidrBlocks", "The specified subnet does not have enough free cidr blocks to satisfy the request.")
}

// fill takes the prefixes and the IPv6 addresses of an interface, and reports whether there were enough.
func (n *nic) fill(addrs *addresses, addrs6 *addresses6) bool {
	for range n.prefixes {
		block, ok := addrs.takePrefix()
		if !ok {
			return false
		}
		n.blocks = append(n.blocks, block)
	}
	for range n.ipv6 {
		n.six = append(n.six, addrs6.take())
	}
	for range n.prefixes6 {
		block, ok := addrs6.takePrefix()
		if !ok {
			return false
		}
		n.blocks6 = append(n.blocks6, block)
	}
	return true
}

// detach returns the addresses of an instance. The lock must be held.
func (n *network) detach(r *instanceRecord) { releaseAddresses(n.addrs[r.SubnetID], r.nics) }

func releaseAddresses(addrs *addresses, nics []nic) {
	for _, n := range nics {
		if n.ip.IsValid() {
			addrs.release(n.ip)
		}
		for _, ip := range n.more {
			addrs.release(ip)
		}
		for _, block := range n.blocks {
			addrs.releasePrefix(block)
		}
	}
}
