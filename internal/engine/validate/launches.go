package validate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxTypes limits how many types one claim may name.
const maxTypes = 600

// launches: whatever a claim becomes, its pods may run there.
func (c *check) launches() {
	for _, pl := range c.hosts {
		if l := pl.launch; l == nil {
			continue
		} else if l.Pool == nil || len(l.InstanceTypes) == 0 || len(l.Pods) == 0 {
			c.failAt([]*host{pl}, "%s has %d instance types and %d pods", pl.name, len(l.InstanceTypes), len(l.Pods))
			continue
		}
		c.allowedByPool(pl)
		c.offerings(pl)
		c.minValuesSatisfied(pl)
		for _, pod := range pl.pods {
			c.schedulable(pl, pod)
		}
		c.resources(pl)
	}
}

func (c *check) pool(name string) *snapshot.Pool {
	for i := range c.s.Pools {
		if c.s.Pools[i].NodePool.Name == name {
			return &c.s.Pools[i]
		}
	}
	return nil
}

// allowedByPool: the claim is one that its pool may create.
func (c *check) allowedByPool(pl *host) {
	at, l := []*host{pl}, pl.launch
	pool := c.pool(l.Pool.Name)
	if pool == nil || pool.NodePool.Spec.Replicas != nil {
		c.failAt(at, "%s is of a pool that cannot launch", pl.name)
		return
	}
	offered := map[string]bool{}
	for _, it := range pool.InstanceTypes {
		offered[it.Name] = true
	}
	for _, it := range l.InstanceTypes {
		if !offered[it.Name] {
			c.failAt(at, "%s: type %s is not one of its pool's, or is named twice", pl.name, it.Name)
		}
		offered[it.Name] = false
	}
	if len(l.InstanceTypes) > maxTypes {
		c.failAt(at, "%s names %d types", pl.name, len(l.InstanceTypes))
	}
	for key, list := range c.poolDemands(pool) {
		for i := range list {
			if have := pl.label(key); !list[i].holds(have) {
				c.failAt(at, "%s may have %v as %s, which its pool does not allow", pl.name, have.values, key)
			}
		}
	}
}

// poolDemands are the pool's requirements and its template's labels.
func (c *check) poolDemands(pool *snapshot.Pool) map[string][]expr {
	out := c.entries(pool.NodePool.Spec.Template.Spec.Requirements)
	add := func(key, value string) {
		out[key] = append(out[key], expr{key: key, op: corev1.NodeSelectorOpIn, values: []string{value}})
	}
	for k, v := range pool.NodePool.Spec.Template.Labels {
		add(c.s.Labels.Normalize(k), v)
	}
	add(karpv1.LabelNodePool, pool.NodePool.Name)
	return out
}

// offerings: each type is available, the cheapest come first, and the offering is the cheapest of all. Prices that differ
// by rounding only are equal: planning adds the cost of a node to them.
func (c *check) offerings(pl *host) {
	at, l := []*host{pl}, pl.launch
	price := map[string]float64{}
	for _, out := range pl.outcomes {
		if p, known := price[out.it.Name]; out.o.Available && (!known || out.o.Price < p) {
			price[out.it.Name] = out.o.Price
		}
	}
	before := 0.0
	for _, it := range l.InstanceTypes {
		p, ok := price[it.Name]
		if !ok {
			c.failAt(at, "%s: %s is not available", pl.name, it.Name)
			continue
		}
		if p < before-priceTolerance {
			c.failAt(at, "%s: %s is cheaper than a type listed before it", pl.name, it.Name)
		}
		before = max(before, p)
	}
	o := l.Offering
	is := func(out outcome) bool {
		return out.it.Name == l.InstanceTypes[0].Name && out.o.Available && out.o.Zone == o.Zone && out.o.CapacityType == o.CapacityType &&
			out.o.Price == o.Price
	}
	if p, ok := price[l.InstanceTypes[0].Name]; ok && p != o.Price {
		c.failAt(at, "%s: offering at %v, the cheapest is %v", pl.name, o.Price, p)
	} else if !slices.ContainsFunc(pl.outcomes, is) {
		c.failAt(at, "%s: its offering in %s as %s is not one of the claim's", pl.name, o.Zone, o.CapacityType)
	}
}

func (c *check) minValues(reqs []karpv1.Requirement) map[string]int {
	out := map[string]int{}
	for _, r := range reqs {
		if r.MinValues != nil {
			key := c.s.Labels.Normalize(r.Key)
			out[key] = max(out[key], *r.MinValues)
		}
	}
	return out
}

// minValuesSatisfied: the types have as many values as minValues requires; a claim with less than the pool requires
// is marked.
func (c *check) minValuesSatisfied(pl *host) {
	at, l := []*host{pl}, pl.launch
	wanted, pooled := pl.minValues, c.minValues(l.Pool.Spec.Template.Spec.Requirements)
	lowered := false
	for _, key := range slices.Sorted(maps.Keys(pooled)) {
		values := map[string]bool{}
		for _, it := range c.typesOf(l) {
			for _, v := range pl.demanded(key, typeValues(it.Requirements, key)) {
				values[v] = true
			}
		}
		if len(values) < wanted[key] {
			c.failAt(at, "%s: minValues of %s is %d, its types have %d values", pl.name, key, wanted[key], len(values))
		}
		lowered = lowered || wanted[key] < pooled[key]
	}
	if lowered && c.s.Settings.MinValuesPolicy != snapshot.MinValuesBestEffort {
		c.failAt(at, "%s has lower minValues than its pool", pl.name)
	}
	if lowered != l.MinValuesRelaxed {
		c.failAt(at, "%s: minValues relaxed is %v, the launch has %v", pl.name, lowered, l.MinValuesRelaxed)
	}
}

