package kubelet

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// addresses gives each pod of a node an address of the node's range, and keeps it for the pod's life.
type addresses struct {
	prefix netip.Prefix
	last   netip.Addr
	byPod  map[types.UID]netip.Addr
	taken  map[netip.Addr]struct{}
}

func newAddresses(prefix netip.Prefix) *addresses {
	return &addresses{prefix: prefix, last: prefix.Addr(), byPod: map[types.UID]netip.Addr{}, taken: map[netip.Addr]struct{}{}}
}

// of returns the pod's address. Addresses are handed out in turn, so that one that was released rests.
func (a *addresses) of(pod types.UID) (string, error) {
	if ip, ok := a.byPod[pod]; ok {
		return ip.String(), nil
	}
	for ip, wrapped := a.last.Next(), false; ; ip = ip.Next() {
		if !a.prefix.Contains(ip) {
			if wrapped {
				return "", fmt.Errorf("no address left in %s", a.prefix)
			}
			ip, wrapped = a.prefix.Addr().Next(), true
		}
		if _, taken := a.taken[ip]; taken {
			continue
		}
		a.taken[ip], a.byPod[pod], a.last = struct{}{}, ip, ip
		return ip.String(), nil
	}
}

func (a *addresses) release(pod types.UID) {
	delete(a.taken, a.byPod[pod])
	delete(a.byPod, pod)
}
