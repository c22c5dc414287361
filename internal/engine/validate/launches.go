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

// mostTypes is how many types one claim may name.
const mostTypes = 600

// launches: whatever of a claim is bought, its pods may run there.
func (c *check) launches() {
	for _, pl := range c.places {
		if l := pl.launch; l == nil {
			continue
		} else if l.Pool == nil || len(l.InstanceTypes) == 0 || len(l.Pods) == 0 {
			c.failAt([]*place{pl}, "%s has %d instance types and %d pods", pl.name, len(l.InstanceTypes), len(l.Pods))
			continue
		}
		c.ofPool(pl)
		c.offers(pl)
		c.minima(pl)
		for _, pod := range pl.pods {
			c.mayRun(pl, pod)
		}
		c.room(pl)
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

// ofPool: the claim is one that its pool may make.
func (c *check) ofPool(pl *place) {
	at, l := []*place{pl}, pl.launch
	pool := c.pool(l.Pool.Name)
	if pool == nil || pool.NodePool.Spec.Replicas != nil {
		c.failAt(at, "%s is of a pool that launches nothing", pl.name)
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
	if len(l.InstanceTypes) > mostTypes {
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

// offers: each type can be had, the cheapest come first, and the offering is the cheapest of all.
func (c *check) offers(pl *place) {
	at, l := []*place{pl}, pl.launch
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
			c.failAt(at, "%s: %s cannot be had", pl.name, it.Name)
			continue
		}
		if p < before {
			c.failAt(at, "%s: %s is cheaper than a type listed before it", pl.name, it.Name)
		}
		before = max(before, p)
	}
	o := l.Offering
	is := func(out outcome) bool {
		return out.it.Name == l.InstanceTypes[0].Name && out.o.Available && out.o.Zone == o.Zone && out.o.CapacityType == o.CapacityType && out.o.Price == o.Price
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

// minima: the types have as many values as minValues demands; what is less than the pool demands is marked.
func (c *check) minima(pl *place) {
	at, l := []*place{pl}, pl.launch
	wanted, pooled := pl.minima, c.minValues(l.Pool.Spec.Template.Spec.Requirements)
	lowered := false
	for _, key := range slices.Sorted(maps.Keys(pooled)) {
		values := map[string]bool{}
		for _, it := range c.offered(l) {
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
		c.failAt(at, "%s: minValues lowered is %v, the launch says %v", pl.name, lowered, l.MinValuesRelaxed)
	}
}

// room: each type holds all pods besides the daemons that come with it, and none of them want the same host port.
func (c *check) room(pl *place) {
	at := []*place{pl}
	total := amounts{}
	var taken []port
	for _, pod := range pl.pods {
		total.add(requests(pod, false))
		if p, found := clash(ports(pod), taken); found {
			c.failAt(at, "%s: pods %s and %s both want host port %d", pl.name, name(pod), name(p.pod), p.number)
		}
		taken = append(taken, ports(pod)...)
	}
	asked := pl.launch.Requests
	for r, q := range total {
		if have := asked[r]; q.Cmp(have) > 0 {
			c.failAt(at, "%s asks for %s %s, its pods for %s", pl.name, have.String(), r, q.String())
		}
	}
	always, mixed := c.daemons(pl)
	for _, d := range always {
		total.add(requests(d, true))
		if p, found := clash(ports(d), taken); found {
			c.failAt(at, "%s: pod %s wants host port %d of daemon %s", pl.name, name(p.pod), p.number, d.Name)
		}
	}
	checked := map[*catalog.InstanceType]bool{}
	for _, out := range pl.outcomes {
		plain := len(mixed) == 0 && len(out.o.Allocatable) == 0
		if plain && checked[out.it] {
			continue
		}
		checked[out.it] = plain
		c.holds(pl, out, total, taken, mixed)
		for r, q := range asked {
			if have := out.allocatable(r); q.Sign() > 0 && q.Cmp(have) > 0 {
				c.failAt(at, "%s asks for %s %s, more than the %s of %s", pl.name, q.String(), r, have.String(), out.it.Name)
			}
		}
	}
}

// holds: the outcome has room for the pods and those daemons that run on some outcomes only.
func (c *check) holds(pl *place, out outcome, total amounts, taken []port, mixed []*corev1.Pod) {
	at := []*place{pl}
	if len(mixed) > 0 {
		all := amounts{}
		all.add(total.list())
		for _, d := range mixed {
			if !pl.satisfiesOn(out, c.wantsOf(d)) {
				continue
			}
			all.add(requests(d, true))
			if p, found := clash(ports(d), taken); found {
				c.failAt(at, "%s as %s: pod %s wants host port %d of daemon %s", pl.name, out.it.Name, name(p.pod), p.number, d.Name)
			}
		}
		total = all
	}
	for r, q := range total {
		if have := out.allocatable(r); q.Sign() > 0 && q.Cmp(have) > 0 {
			c.failAt(at, "%s as %s in %s: %s %s requested, %s there", pl.name, out.it.Name, out.o.Zone, q.String(), r, have.String())
		}
	}
}

// daemons are those that run on a launch whatever is bought, and those that run on some of what may be.
func (c *check) daemons(pl *place) (always, mixed []*corev1.Pod) {
	for i := range c.s.DaemonSets {
		pod := c.s.DaemonSets[i].Pod
		if !c.daemon(pod) || !tolerated(pod, pl.taints) {
			continue
		}
		switch w := c.wantsOf(pod); {
		case w.admits(func(e *expr) bool { return e.holds(pl.label(e.key)) }):
			always = append(always, pod)
		case pl.mightSatisfy(w):
			mixed = append(mixed, pod)
		}
	}
	return always, mixed
}

// limits hold whatever types are launched.
func (c *check) limits() {
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		left := c.left(pool)
		for _, r := range slices.Sorted(maps.Keys(left)) {
			var at []*place
			for _, pl := range c.places {
				if q := most(pl, pool, r); q.Sign() > 0 {
					at = append(at, pl)
				}
			}
			if q := left[r]; len(at) > 0 && q.Sign() < 0 {
				limit := pool.NodePool.Spec.Limits[r]
				c.failAt(at, "pool %s: what is in use and planned may be %s above the limit of %s %s", pool.NodePool.Name, negative(q), limit.String(), r)
			}
		}
	}
}

func negative(q resource.Quantity) string {
	q.Neg()
	return q.String()
}

// left is what remains of the pool's limits after the plan, at worst.
func (c *check) left(pool *snapshot.Pool) amounts {
	out := amounts{}
	for r, limit := range pool.NodePool.Spec.Limits {
		q := quantity.Bounded(limit).DeepCopy()
		q.Sub(pool.Used[r])
		for _, pl := range c.places {
			q.Sub(most(pl, pool, r))
		}
		out[r] = q
	}
	return out
}

// most is the largest amount that a launch of the pool may count against its limits; zero for all other places.
func most(pl *place, pool *snapshot.Pool, r corev1.ResourceName) resource.Quantity {
	var out resource.Quantity
	if pl.launch == nil || pl.launch.Pool == nil || pl.launch.Pool.Name != pool.NodePool.Name {
		return out
	}
	for _, o := range pl.outcomes {
		if q := o.weighs(r); q.Cmp(out) > 0 {
			out = q
		}
	}
	return out
}
