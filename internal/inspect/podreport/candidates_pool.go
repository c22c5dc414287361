package podreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// maxValues limits how many values that nobody has named are tried for a requirement of a NodePool: more than zones of a
// region and capacity types. Of categories and families of instance types, those of the cheapest types that fit are tried.
const maxValues = 8

// widen proposes to widen the requirements of a pool.
func (g *generator) widen(p *snapshot.Pool, codes map[string]bool) {
	if !codes["Requirements"] && !codes["Volume"] && !codes["Resources"] && !codes["NoOffering"] && !codes["Topology"] {
		return
	}
	pool := p.NodePool
	for i := range pool.Spec.Template.Spec.Requirements {
		r := &pool.Spec.Template.Spec.Requirements[i]
		path := pointer("spec", "template", "spec", "requirements", i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			g.widenIn(p, r, path)
		case corev1.NodeSelectorOpNotIn:
			g.widenNotIn(pool, r, path)
		}
		if !hardware(r.Key) {
			g.add(fmt.Sprintf("In NodePool %s, drop the requirement on %s.", pool.Name, wording.LabelWord(r.Key)), poolGivesUp,
				g.editPool(pool, Operation{Op: "remove", Path: path}))
		}
	}
}

// widenIn proposes values for a requirement: the correction of a misspelled one, those that the pod and its volumes name,
// and if they name none, those that exist.
func (g *generator) widenIn(p *snapshot.Pool, r *karpv1.Requirement, path string) {
	pool := p.NodePool
	known := typeValues(p, r.Key)
	for k, v := range r.Values {
		if near := spelling.Nearest(v, known, max(1, len(v)/3)); near != "" && !slices.Contains(known, v) && !slices.Contains(r.Values, near) {
			g.add(fmt.Sprintf("In NodePool %s, correct %s: %s to %s.", pool.Name, r.Key, v, near), poolCorrects,
				g.editPool(pool, Operation{Op: "replace", Path: path + pointer("values", k), Value: near}))
		}
	}
	wanted := g.wanted(r.Key)
	if len(wanted) == 0 {
		wanted = known
		if len(known) > maxValues {
			wanted = g.fittingValues(p, r.Key)
		}
	}
	for _, v := range wanted {
		if slices.Contains(r.Values, v) || !slices.Contains(known, v) {
			continue
		}
		g.add(fmt.Sprintf("In NodePool %s, also allow %s %s.", pool.Name, wording.LabelWord(r.Key), v), poolPermits,
			g.editPool(pool, Operation{Op: "add", Path: path + "/values/-", Value: v}))
	}
}

// fittingValues are the values of a label on the instance types of a pool that the pod fits on, cheapest types first; at most maxValues.
func (g *generator) fittingValues(p *snapshot.Pool, key string) []string {
	least := map[string]float64{}
	requests := snapshot.Requests(g.pod)
	for _, t := range p.InstanceTypes {
		if !holds(t.Allocatable, requests) {
			continue
		}
		for i := range t.Offerings {
			o := &t.Offerings[i]
			if !o.Available {
				continue
			}
			for _, v := range t.Requirements.Get(key).Values() {
				if price, known := least[v]; !known || o.Price < price {
					least[v] = o.Price
				}
			}
		}
	}
	values := slices.SortedFunc(maps.Keys(least), func(a, b string) int { return cmp.Or(cmp.Compare(least[a], least[b]), cmp.Compare(a, b)) })
	return values[:min(maxValues, len(values))]
}

