package validate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// host is an existing node or a launch of the plan.
type host struct {
	name   string
	index  int // of the launch
	node   *snapshot.Node
	launch *schedule.Launch
	pods   []*corev1.Pod // that the plan puts there
	taints []corev1.Taint

	// given are the labels that are known; the rest follows, for launches, from demands and outcomes.
	given     map[string]string
	demands   map[string][]expr
	outcomes  []outcome
	minValues map[string]int // minValues by key
	known     map[string]label
	mayDefine func(key string) bool // anyone who launches it may give the node this label
	// joining returns what the host still gets while it joins; nil for a node that is initialized.
	joining func(key string) (label, bool)
	// allValues are all values of a key in the snapshot, for a node of which nothing else is known.
	allValues func(key string) []string
	// canonical is the name of a label that is used here.
	canonical func(string) string
}

// outcome is one of the instances that a claim may become.
type outcome struct {
	it *catalog.InstanceType
	o  *catalog.Offering
}

func (c *check) existing(n *snapshot.Node) *host {
	pl := &host{
		name: "node " + n.Name, node: n, taints: n.Taints, given: c.nodeLabels(n), known: map[string]label{}, canonical: c.s.Labels.Normalize,
	}
	for _, p := range c.p.Placements {
		if p.Node == n.Name && p.Claim == n.Claim {
			pl.pods = append(pl.pods, p.Pods...)
		}
	}
	pl.mayDefine = func(string) bool { return false }
	if !n.Initialized {
		pl.joining = c.joinLabel
	}
	if !n.Launched && n.Claim != "" {
		pl.demands, pl.allValues = c.entries(n.Requirements), c.values
		pl.mayDefine = func(key string) bool { return len(pl.demands[key]) > 0 || c.s.Labels.IsWellKnown(key) }
	}
	return pl
}

