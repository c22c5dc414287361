// Package validate checks a Plan against its Snapshot, rule by rule, in the plainest way there is.
//
// It shares no code with the search, so that a mistake there does not excuse itself here. It knows the
// finished plan only, not the order in which pods were placed, and checks what must hold in the end.
package validate

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	componentresource "k8s.io/component-helpers/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Plan returns every rule that the plan breaks, joined; nil if none.
func Plan(s *snapshot.Snapshot, p schedule.Plan) error {
	c := &check{s: s, p: p}
	c.once()
	c.nodes()
	c.launches()
	c.limits()
	c.reservations()
	c.devices()
	c.topology()
	return errors.Join(c.errs...)
}

type check struct {
	s    *snapshot.Snapshot
	p    schedule.Plan
	errs []error
}

func (c *check) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// once: every pod of the snapshot is in the plan exactly once, and no other is.
func (c *check) once() {
	seen := map[types.UID]int{}
	for _, pl := range c.p.Placements {
		for _, pod := range pl.Pods {
			seen[pod.UID]++
		}
	}
	for _, l := range c.p.Launches {
		for _, pod := range l.Pods {
			seen[pod.UID]++
		}
	}
	for _, r := range c.p.Rejected {
		seen[r.Pod.UID]++
		if len(r.Reasons) == 0 {
			c.fail("pod %s is rejected without a reason", name(r.Pod))
		}
		for _, reason := range r.Reasons {
			if reason.Code == "" || reason.Message == "" {
				c.fail("pod %s is rejected for an empty reason", name(r.Pod))
			}
		}
	}
	want := map[types.UID]bool{}
	for _, pod := range c.s.Pods {
		want[pod.UID] = true
		if seen[pod.UID] != 1 {
			c.fail("pod %s is in the plan %d times", name(pod), seen[pod.UID])
		}
	}
	for uid := range seen {
		if !want[uid] {
			c.fail("pod %s is in the plan but not in the snapshot", uid)
		}
	}
}

func (c *check) node(name, claim string) *snapshot.Node {
	for i := range c.s.Nodes {
		if n := &c.s.Nodes[i]; n.Name == name && n.Claim == claim {
			return n
		}
	}
	return nil
}

// nodes: what is placed on an existing node may run there.
func (c *check) nodes() {
	for _, pl := range c.p.Placements {
		n := c.node(pl.Node, pl.Claim)
		if n == nil || n.Deleting {
			c.fail("pods are placed on node %s, which takes none", pl.Node)
			continue
		}
		nominated := true
		for _, pod := range pl.Pods {
			nominated = nominated && slices.Contains(n.Nominated, pod.UID)
		}
		if !n.Launched && n.Claim != "" {
			if !nominated {
				c.fail("claim %s is not launched, but gets pods beyond those promised to it", n.Claim)
			}
			continue
		}
		labels := map[string]string{corev1.LabelHostname: n.Name}
		for k, v := range n.Labels {
			labels[k] = v
		}
		for _, pod := range pl.Pods {
			if !n.Initialized && slices.Contains(n.Nominated, pod.UID) {
				continue
			}
			c.mayRun(pod, "node "+n.Name, n.Taints, func(r requirement.Requirement) bool {
				v, ok := labels[r.Key()]
				return ok && r.Has(v) || !ok && r.AllowsAbsent()
			})
		}
		if nominated && !n.Initialized {
			continue
		}
		all := slices.Clone(pl.Pods)
		for _, pod := range n.Pods {
			if !snapshot.Terminal(pod) {
				all = append(all, pod)
			}
		}
		c.holds("node "+n.Name, all, nil, n.Allocatable)
		c.ports("node "+n.Name, all)
	}
}

