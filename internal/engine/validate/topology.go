package validate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// spot is a pod in a place.
type spot struct {
	pod *corev1.Pod
	// place identifies the node; new tells that it is planned or that the pod is.
	place   string
	planned bool
	// promised pods were given their place by an earlier plan, in a world that has changed since.
	promised bool
	// domains are the values that the label may take there; nil if the node has no such label.
	domains func(key string) []string
}

func (c *check) spots() []spot {
	planned := map[*corev1.Pod]bool{}
	for _, pod := range c.s.Pods {
		planned[pod] = true
	}
	var out []spot
	onNode := func(n *snapshot.Node, pod *corev1.Pod) {
		promised := !n.Initialized && slices.Contains(n.Nominated, pod.UID)
		out = append(out, spot{pod, "node " + n.Name, planned[pod], promised, func(key string) []string {
			if v, ok := n.Labels[key]; ok {
				return []string{v}
			}
			if key == corev1.LabelHostname {
				return []string{n.Name}
			}
			return nil
		}})
	}
	for i := range c.s.Nodes {
		n := &c.s.Nodes[i]
		for _, pod := range n.Pods {
			if snapshot.Active(pod) && !planned[pod] {
				onNode(n, pod)
			}
		}
	}
	for _, pl := range c.p.Placements {
		if n := c.node(pl.Node, pl.Claim); n != nil {
			for _, pod := range pl.Pods {
				onNode(n, pod)
			}
		}
	}
	for i := range c.p.Launches {
		l := &c.p.Launches[i]
		host := fmt.Sprintf("launch %d", i)
		domains := func(key string) []string {
			if key == corev1.LabelHostname {
				return []string{host}
			}
			r := l.Requirements.Get(key)
			var out []string
			for _, it := range l.InstanceTypes {
				for _, v := range it.Requirements.Get(key).Values() {
					if r.Has(v) {
						out = append(out, v)
					}
				}
			}
			if len(out) == 0 && l.Requirements.Defines(key) {
				if r.Operator() == corev1.NodeSelectorOpIn {
					return r.Values()
				}
				if v, ok := r.Example(); ok { // what the claim will be labelled with
					return []string{v}
				}
			}
			slices.Sort(out)
			return slices.Compact(out)
		}
		for _, pod := range l.Pods {
			out = append(out, spot{pod, host, true, false, domains})
		}
	}
	return out
}

func matches(s *metav1.LabelSelector, namespaces []string, pod *corev1.Pod) bool {
	if s == nil || !slices.Contains(namespaces, pod.Namespace) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// topology: required affinity and anti-affinity hold wherever nodes come up, and what was placed does not
// stretch any hard spread constraint. Terms that select namespaces by label are left to the search.
func (c *check) topology() {
	spots := c.spots()
	for _, s := range spots {
		if a := s.pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				c.apart(s, &t, spots)
			}
		}
		if !s.planned || s.promised {
			continue
		}
		if a := s.pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
			for _, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				c.together(s, &t, spots)
			}
		}
		for _, t := range s.pod.Spec.TopologySpreadConstraints {
			if t.WhenUnsatisfiable == corev1.DoNotSchedule && len(t.MatchLabelKeys) == 0 {
				c.even(s, &t, spots)
			}
		}
	}
}

func namespaces(t *corev1.PodAffinityTerm, pod *corev1.Pod) []string {
	if len(t.Namespaces) > 0 {
		return t.Namespaces
	}
	return []string{pod.Namespace}
}

func (c *check) apart(s spot, t *corev1.PodAffinityTerm, spots []spot) {
	if t.NamespaceSelector != nil {
		return
	}
	mine := s.domains(t.TopologyKey)
	for _, o := range spots {
		if o.pod == s.pod || (!o.planned || o.promised) && (!s.planned || s.promised) || !matches(t.LabelSelector, namespaces(t, s.pod), o.pod) {
			continue
		}
		for _, d := range o.domains(t.TopologyKey) {
			if slices.Contains(mine, d) && (o.place == s.place || len(mine) > 0) {
				c.fail("pods %s and %s may share %s %s, which anti-affinity forbids", name(s.pod), name(o.pod), t.TopologyKey, d)
			}
		}
	}
}

func (c *check) together(s spot, t *corev1.PodAffinityTerm, spots []spot) {
	if t.NamespaceSelector != nil {
		return
	}
	mine := s.domains(t.TopologyKey)
	others, near := false, false
	for _, o := range spots {
		if o.pod == s.pod || !matches(t.LabelSelector, namespaces(t, s.pod), o.pod) {
			continue
		}
		others = true
		theirs := o.domains(t.TopologyKey)
		near = near || o.place == s.place || len(theirs) == 1 && slices.Contains(mine, theirs[0])
	}
	self := matches(t.LabelSelector, namespaces(t, s.pod), s.pod)
	if !near && !(self && !others) && !(self && c.unreachable(s, t, spots)) {
		c.fail("pod %s is in %v, away from all pods that affinity demands over %s", name(s.pod), mine, t.TopologyKey)
	}
}

// unreachable: all other members of a self-affine family are in domains that the pod's own requirements exclude,
// or are there because of this pod.
func (c *check) unreachable(s spot, t *corev1.PodAffinityTerm, spots []spot) bool {
	node, err := c.s.Labels.FromPod(&s.pod.Spec)
	if err != nil {
		return false
	}
	only := onlyKey(node, t.TopologyKey)
	for _, o := range spots {
		if o.pod == s.pod || !matches(t.LabelSelector, namespaces(t, s.pod), o.pod) {
			continue
		}
		for _, d := range o.domains(t.TopologyKey) {
			if usable(only, func(string) []string { return []string{d} }) {
				return false
			}
		}
	}
	return true
}