// values are all values of a key on nodes and in what can be launched.
func (c *check) values(key string) []string {
	var out []string
	for i := range c.s.Nodes {
		if v, ok := c.nodeLabels(&c.s.Nodes[i])[key]; ok {
			out = append(out, v)
		}
	}
	for i := range c.s.Pools {
		out = append(out, c.poolDomains(&c.s.Pools[i], key)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nodeLabels are the node's labels by canonical key; if a key and its alias differ, the canonical one wins.
func (c *check) nodeLabels(n *snapshot.Node) map[string]string {
	out := map[string]string{}
	if !n.Initialized { // kubelet sets the label
		out[corev1.LabelHostname] = n.Name
	}
	if n.Claim == "" || n.Registered {
		out[nodeName] = n.Name
	}
	for k, v := range n.Labels {
		key := c.s.Labels.Normalize(k)
		if _, own := n.Labels[key]; !own || key == k {
			out[key] = v
		}
	}
	return out
}

func (c *check) entries(reqs []karpv1.Requirement) map[string][]expr {
	out := map[string][]expr{}
	for _, r := range reqs {
		key := c.s.Labels.Normalize(r.Key)
		e, err := newExpr(key, r.Operator, r.Values)
		if err != nil {
			e = expr{key: key, op: corev1.NodeSelectorOpIn} // nothing satisfies it
		}
		out[key] = append(out[key], e)
	}
	return out
}

// launched reads a launch as the NodeClaim that would be created for it.
func (c *check) launched(i int, l *schedule.Launch) *host {
	pl := &host{
		name: fmt.Sprintf("launch %d", i), index: i, launch: l, pods: l.Pods, known: map[string]label{}, given: map[string]string{},
		mayDefine: c.s.Labels.IsWellKnown, allValues: c.values, joining: c.joinLabel, canonical: c.s.Labels.Normalize,
	}
	if l.Pool == nil || len(l.InstanceTypes) == 0 {
		return pl // launches reports it
	}
	pl.name = fmt.Sprintf("launch %d (pool %s)", i, l.Pool.Name)
	pl.taints = l.Pool.Spec.Template.Spec.Taints
	reqs := l.ClaimRequirements()
	pl.demands, pl.minValues = c.entries(reqs), c.minValues(reqs)
	for k, v := range l.ClaimLabels(c.s.Labels) {
		pl.given[c.s.Labels.Normalize(k)] = v
	}
	pl.given[corev1.LabelHostname] = fmt.Sprintf("new-node-%d.invalid", i)
	for _, it := range c.typesOf(l) {
		mismatched := pl.mismatched(it)
		for k := range it.Offerings {
			if out := (outcome{it, &it.Offerings[k]}); out.sold() && pl.admits(out, mismatched) {
				pl.outcomes = append(pl.outcomes, out)
			}
		}
	}
	return pl
}

// mismatched are the keys by which the claim's requirements exclude the type, unless an offering has its own value.
func (pl *host) mismatched(it *catalog.InstanceType) map[string]bool {
	var out map[string]bool
	for key, list := range pl.demands {
		l, ok := labelIn(it.Requirements, key)
		if ok && slices.ContainsFunc(list, func(e expr) bool { return !e.may(l) }) {
			if out == nil {
				out = map[string]bool{}
			}
			out[key] = true
		}
	}
	return out
}

// labelIn reads the values of a key on a type or an offering; false if it has none.
func labelIn(set requirement.Set, key string) (label, bool) {
	if !set.Defines(key) {
		return label{}, false
	}
	switch r := set.Get(key); r.Operator() {
	case corev1.NodeSelectorOpIn:
		return label{values: r.Values()}, true
	case corev1.NodeSelectorOpDoesNotExist:
		return label{absent: true}, true
	}
	return label{}, false
}

// typesOf are the pool's types that the launch names.
func (c *check) typesOf(l *schedule.Launch) []*catalog.InstanceType {
	pool := c.pool(l.Pool.Name)
	if pool == nil {
		return nil
	}
	byName := map[string]*catalog.InstanceType{}
	for _, it := range pool.InstanceTypes {
		byName[it.Name] = it
	}
	var out []*catalog.InstanceType
	for _, it := range l.InstanceTypes {
		if own := byName[it.Name]; own != nil {
			out = append(out, own)
		}
	}
	return out
}

// sold reports whether the type names the offering's zone. A catalog may list offerings in other zones, as unavailable
// ones; nothing is ever launched there.
func (out outcome) sold() bool {
	l, ok := labelIn(out.it.Requirements, corev1.LabelTopologyZone)
	return !ok || slices.Contains(l.values, out.o.Zone)
}

// capacity and allocatable are the type's, unless the offering overrides them.
func (out outcome) capacity(r corev1.ResourceName) resource.Quantity {
	if q, ok := out.o.Capacity[r]; ok {
		return q
	}
	return out.it.Capacity[r]
}

func (out outcome) allocatable(r corev1.ResourceName) resource.Quantity {
	if q, ok := out.o.Allocatable[r]; ok {
		return q
	}
	return out.it.Allocatable[r]
}

// countsAgainstLimit returns what the outcome counts against a limit.
func (out outcome) countsAgainstLimit(r corev1.ResourceName) resource.Quantity {
	if r == karpv1.ResourceNodes {
		return one()
	}
	return out.capacity(r)
}

// admits reports whether the claim's requirements allow the outcome; mismatched is that of its type.
func (pl *host) admits(out outcome, mismatched map[string]bool) bool {
	for key, list := range pl.demands {
		l, ok := out.ofOffering(key)
		switch {
		case !ok && mismatched[key]:
			return false
		case !ok:
			continue
		}
		for i := range list {
			if !list[i].may(l) {
				return false
			}
		}
	}
	return true
}

// ofOffering reads the values of a key on the offering; false if it has none.
func (out outcome) ofOffering(key string) (label, bool) {
	switch key {
	case corev1.LabelTopologyZone:
		return label{values: []string{out.o.Zone}}, true
	case karpv1.LabelCapacityType:
		return label{values: []string{out.o.CapacityType}}, true
	}
	return labelIn(out.o.Requirements, key)
}

// label reads the values of a key on the type and the offering; false if they have none.
func (out outcome) label(key string) (label, bool) {
	if l, ok := out.ofOffering(key); ok {
		return l, true
	}
	return labelIn(out.it.Requirements, key)
}

// label returns what a label of the host may become.
func (pl *host) label(key string) label {
	if l, ok := pl.known[key]; ok {
		return l
	}
	l := label{}
	for _, out := range pl.outcomes {
		l.add(pl.labelOn(out, key))
	}
	if len(pl.outcomes) == 0 {
		l = pl.ownLabel(key)
	}
	if len(l.values) < pl.minValues[key] { // the claim states that it is still a choice
		l.add(label{values: pl.demanded(key, pl.allValues(key))})
	}
	slices.Sort(l.values)
	pl.known[key] = l
	return l
}

// named is the label under a name as a pod states it. A node that has joined has it under this name or not at all: kube-scheduler knows
// no other names. One that joins still gets it under both.
func (pl *host) named(stated string) label {
	key := pl.canonical(stated)
	if stated == nodeName || !pl.joined() || !hasTwoNames(pl.canonical, stated) {
		return pl.label(key)
	}
	if v, ok := pl.node.Labels[stated]; ok {
		return label{values: []string{v}}
	}
	return label{absent: true}
}

// labelOf is the label that the expression is about.
func (pl *host) labelOf(e *expr) label {
	if e.stated == "" {
		return pl.label(e.key)
	}
	return pl.named(e.stated)
}

// joined reports whether the host is a node that gets no more labels.
func (pl *host) joined() bool { return pl.node != nil && (pl.node.Claim == "" || pl.node.Initialized) }

// hasTwoNames reports whether kubelet or the cloud controller manager sets the label under two names.
func hasTwoNames(canonical func(string) string, stated string) bool {
	for _, early := range []string{
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
		"beta.kubernetes.io/arch", "beta.kubernetes.io/os",
	} {
		if stated == early || stated == canonical(early) {
			return true
		}
	}
	return false
}

// labelBeforeLimits is label without what only the choice of types excludes: which are left depends on what limits
// leave to other launches.
func (pl *host) labelBeforeLimits(stated string) label {
	key, all := pl.canonical(stated), pl.named(stated)
	l := label{values: slices.Clone(all.values), absent: all.absent}
	if pl.launch == nil || len(pl.launch.Pool.Spec.Limits) == 0 {
		return l
	}
	for _, e := range pl.demands[key] {
		if e.op == corev1.NodeSelectorOpIn {
			l.add(label{values: pl.demanded(key, e.values)})
		}
	}
	if r := pl.launch.Requirements.Get(key); r.Operator() == corev1.NodeSelectorOpIn { // the claim names the types that are left
		l.add(label{values: r.Values()})
	}
	return l
}

// labelOn is label for one outcome.
func (pl *host) labelOn(out outcome, key string) label {
	l, ok := out.label(key)
	if !ok {
		return pl.ownLabel(key)
	}
	if len(l.values) > 1 {
		l.values = pl.demanded(key, l.values)
	}
	return l
}

// ownLabel returns what a label becomes if type and offering have none.
func (pl *host) ownLabel(key string) label {
	if v, ok := pl.given[key]; ok {
		return label{values: []string{v}}
	}
	if pl.joining != nil {
		if l, ok := pl.joining(key); ok {
			return l
		}
	}
	if len(pl.demands[key]) == 0 && pl.node == nil || !pl.mayDefine(key) {
		return label{absent: true}
	}
	for _, e := range pl.demands[key] {
		if e.op == corev1.NodeSelectorOpIn {
			return label{values: pl.demanded(key, e.values)}
		}
	}
	if pl.node == nil {
		return label{absent: true}
	}
	absent := !slices.ContainsFunc(pl.demands[key], func(e expr) bool { return !e.lacks() })
	return label{values: pl.demanded(key, pl.allValues(key)), absent: absent}
}

// demanded are the values that the claim's requirements allow.
func (pl *host) demanded(key string, values []string) []string {
	var out []string
	for _, v := range values {
		if !slices.ContainsFunc(pl.demands[key], func(e expr) bool { return !e.has(v) }) {
			out = append(out, v)
		}
	}
	return out
}

// satisfies reports whether the demands are satisfied whatever the host becomes.
func (pl *host) satisfies(w *labelDemands) bool {
	if w.admits(func(e *expr) bool { return e.holds(pl.labelOf(e)) }) {
		return true
	}
	if len(w.terms) < 2 || len(pl.outcomes) == 0 {
		return false
	}
	// One term may be met by some outcomes and another by the rest.
	return !slices.ContainsFunc(pl.outcomes, func(out outcome) bool { return !pl.satisfiesOn(out, w) })
}

func (pl *host) satisfiesOn(out outcome, w *labelDemands) bool {
	return w.admits(func(e *expr) bool { return e.holds(pl.labelOn(out, e.key)) })
}

// mightSatisfy reports whether something that the host may become satisfies the demands, label by label.
func (pl *host) mightSatisfy(w *labelDemands) bool {
	return w.admits(func(e *expr) bool { return e.may(pl.labelOf(e)) })
}

// nominated reports whether an earlier plan nominated the pod to the host, in a snapshot that has changed since.
func (pl *host) nominated(pod *corev1.Pod) bool {
	return pl.node != nil && pl.node.KeepsNominated(pod.UID) && slices.Contains(pl.node.Nominated, pod.UID)
}