// resources: each type holds all pods in addition to its daemons, and none of them use the same host port.
func (c *check) resources(pl *host) {
	at := []*host{pl}
	total := amounts{}
	var taken []port
	for _, pod := range pl.pods {
		total.add(c.compared(pod, false))
		if p, found := portConflict(ports(pod), taken); found {
			c.failAt(at, "%s: pods %s and %s both use %s", pl.name, name(pod), name(p.pod), p)
		}
		taken = append(taken, ports(pod)...)
	}
	asked := pl.launch.Requests
	for r, q := range total {
		if have := asked[r]; q.Cmp(have) > 0 {
			c.failAt(at, "%s requests %s %s, its pods %s", pl.name, have.String(), r, q.String())
		}
	}
	always, mixed := c.daemons(pl)
	for _, d := range always {
		if p, found := portConflict(ports(d), taken); found {
			c.failAt(at, "%s: pod %s uses %s of daemon %s", pl.name, name(p.pod), p, d.Name)
		}
	}
	checked := map[*catalog.InstanceType]bool{}
	for _, out := range pl.outcomes {
		plain := len(mixed) == 0 && len(out.o.Allocatable) == 0
		if plain && checked[out.it] {
			continue
		}
		checked[out.it] = plain
		c.outcomeFits(pl, out, load{total: total, ports: taken, daemons: always}, mixed)
		for r, q := range asked {
			if have := out.allocatable(r); q.Sign() > 0 && q.Cmp(have) > 0 {
				c.failAt(at, "%s requests %s %s, more than the %s of %s", pl.name, q.String(), r, have.String(), out.it.Name)
			}
		}
	}
}

// load describes what runs on a launch whatever it becomes: the sum of what its pods request, the host ports that they use, and DaemonSets'
// pods.
type load struct {
	total   amounts
	ports   []port
	daemons []*corev1.Pod
}

// outcomeFits: the outcome holds the pods and those daemons that run on some outcomes only.
func (c *check) outcomeFits(pl *host, out outcome, always load, mixed []*corev1.Pod) {
	total, daemons := amounts{}, slices.Clone(always.daemons)
	at := []*host{pl}
	total.add(always.total.list())
	if len(mixed) > 0 {
		for _, d := range mixed {
			if !c.daemonOn(d, pl, out) {
				continue
			}
			daemons = append(daemons, d)
			if p, found := portConflict(ports(d), always.ports); found {
				c.failAt(at, "%s as %s: pod %s uses %s of daemon %s", pl.name, out.it.Name, name(p.pod), p, d.Name)
			}
		}
	}
	total.add(c.daemonRequests(daemons).list())
	for r, q := range total {
		if have := out.allocatable(r); q.Sign() > 0 && q.Cmp(have) > 0 {
			c.failAt(at, "%s as %s in %s: %s %s requested, %s allocatable", pl.name, out.it.Name, out.o.Zone, q.String(), r, have.String())
		}
	}
}

// daemons returns those that run on a launch whatever it becomes, and those that run on some outcomes.
func (c *check) daemons(pl *host) (always, mixed []*corev1.Pod) {
	for i := range c.s.DaemonSets {
		pod := c.s.DaemonSets[i].Pod
		if !c.daemon(pod) || !tolerated(pod, pl.taints) {
			continue
		}
		switch w := c.labelDemandsOf(pod); {
		case w.admits(func(e *expr) bool { return c.daemonHolds(e, pl.labelOf(e)) }):
			always = append(always, pod)
		case w.admits(func(e *expr) bool { return c.daemonMay(e, pl.labelOf(e)) }):
			mixed = append(mixed, pod)
		}
	}
	return always, mixed
}

// limits hold whatever types are launched.
func (c *check) limits() {
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		left := c.remainingLimits(pool)
		for _, r := range slices.Sorted(maps.Keys(left)) {
			var at []*host
			for _, pl := range c.hosts {
				if q := largestCapacity(pl, pool, r); q.Sign() > 0 {
					at = append(at, pl)
				}
			}
			if q := left[r]; len(at) > 0 && q.Sign() < 0 {
				limit := pool.NodePool.Spec.Limits[r]
				c.failAt(
					at,
					"pool %s: what is in use and planned may be %s above the limit of %s %s",
					pool.NodePool.Name,
					negative(q),
					limit.String(),
					r,
				)
			}
		}
	}
}

func negative(q resource.Quantity) string {
	q.Neg()
	return q.String()
}

// remainingLimits returns what remains of the pool's limits after the plan, in the worst case.
func (c *check) remainingLimits(pool *snapshot.Pool) amounts {
	out := amounts{}
	for r, limit := range pool.NodePool.Spec.Limits {
		q := quantity.Clamp(limit).DeepCopy()
		q.Sub(pool.Used[r])
		for _, pl := range c.hosts {
			q.Sub(largestCapacity(pl, pool, r))
		}
		out[r] = q
	}
	return out
}

// largestCapacity is the largest amount that a launch of the pool may count against its limits; zero for all other
// hosts.
func largestCapacity(pl *host, pool *snapshot.Pool, r corev1.ResourceName) resource.Quantity {
	var out resource.Quantity
	if pl.launch == nil || pl.launch.Pool == nil || pl.launch.Pool.Name != pool.NodePool.Name {
		return out
	}
	for _, o := range pl.outcomes {
		if q := o.countsAgainstLimit(r); q.Cmp(out) > 0 {
			out = q
		}
	}
	return out
}