// holds reports whether a node with the allocatable resources has room for the requests.
func holds(allocatable, requests corev1.ResourceList) bool {
	for name, q := range requests {
		if has := allocatable[name]; q.Sign() > 0 && has.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// widenNotIn proposes to allow a value that the pod or its volumes name.
func (g *generator) widenNotIn(pool *karpv1.NodePool, r *karpv1.Requirement, path string) {
	for _, v := range g.wanted(r.Key) {
		k := slices.Index(r.Values, v)
		if k < 0 {
			continue
		}
		op := Operation{Op: "remove", Path: path + pointer("values", k)}
		if len(r.Values) == 1 {
			op = Operation{Op: "remove", Path: path}
		}
		g.add(fmt.Sprintf("In NodePool %s, no longer exclude %s %s.", pool.Name, wording.LabelWord(r.Key), v), poolPermits, g.editPool(pool, op))
	}
}

// wanted are the values that the pod and its volumes name for a label.
func (g *generator) wanted(key string) []string {
	var out []string
	for _, s := range selections(g.pod) {
		if s.key == key && s.operator == corev1.NodeSelectorOpIn {
			out = append(out, s.values...)
		}
	}
	if key == corev1.LabelTopologyZone {
		out = append(out, g.podVolumeZones()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// typeValues are the values that a pool's instance types have for a label, sorted.
func typeValues(p *snapshot.Pool, key string) []string {
	known := map[string]bool{}
	for _, t := range p.InstanceTypes {
		for _, v := range t.Requirements.Get(key).Values() {
			known[v] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// limits proposes to raise the limits of a pool to what the next plan needs.
func (g *generator) limits(p *snapshot.Pool, codes map[string]bool) {
	pool := p.NodePool
	if !codes["Limits"] || len(pool.Spec.Limits) == 0 {
		return
	}
	unlimited, ok := g.lab.try([]edit{g.editPool(pool, Operation{Op: "remove", Path: "/spec/limits"})})
	if !ok || unlimited.launch == nil || unlimited.launch.Pool.Name != pool.Name {
		return
	}
	for _, largest := range []bool{false, true} {
		need := used(p, unlimited.plan.Launches, largest)
		var patch []Operation
		words := ""
		for _, name := range slices.Sorted(maps.Keys(pool.Spec.Limits)) {
			limit, want := pool.Spec.Limits[name], need[name]
			if want.Cmp(limit) <= 0 {
				continue
			}
			patch = append(patch, Operation{Op: "replace", Path: pointer("spec", "limits", name), Value: want.String()})
			words += fmt.Sprintf(", %s from %s to %s", name, limit.String(), want.String())
		}
		if len(patch) > 0 {
			g.add(fmt.Sprintf("In NodePool %s, raise the limit%s.", pool.Name, words[1:]), poolPermits, g.editPool(pool, patch...))
		}
	}
}

// used returns what counts against a pool's limits after its launches: of each the first instance type, which is the cheapest, or per
// resource the largest that it may become.
func used(p *snapshot.Pool, launches []schedule.Launch, largest bool) corev1.ResourceList {
	out := p.Used.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	add := func(name corev1.ResourceName, q resource.Quantity) {
		sum := out[name]
		sum.Add(q)
		out[name] = sum
	}
	for i := range launches {
		if launches[i].Pool.Name != p.NodePool.Name {
			continue
		}
		most := corev1.ResourceList{}
		for k, t := range launches[i].InstanceTypes {
			if k > 0 && !largest {
				break
			}
			for name, q := range t.Capacity {
				if have := most[name]; q.Cmp(have) > 0 {
					most[name] = q
				}
			}
		}
		for name, q := range most {
			add(name, q)
		}
		add(karpv1.ResourceNodes, resource.MustParse("1"))
	}
	return out
}

// minValues proposes to lower minValues to what is left of the pool's types for the pod.
func (g *generator) minValues(pool *karpv1.NodePool, codes map[string]bool) {
	if !codes["MinValues"] {
		return
	}
	for i, r := range pool.Spec.Template.Spec.Requirements {
		if r.MinValues == nil {
			continue
		}
		path := pointer("spec", "template", "spec", "requirements", i, "minValues")
		without, ok := g.lab.try([]edit{g.editPool(pool, Operation{Op: "remove", Path: path})})
		if !ok || without.launch == nil {
			continue
		}
		left := map[string]bool{}
		for _, t := range without.launch.InstanceTypes {
			for _, v := range t.Requirements.Get(r.Key).Values() {
				left[v] = true
			}
		}
		if n := len(left); n > 0 && n < *r.MinValues {
			g.add(fmt.Sprintf("In NodePool %s, lower minValues of %s from %d to %d.", pool.Name, r.Key, *r.MinValues, n), poolPermits,
				g.editPool(pool, Operation{Op: "replace", Path: path, Value: n}))
		}
		g.add(fmt.Sprintf("In NodePool %s, drop minValues of %s.", pool.Name, r.Key), poolGivesUp,
			g.editPool(pool, Operation{Op: "remove", Path: path}))
	}
}

// closedPools proposes to open pools that launch nothing now: to correct the name of the node class, to resolve what a condition
// reports, to keep one more node in a static pool.
func (g *generator) closedPools() {
	for _, why := range g.closed {
		i := slices.IndexFunc(g.view.NodePools, func(p *karpv1.NodePool) bool { return p.Name == why.NodePool })
		pool := g.view.NodePools[i]
		switch why.Code {
		case codeNotReady:
			g.ready(pool, why)
		case codeStatic:
			g.oneMore(pool)
		}
	}
}

// ready proposes to make a pool Ready.
func (g *generator) ready(pool *karpv1.NodePool, why PoolReason) {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if g.view.NodeClasses[ref.Name] == nil {
		classes := slices.Sorted(maps.Keys(g.view.NodeClasses))
		name := nearest(ref.Name, classes)
		if name == "" && len(classes) == 1 {
			name = classes[0]
		}
		if name == "" {
			return
		}
		patch := []Operation{{Op: "replace", Path: "/spec/template/spec/nodeClassRef/name", Value: name}}
		e := g.editPool(pool, patch...)
		e.apply = func(t *trial) bool {
			changed, err := patched(pool, patch)
			return err == nil && t.open(changed)
		}
		g.add(fmt.Sprintf("In NodePool %s, correct the name of the EC2NodeClass: %s to %s.", pool.Name, ref.Name, name), poolCorrects, e)
		return
	}
	o := Object{Kind: "NodePool", Name: pool.Name}
	if class := g.view.NodeClasses[ref.Name]; unmet(class) != "" {
		o = Object{Kind: "EC2NodeClass", Name: class.Name}
	}
	e := edit{Edit: Edit{
		Object: o, Action: Resolve, Fields: []FieldChange{}, Patch: []Operation{}, Command: "kubectl describe " + o.resource(),
	}}
	e.apply = func(t *trial) bool { return t.open(pool) }
	g.add(fmt.Sprintf("Resolve what keeps NodePool %s from being Ready: %s.", pool.Name, why.Message), shared, e)
}

// oneMore proposes one more node of a static pool. A plan launches none for it, so that it is planned as a pool that may launch
// what the next node of the static pool is: the cheapest that it allows, whatever pods need.
func (g *generator) oneMore(pool *karpv1.NodePool) {
	e := g.editPool(pool, Operation{Op: "replace", Path: "/spec/replicas", Value: *pool.Spec.Replicas + 1})
	e.apply = func(t *trial) bool {
		free := pool.DeepCopy()
		free.Spec.Replicas = nil
		return t.open(free) && t.onlyCheapest(free.Name)
	}
	g.add(fmt.Sprintf("In NodePool %s, which is static, keep %d nodes instead of %d.", pool.Name, *pool.Spec.Replicas+1, *pool.Spec.Replicas),
		poolPermits, e)
}

// onlyCheapest leaves an open pool its cheapest instance type. It reports whether there is one.
func (t *trial) onlyCheapest(name string) bool {
	p := &t.Pools[t.pool(name)]
	set, err := t.Labels.FromPool(p.NodePool, p.NodeClassLabel)
	if err != nil {
		return false
	}
	var best *catalog.InstanceType
	least := 0.0
	for _, it := range p.InstanceTypes {
		if o, ok := it.Cheapest(set); ok && set.Overlaps(it.Requirements) && (best == nil || o.Price < least) {
			best, least = it, o.Price
		}
	}
	p.InstanceTypes = []*catalog.InstanceType{best}
	return best != nil
}
