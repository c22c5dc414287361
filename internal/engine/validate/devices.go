package validate

import (
	"fmt"
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
	var free snapshot.DeviceState
	if c.s.Devices != nil {
		free = c.s.Devices.Free(c.leaving())
	}
	first := c.firstUsers()
	for _, pl := range c.hosts {
		for _, pod := range pl.pods {
			c.hasExtended(pl, pod)
			switch {
			case !usesResourceClaims(pod):
			case c.s.Devices == nil:
				c.failAt([]*host{pl}, "pod %s has resource claims, and is placed on %s", name(pod), pl.name)
			default:
				c.hasDevices(pl, pod, comesWith)
				c.hasDevicesOnEach(pl, pod, func(claims []snapshot.DeviceClaim, at snapshot.DeviceNode) error {
					_, err := free.Find(slices.DeleteFunc(slices.Clone(claims), func(claim snapshot.DeviceClaim) bool {
						other, some := first[claim.UID]
						return some && other != pod.UID
					}), at)
					return err
				})
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
				} else if !c.usable(pl, &d) {
					c.failAt([]*host{pl}, "pod %s: device %s of pool %s cannot be used on %s", name(u.Pod), d.Device, d.Pool, pl.name)
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

// usable reports whether the host can use a published device, whatever it becomes.
func (c *check) usable(pl *host, d *resourcev1.DeviceRequestAllocationResult) bool {
	selector, published := c.s.Devices.UsableOn(d)
	if !published || selector == nil {
		return published
	}
	return slices.ContainsFunc(selector.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		named := !slices.ContainsFunc(t.MatchFields, func(f corev1.NodeSelectorRequirement) bool {
			return pl.node == nil || !slices.Contains(f.Values, pl.node.Name)
		})
		demands, err := c.exprs(t.MatchExpressions)
		return named && err == nil && pl.satisfies(&labelDemands{selector: demands})
	})
}

// exclusive devices have one owner.
func exclusive(d *resourcev1.DeviceRequestAllocationResult) bool {
	return d.ShareID == nil && (d.AdminAccess == nil || !*d.AdminAccess)
}

// leaving are the pods that are planned, and those on nodes that go: their devices become free.
func (c *check) leaving() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, pod := range c.s.Pods {
		out[pod.UID] = true
	}
	for i := range c.s.Nodes {
		for _, pod := range c.s.Nodes[i].Pods {
			out[pod.UID] = out[pod.UID] || c.s.Nodes[i].Deleting
		}
	}
	return out
}

// firstUsers are the pods for which the plan allocates devices, by claim. Others that use the claim come after them.
func (c *check) firstUsers() map[types.UID]types.UID {
	out := map[types.UID]types.UID{}
	for _, pl := range c.hosts {
		for _, u := range c.devicesAt(pl) {
			for _, g := range u.Grants {
				for i, r := range g.Results {
					if r != nil {
						out[u.Claims[i].UID] = u.Pod.UID
					}
				}
			}
		}
	}
	return out
}

// hasDevicesOnEach: whatever a launch becomes, there are devices for the pod, if it were alone. Find finds devices for those of its claims
// that get them with it.
func (c *check) hasDevicesOnEach(pl *host, pod *corev1.Pod, find func([]snapshot.DeviceClaim, snapshot.DeviceNode) error) {
	claims, err := c.s.Devices.Claims(pod)
	if pl.launch == nil || err != nil {
		return
	}
	seen := map[string]bool{}
	for _, out := range pl.outcomes {
		at := snapshot.DeviceNode{Node: pl.name, Labels: map[string]string{}, Type: out.it}
		for _, key := range c.s.Devices.Labels() {
			if l := pl.labelOn(out, c.s.Labels.Normalize(key)); len(l.values) == 1 && !l.absent {
				at.Labels[key] = l.values[0]
			}
		}
		kind := fmt.Sprint(out.it.Name, at.Labels)
		if seen[kind] {
			continue
		}
		seen[kind] = true
		if err := find(claims, at); err != nil {
			c.failAt([]*host{pl}, "pod %s: as %s in %s, %s has no devices for it: %v", name(pod), out.it.Name, out.o.Zone, pl.name, err)
			return
		}
	}
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