// mayRun: taints are tolerated, and nodeSelector and one required term are satisfied.
func (c *check) mayRun(pod *corev1.Pod, where string, taints []corev1.Taint, satisfied func(requirement.Requirement) bool) {
	for i := range taints {
		tolerated := taints[i].Effect == corev1.TaintEffectPreferNoSchedule
		for _, t := range pod.Spec.Tolerations {
			tolerated = tolerated || snapshot.Tolerates([]corev1.Toleration{t}, &taints[i])
		}
		if !tolerated {
			c.fail("pod %s does not tolerate taint %s of %s", name(pod), taints[i].Key, where)
		}
	}
	node, err := c.s.Labels.FromPod(&pod.Spec)
	if err != nil {
		c.fail("pod %s is placed though it cannot be read: %v", name(pod), err)
		return
	}
	all := func(set requirement.Set) bool {
		for _, r := range set.All() {
			if !satisfied(r) {
				return false
			}
		}
		return true
	}
	if !all(node.Selector) {
		c.fail("pod %s: nodeSelector is not satisfied on %s", name(pod), where)
	}
	if node.Required != nil && !slices.ContainsFunc(node.Required, all) {
		c.fail("pod %s: required node affinity is not satisfied on %s", name(pod), where)
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			c.mayMount(pod, v.PersistentVolumeClaim.ClaimName, where, all)
		}
	}
}

// mayMount: the volume behind the claim can be had there.
func (c *check) mayMount(pod *corev1.Pod, claim, where string, satisfied func(requirement.Set) bool) {
	pvc := c.s.Volumes.Claims[types.NamespacedName{Namespace: pod.Namespace, Name: claim}]
	if pvc == nil {
		c.fail("pod %s is placed without its volume claim %s", name(pod), claim)
		return
	}
	pv := c.s.Volumes.Volumes[pvc.Spec.VolumeName]
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		set, err := c.s.Labels.FromExpressions(term.MatchExpressions)
		if pv.Spec.Local != nil || pv.Spec.HostPath != nil {
			set = set.Without(corev1.LabelHostname)
		}
		if err == nil && satisfied(set) {
			return
		}
	}
	c.fail("pod %s: volume %s cannot be attached on %s", name(pod), pv.Name, where)
}

// holds: what pods and daemons request is there.
func (c *check) holds(where string, pods []*corev1.Pod, overhead, allocatable corev1.ResourceList) {
	total := map[corev1.ResourceName]resource.Quantity{}
	add := func(list corev1.ResourceList) {
		for n, q := range list {
			sum := total[n]
			sum.Add(q)
			total[n] = sum
		}
	}
	add(overhead)
	for _, pod := range pods {
		add(componentresource.PodRequests(pod, componentresource.PodResourcesOptions{}))
	}
	if sum := total[corev1.ResourcePods]; true {
		sum.Add(*resource.NewQuantity(int64(len(pods)), resource.DecimalSI))
		total[corev1.ResourcePods] = sum
	}
	for n, q := range total {
		if have := allocatable[n]; q.Cmp(have) > 0 {
			c.fail("%s: %s %s requested, %s there", where, q.String(), n, have.String())
		}
	}
}

// ports: no two pods want the same port of the node.
func (c *check) ports(where string, pods []*corev1.Pod) {
	type port struct {
		pod *corev1.Pod
		p   corev1.ContainerPort
	}
	var taken []port
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, p := range container.Ports {
				if p.HostPort == 0 {
					continue
				}
				for _, o := range taken {
					wild := p.HostIP == "" || p.HostIP == "0.0.0.0" || o.p.HostIP == "" || o.p.HostIP == "0.0.0.0"
					if o.pod != pod && o.p.HostPort == p.HostPort && o.p.Protocol == p.Protocol && (wild || o.p.HostIP == p.HostIP) {
						c.fail("%s: pods %s and %s both want host port %d", where, name(pod), name(o.pod), p.HostPort)
					}
				}
				taken = append(taken, port{pod, p})
			}
		}
	}
}

