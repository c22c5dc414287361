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

// asksDevices tells whether a pod has claims of dynamic resource allocation, anywhere in its spec.
func asksDevices(pod *corev1.Pod) bool {
	n := len(pod.Spec.ResourceClaims)
	for i := range pod.Spec.Containers {
		n += len(pod.Spec.Containers[i].Resources.Claims)
	}
	for i := range pod.Spec.InitContainers {
		n += len(pod.Spec.InitContainers[i].Resources.Claims)
	}
	return n > 0
}

// device is one that a plan gives out.
type device struct{ driver, pool, name string }

// devices: a pod that has such claims has devices for all of them, which can be used where it is; none is given to two claims.
// While the snapshot does not know of devices, no such pod is placed.
func (c *check) devices() {
	owner := map[device]types.UID{}
	home := map[types.UID]*place{} // of claims whose devices come with a node
	for _, pl := range c.places {
		for _, u := range c.uses(pl) {
			c.given(pl, u, owner, home)
		}
	}
	for _, pl := range c.places {
		for _, pod := range pl.pods {
			switch {
			case !asksDevices(pod):
			case c.s.Devices == nil:
				c.failAt([]*place{pl}, "pod %s has resource claims, and is placed on %s", name(pod), pl.name)
			default:
				c.equipped(pl, pod, home)
			}
		}
	}
}

// uses are the devices that the plan gives to pods of a place.
func (c *check) uses(pl *place) []schedule.DeviceUse {
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

// given notes whose the devices of a use are, and where they can be used.
func (c *check) given(pl *place, u schedule.DeviceUse, owner map[device]types.UID, home map[types.UID]*place) {
	for _, g := range u.Grants {
		reach, err := c.exprs(g.Reach)
		if err != nil || !pl.satisfies(&wants{selector: reach}) {
			c.failAt([]*place{pl}, "pod %s: its devices cannot be used on %s", name(u.Pod), pl.name)
		}
		for i, r := range g.Results {
			if r == nil {
				continue
			}
			claim := u.Claims[i]
			for _, d := range r.Devices.Results {
				if strings.HasPrefix(d.Pool, snapshot.ExpectedPool) {
					home[claim.UID] = pl
				}
				key := device{d.Driver, d.Pool, d.Device}
				if other, taken := owner[key]; taken && other != claim.UID && exclusive(&d) {
					c.failAt([]*place{pl}, "pod %s: device %s of pool %s is given to resource claim %s and to another", name(u.Pod), d.Device, d.Pool, claim.Name)
				}
				if exclusive(&d) {
					owner[key] = claim.UID
				}
			}
		}
	}
}

// exclusive devices are nobody else's.
func exclusive(d *resourcev1.DeviceRequestAllocationResult) bool {
	return d.ShareID == nil && (d.AdminAccess == nil || !*d.AdminAccess)
}

// equipped: the pod has devices for its claims. One that keeps the place that was bought for it may have lost them.
func (c *check) equipped(pl *place, pod *corev1.Pod, home map[types.UID]*place) {
	at := []*place{pl}
	kept := pl.node != nil && slices.Contains(pl.node.Nominated, pod.UID)
	claims, err := c.s.Devices.Claims(pod)
	if err != nil {
		c.failAt(at, "pod %s is placed though %v", name(pod), err)
		return
	}
	var has []snapshot.DeviceClaim
	for _, u := range c.uses(pl) {
		if u.Pod.UID == pod.UID {
			has = append(has, u.Claims...)
		}
	}
	for _, claim := range claims {
		if !kept && !slices.ContainsFunc(has, func(h snapshot.DeviceClaim) bool { return h.UID == claim.UID }) {
			c.failAt(at, "pod %s: there are no devices for resource claim %s on %s", name(pod), claim.Name, pl.name)
		}
		if h := home[claim.UID]; h != nil && h != pl && !kept {
			c.failAt(at, "pod %s: the devices of resource claim %s come with %s, and it is placed on %s", name(pod), claim.Name, h.name, pl.name)
		}
	}
}