// even: the domain that the pod is in has no more than maxSkew pods above the emptiest that the pod could use.
// Only where the pods counted are those that mind, since others may have come later.
func (c *check) even(s spot, t *corev1.TopologySpreadConstraint, spots []spot) {
	mine := s.domains(t.TopologyKey)
	if len(mine) != 1 {
		c.fail("pod %s is spread over %s, but its node may come up in %v", name(s.pod), t.TopologyKey, mine)
		return
	}
	if t.NodeTaintsPolicy != nil || t.NodeAffinityPolicy != nil {
		return // who counts then is left to the search
	}
	node, err := c.s.Labels.FromPod(&s.pod.Spec)
	if err != nil {
		return
	}
	counts := map[string]int{}
	for _, o := range spots {
		if !usable(node, o.domains) {
			continue // by default, nodes that the pod cannot use do not count
		}
		if !matches(t.LabelSelector, []string{s.pod.Namespace}, o.pod) {
			continue
		}
		if o.planned && (o.promised || len(o.pod.Spec.TopologySpreadConstraints) == 0) {
			return
		}
		if d := o.domains(t.TopologyKey); len(d) == 1 {
			counts[d[0]]++
		}
	}
	lowest := 0
	if t.TopologyKey != corev1.LabelHostname {
		lowest = c.lowest(node, t, counts)
	}
	if n := counts[mine[0]]; n-lowest > int(t.MaxSkew) {
		c.fail("pod %s: %s %s has %d pods, another only %d, maxSkew is %d", name(s.pod), t.TopologyKey, mine[0], n, lowest, t.MaxSkew)
	}
}

func (c *check) lowest(node requirement.Pod, t *corev1.TopologySpreadConstraint, counts map[string]int) int {
	var domains []string
	for i := range c.s.Nodes {
		n := &c.s.Nodes[i]
		if d, ok := n.Labels[t.TopologyKey]; ok && !n.Deleting && usable(node, func(key string) []string {
			if v, ok := n.Labels[key]; ok {
				return []string{v}
			}
			return nil
		}) {
			domains = append(domains, d)
		}
	}
	only := onlyKey(node, t.TopologyKey)
	for _, pool := range c.s.Pools {
		if !slices.ContainsFunc(pool.InstanceTypes, func(it *catalog.InstanceType) bool { return leftFor(pool, it) }) {
			continue // the scheduler counts only nodes, and the pool will have none
		}
		for _, d := range poolDomains(pool, t.TopologyKey) {
			if usable(only, func(string) []string { return []string{d} }) {
				domains = append(domains, d)
			}
		}
	}
	lowest := -1
	for _, d := range domains {
		if lowest < 0 || counts[d] < lowest {
			lowest = counts[d]
		}
	}
	return max(lowest, 0)
}

// leftFor tells whether the pool's limits had room for one node of the type before the plan.
func leftFor(pool snapshot.Pool, it *catalog.InstanceType) bool {
	for name, limit := range pool.NodePool.Spec.Limits {
		q := it.Capacity[name]
		if name == karpv1.ResourceNodes {
			q = *resource.NewQuantity(1, resource.DecimalSI)
		}
		total := pool.Used[name].DeepCopy()
		total.Add(q)
		if total.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// poolDomains are the values of key that nodes of the pool may have.
func poolDomains(pool snapshot.Pool, key string) []string {
	if v, ok := pool.NodePool.Spec.Template.Labels[key]; ok {
		return []string{v}
	}
	var offered []string
	for _, it := range pool.InstanceTypes {
		if slices.ContainsFunc(pool.NodePool.Spec.Template.Spec.Requirements, func(r karpv1.Requirement) bool {
			return r.Operator == corev1.NodeSelectorOpIn && it.Requirements.Defines(r.Key) && !slices.ContainsFunc(r.Values, it.Requirements.Get(r.Key).Has)
		}) {
			continue // not a type of this pool
		}
		offered = append(offered, it.Requirements.Get(key).Values()...)
	}
	for _, r := range pool.NodePool.Spec.Template.Spec.Requirements {
		if r.Key != key || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if len(offered) == 0 {
			offered = r.Values
		}
		offered = slices.DeleteFunc(slices.Clone(offered), func(v string) bool { return !slices.Contains(r.Values, v) })
	}
	return offered
}

// usable tells whether a node with these labels may satisfy the pod's selector and one of its terms.
func usable(node requirement.Pod, labels func(key string) []string) bool {
	all := func(set requirement.Set) bool {
		return !slices.ContainsFunc(set.All(), func(r requirement.Requirement) bool {
			values := labels(r.Key())
			return !(len(values) == 0 && r.AllowsAbsent()) && !slices.ContainsFunc(values, r.Has)
		})
	}
	return all(node.Selector) && (node.Required == nil || slices.ContainsFunc(node.Required, all))
}

// onlyKey keeps of what a pod requires only what concerns one label.
func onlyKey(node requirement.Pod, key string) requirement.Pod {
	only := func(set requirement.Set) requirement.Set {
		if !set.Defines(key) {
			return requirement.Set{}
		}
		return requirement.NewSet(set.Get(key))
	}
	out := requirement.Pod{Selector: only(node.Selector)}
	for _, t := range node.Required {
		out.Required = append(out.Required, only(t))
	}
	return out
}