// launches: whatever type of a launch is bought, its pods may run there.
func (c *check) launches() {
	for i := range c.p.Launches {
		l := &c.p.Launches[i]
		where := fmt.Sprintf("launch %d (pool %s)", i, l.Pool.Name)
		if len(l.InstanceTypes) == 0 || len(l.Pods) == 0 {
			c.fail("%s has %d instance types and %d pods", where, len(l.InstanceTypes), len(l.Pods))
			continue
		}
		c.ports(where, l.Pods)
		cheapest := -1.0
		for _, it := range l.InstanceTypes {
			price, ok := c.price(l, it)
			if !ok {
				c.fail("%s: %s cannot be had", where, it.Name)
				continue
			}
			if price < cheapest {
				c.fail("%s: %s is cheaper than a type listed before it", where, it.Name)
			}
			cheapest = max(cheapest, price)
			on := where + " as " + it.Name
			for _, pod := range l.Pods {
				c.mayRun(pod, on, l.Pool.Spec.Template.Spec.Taints, func(r requirement.Requirement) bool {
					return c.launched(l, it, r)
				})
			}
			c.holds(on, l.Pods, c.daemons(l, it), it.Allocatable)
		}
		if price, ok := c.price(l, l.InstanceTypes[0]); ok && price != l.Offering.Price {
			c.fail("%s: offering at %v, the cheapest is %v", where, l.Offering.Price, price)
		}
	}
}

// launched tells whether a node of the launch and type satisfies r, wherever it comes up.
func (c *check) launched(l *schedule.Launch, it *catalog.InstanceType, r requirement.Requirement) bool {
	if r.Key() == corev1.LabelHostname {
		return r.Operator() != corev1.NodeSelectorOpIn && r.Operator() != corev1.NodeSelectorOpDoesNotExist
	}
	have := l.Requirements.Get(r.Key())
	if it.Requirements.Defines(r.Key()) {
		have = have.Intersect(it.Requirements.Get(r.Key()))
	} else if !l.Requirements.Defines(r.Key()) {
		return r.AllowsAbsent() || c.s.Labels.WellKnown[r.Key()]
	}
	if len(have.Values()) == 0 || have.Operator() != corev1.NodeSelectorOpIn {
		return r.AllowsAbsent() || have.Intersect(r).Equal(have)
	}
	for _, v := range have.Values() {
		if !r.Has(v) {
			return false
		}
	}
	return true
}

func (c *check) price(l *schedule.Launch, it *catalog.InstanceType) (float64, bool) {
	best, found := 0.0, false
	for _, o := range it.Offerings {
		ok := o.Available && l.Requirements.Get(corev1.LabelTopologyZone).Has(o.Zone) && l.Requirements.Get(karpv1.LabelCapacityType).Has(o.CapacityType) &&
			(o.ReservationID == "" || admits(l, &o))
		if ok && (!found || o.Price < best) {
			best, found = o.Price, true
		}
	}
	return best, found
}

// daemons is what the DaemonSets that surely run on the type request.
func (c *check) daemons(l *schedule.Launch, it *catalog.InstanceType) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, d := range c.s.DaemonSets {
		if asksDevices(d.Pod) {
			continue // needs not be counted: see schedule.DeviceClaims
		}
		before := len(c.errs)
		c.mayRun(d.Pod, "", l.Pool.Spec.Template.Spec.Taints, func(r requirement.Requirement) bool { return c.launched(l, it, r) })
		runs := len(c.errs) == before
		c.errs = c.errs[:before]
		if !runs {
			continue
		}
		requests := componentresource.PodRequests(d.Pod, componentresource.PodResourcesOptions{})
		requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		for n, q := range requests {
			sum := out[n]
			sum.Add(q)
			out[n] = sum
		}
	}
	return out
}

// limits hold whatever types are launched.
func (c *check) limits() {
	for _, pool := range c.s.Pools {
		for n, limit := range pool.NodePool.Spec.Limits {
			total := pool.Used[n].DeepCopy()
			launches := 0
			for _, l := range c.p.Launches {
				if l.Pool.Name != pool.NodePool.Name {
					continue
				}
				launches++
				var most resource.Quantity
				for _, it := range l.InstanceTypes {
					q := it.Capacity[n]
					if n == karpv1.ResourceNodes {
						q = *resource.NewQuantity(1, resource.DecimalSI)
					}
					if q.Cmp(most) > 0 {
						most = q
					}
				}
				total.Add(most)
			}
			if launches > 0 && total.Cmp(limit) > 0 {
				c.fail("pool %s: %s %s in use and planned, the limit is %s", pool.NodePool.Name, total.String(), n, limit.String())
			}
		}
	}
}
