package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// usesResourceClaims reports whether a pod has claims of dynamic resource allocation, anywhere in its spec.
func usesResourceClaims(pod *corev1.Pod) bool {
	n := len(pod.Spec.ResourceClaims)
	for i := range pod.Spec.Containers {
		n += len(pod.Spec.Containers[i].Resources.Claims)
	}
	for i := range pod.Spec.InitContainers {
		n += len(pod.Spec.InitContainers[i].Resources.Claims)
	}
	return n > 0
}

// device is one that a plan allocates.
type device struct{ driver, pool, name string }

// devices: a pod with resource claims has devices for all of them, which can be used on its node; none is allocated to
// two claims. If the snapshot has no Devices, no such pod is placed.
func (c *check) devices() {
	owner := map[device]types.UID{}
	comesWith := map[types.UID]*host{} // by claim, if its devices come with a node
	for _, pl := range c.hosts {
		for _, u := range c.devicesAt(pl) {
			c.allocation(pl, u, owner, comesWith)
		}
	}
	for _, pl := range c.hosts {
		for _, pod := range pl.pods {
			c.hasExtended(pl, pod)
			switch {
			case !usesResourceClaims(pod):
			case c.s.Devices == nil:
				c.failAt([]*host{pl}, "pod %s has resource claims, and is placed on %s", name(pod), pl.name)
			default:
				c.hasDevices(pl, pod, comesWith)
			}
		}
	}
}

// devicesAt are the devices that the plan allocates to pods on a host.
func (c *check) devicesAt(pl *host) []schedule.DeviceUse {
	if pl.launch != nil {
		return pl.launch.Devices
	}
	var out []schedule.DeviceUse
	for _, p := range c.p.Placements {
		if p.Node == pl.node.Name && p.Claim == pl.node.Claim {
			out = append(out, p.Devices...)
		}
	}
	return out
}

// allocation records the owners of devices, and where they can be used.
func (c *check) allocation(pl *host, u schedule.DeviceUse, owner map[device]types.UID, comesWith map[types.UID]*host) {
	for _, g := range u.Grants {
		reach, err := c.exprs(g.Reach)
		if err != nil || !pl.satisfies(&labelDemands{selector: reach}) {
			c.failAt([]*host{pl}, "pod %s: its devices cannot be used on %s", name(u.Pod), pl.name)
		}
		for i, r := range g.Results {
			if r == nil {
				continue
			}
			claim := u.Claims[i]
			for _, d := range r.Devices.Results {
				if strings.HasPrefix(d.Pool, snapshot.ExpectedPool) {
					comesWith[claim.UID] = pl
				}
				key := device{d.Driver, d.Pool, d.Device}
				if other, taken := owner[key]; taken && other != claim.UID && exclusive(&d) {
					c.failAt(
						[]*host{pl},
						"pod %s: device %s of pool %s is allocated to resource claim %s and to another",
						name(u.Pod),
						d.Device,
						d.Pool,
						claim.Name,
					)
				}
				if exclusive(&d) {
					owner[key] = claim.UID
				}
			}
		}
	}
}

// exclusive devices have one owner.
func exclusive(d *resourcev1.DeviceRequestAllocationResult) bool {
	return d.ShareID == nil && (d.AdminAccess == nil || !*d.AdminAccess)
}

// hasDevices: the pod has devices for its claims. A pod that stays nominated may have lost them.
func (c *check) hasDevices(pl *host, pod *corev1.Pod, comesWith map[types.UID]*host) {
	at := []*host{pl}
	kept := pl.node != nil && slices.Contains(pl.node.Nominated, pod.UID)
	claims, err := c.s.Devices.Claims(pod)
	if err != nil {
		c.failAt(at, "pod %s is placed though %v", name(pod), err)
		return
	}
	var has []snapshot.DeviceClaim
	for _, u := range c.devicesAt(pl) {
		if u.Pod.UID == pod.UID {
			has = append(has, u.Claims...)
		}
	}
	for _, claim := range claims {
		if claim.Extended != nil {
			continue // see hasExtended
		}
		if !kept && !slices.ContainsFunc(has, func(h snapshot.DeviceClaim) bool { return h.UID == claim.UID }) {
			c.failAt(at, "pod %s: there are no devices for resource claim %s on %s", name(pod), claim.Name, pl.name)
		}
		if h := comesWith[claim.UID]; h != nil && h != pl && !kept {
			c.failAt(at, "pod %s: the devices of resource claim %s come with %s, and it is placed on %s", name(pod), claim.Name, h.name, pl.name)
		}
	}
}
