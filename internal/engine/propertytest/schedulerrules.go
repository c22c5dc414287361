package propertytest

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The Filter rules of kube-scheduler, one node at a time and without any index, written from its documented behavior and not
// from the engine: TestTheSchedulerAcceptsPlans holds plans against them.

// ClusterNode is a Node with its pods, as the scheduler's snapshot has it.
type ClusterNode struct {
	Name        string
	Labels      map[string]string
	Taints      []corev1.Taint
	Allocatable corev1.ResourceList
	// Pods are also terminating ones; no finished ones.
	Pods []*corev1.Pod
	// Existing is the node of the Snapshot; nil for one that is launched.
	Existing *snapshot.Node
	// Gone is true for a node that the plan has emptied: it is no node of the cluster any more.
	Gone bool
	// Type is the instance type of a node that is launched, Pool its NodePool; nil for existing ones.
	Type *catalog.InstanceType
	Pool *snapshot.Pool
}

// Cluster is all that a Filter reads.
type Cluster struct {
	Nodes []*ClusterNode
	// World has the namespaces and the storage objects.
	World *snapshot.Snapshot
	// EmptyHost is true if one more host without pods counts for spreads over hosts.
	EmptyHost bool
	// Filter states why a scheduler refuses the pod on the node; empty if it accepts it. If it is nil, the rules of this package decide.
	Filter Filter
	// Devices are those that pods have; nil if the world has none.
	Devices Devices
	// daemons returns the DaemonSets in the order in which their pods come to a new node, which may be another for each.
	daemons func() []snapshot.DaemonSet
}

// Filter states why a scheduler refuses a pod on a node of the cluster, which is one of its Nodes; empty if it accepts it.
type Filter func(c *Cluster, pod *corev1.Pod, node *ClusterNode) string

// Devices are those that a scheduler has allocated to pods of a cluster.
type Devices interface {
	// Take allocates devices to the pod, which the filter has just accepted on the node.
	Take(c *Cluster, pod *corev1.Pod, node *ClusterNode)
	// Copy is the same, to which other pods can be added.
	Copy() Devices
	// Next has the snapshot, which has the nodes and the pods of the cluster, show the devices that there are then.
	Next(c *Cluster, s *snapshot.Snapshot)
}

// run has the pod run on the node, which accepts it.
func (c *Cluster) run(pod *corev1.Pod, node *ClusterNode) {
	if c.Devices != nil {
		c.Devices.Take(c, pod, node)
	}
	node.Pods = append(node.Pods, pod)
}

func (c *Cluster) copiedDevices() Devices {
	if c.Devices == nil {
		return nil
	}
	return c.Devices.Copy()
}

// filter returns why the scheduler refuses the pod on the node; empty if it accepts it.
func (c *Cluster) filter(pod *corev1.Pod, node *ClusterNode) string {
	if c.Filter != nil {
		return c.Filter(c, pod, node)
	}
	for _, plugin := range []func(*corev1.Pod, *ClusterNode) string{
		c.nodeAffinity, c.taints, c.resources, c.hostPorts, c.podAffinity, c.podAntiAffinity, c.othersAntiAffinity, c.spread,
	} {
		if why := plugin(pod, node); why != "" {
			return why
		}
	}
	return ""
}

// nodeAffinity: the node selector holds, and one of the terms of required node affinity.
func (c *Cluster) nodeAffinity(pod *corev1.Pod, node *ClusterNode) string {
	for k, v := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return "NodeAffinity: selector"
		}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	if !slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, node.matches) {
		return "NodeAffinity: terms"
	}
	return ""
}

// matches reports whether all expressions and fields of the term hold. An empty term matches nothing.
func (n *ClusterNode) matches(term corev1.NodeSelectorTerm) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	for _, e := range term.MatchExpressions {
		v, has := n.Labels[e.Key]
		if !nodeExpression(e, v, has) {
			return false
		}
	}
	for _, e := range term.MatchFields {
		if e.Key != "metadata.name" || !nodeExpression(e, n.Name, true) {
			return false
		}
	}
	return true
}

func nodeExpression(e corev1.NodeSelectorRequirement, v string, has bool) bool {
	number := func(s string) int64 {
		n := int64(math.MinInt64)
		if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
			return math.MinInt64
		}
		return n
	}
	switch e.Operator {
	case in:
		return has && slices.Contains(e.Values, v)
	case notIn:
		return !has || !slices.Contains(e.Values, v)
	case exists:
		return has
	case absent:
		return !has
	case gt:
		return has && number(v) > number(e.Values[0])
	case lt:
		return has && number(v) != math.MinInt64 && number(v) < number(e.Values[0])
	}
	return false
}

// taints: each taint of effect NoSchedule or NoExecute is tolerated.
func (c *Cluster) taints(pod *corev1.Pod, node *ClusterNode) string {
	for i := range node.Taints {
		t := &node.Taints[i]
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Effect == "" || o.Effect == t.Effect) &&
				(o.Operator == corev1.TolerationOpExists || o.Value == t.Value)
		})
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated {
			return "TaintToleration"
		}
	}
	return ""
}

// resources: what the pod requests is left. Pods of these tests have one container.
func (c *Cluster) resources(pod *corev1.Pod, node *ClusterNode) string {
	if int64(len(node.Pods))+1 > node.Allocatable.Pods().Value() {
		return "NodeResourcesFit: pods"
	}
	for name, want := range pod.Spec.Containers[0].Resources.Requests {
		left := node.Allocatable[name].DeepCopy()
		for _, other := range node.Pods {
			left.Sub(other.Spec.Containers[0].Resources.Requests[name])
		}
		if want.Sign() > 0 && want.Cmp(left) > 0 {
			return "NodeResourcesFit: " + string(name)
		}
	}
	return ""
}

// hostPorts: no pod of the node has the port. Ports of these tests are TCP and of all addresses.
func (c *Cluster) hostPorts(pod *corev1.Pod, node *ClusterNode) string {
	for _, p := range pod.Spec.Containers[0].Ports {
		for _, other := range node.Pods {
			for _, q := range other.Spec.Containers[0].Ports {
				if p.HostPort != 0 && p.HostPort == q.HostPort {
					return "NodePorts"
				}
			}
		}
	}
	return ""
}

// selectsPod reports whether a term of a pod with the owner's namespace matches the other pod: its namespace is listed, or
// selected, or the owner's if the term states neither; and the labels match. A nil selector matches nothing.
func (c *Cluster) selectsPod(owner *corev1.Pod, t *corev1.PodAffinityTerm, other *corev1.Pod) bool {
	inNamespace := slices.Contains(t.Namespaces, other.Namespace)
	if t.NamespaceSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		inNamespace = inNamespace || err == nil && s.Matches(labels.Set(c.World.Namespaces[other.Namespace]))
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		inNamespace = other.Namespace == owner.Namespace
	}
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	return inNamespace && err == nil && s.Matches(labels.Set(other.Labels))
}

// domain is one value of one key.
type domain struct{ key, value string }

// podAffinity: a pod counts if it matches all terms. The node has all keys. Each of its domains has such a pod; or no domain at
// all has one, and the pod matches its own terms.
func (c *Cluster) podAffinity(pod *corev1.Pod, node *ClusterNode) string {
	a := pod.Spec.Affinity
	if a == nil || a.PodAffinity == nil || len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return ""
	}
	terms := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	matchesAll := func(other *corev1.Pod) bool {
		for i := range terms {
			if !c.selectsPod(pod, &terms[i], other) {
				return false
			}
		}
		return true
	}
	counts := map[domain]int{}
	for _, n := range c.Nodes {
		for _, other := range n.Pods {
			if !matchesAll(other) {
				continue
			}
			for i := range terms {
				if v, ok := n.Labels[terms[i].TopologyKey]; ok {
					counts[domain{terms[i].TopologyKey, v}]++
				}
			}
		}
	}
	near := true
	for i := range terms {
		v, ok := node.Labels[terms[i].TopologyKey]
		if !ok {
			return "InterPodAffinity: no key"
		}
		near = near && counts[domain{terms[i].TopologyKey, v}] > 0
	}
	if near || len(counts) == 0 && matchesAll(pod) {
		return ""
	}
	return "InterPodAffinity: affinity"
}

func antiTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// podAntiAffinity: no pod that matches one of the terms is in the node's domain. Without the key there is no domain.
func (c *Cluster) podAntiAffinity(pod *corev1.Pod, node *ClusterNode) string {
	for _, t := range antiTerms(pod) {
		v, ok := node.Labels[t.TopologyKey]
		for _, n := range c.Nodes {
			if w, has := n.Labels[t.TopologyKey]; !ok || !has || v != w {
				continue
			}
			if slices.ContainsFunc(n.Pods, func(other *corev1.Pod) bool { return c.selectsPod(pod, &t, other) }) {
				return "InterPodAffinity: anti-affinity"
			}
		}
	}
	return ""
}

// othersAntiAffinity: no pod with a term that matches this one is in the domain.
func (c *Cluster) othersAntiAffinity(pod *corev1.Pod, node *ClusterNode) string {
	for _, n := range c.Nodes {
		for _, other := range n.Pods {
			for _, t := range antiTerms(other) {
				v, ok := node.Labels[t.TopologyKey]
				w, has := n.Labels[t.TopologyKey]
				if ok && has && v == w && c.selectsPod(other, &t, pod) {
					return "InterPodAffinity: anti-affinity of another pod"
				}
			}
		}
	}
	return ""
}

// spread: in each constraint with DoNotSchedule, the node has the key, and the pods of its domain, with this one if it counts
// itself, are at most maxSkew more than those of the domain with the fewest.
func (c *Cluster) spread(pod *corev1.Pod, node *ClusterNode) string {
	hard := slices.DeleteFunc(slices.Clone(pod.Spec.TopologySpreadConstraints), func(t corev1.TopologySpreadConstraint) bool {
		return t.WhenUnsatisfiable != corev1.DoNotSchedule
	})
	for i := range hard {
		t := &hard[i]
		value, ok := node.Labels[t.TopologyKey]
		if !ok {
			return "PodTopologySpread: no key"
		}
		counts := c.spreadCounts(pod, t, hard)
		lowest := math.MaxInt32
		for _, n := range counts {
			lowest = min(lowest, n)
		}
		if t.MinDomains != nil && len(counts) < int(*t.MinDomains) || c.EmptyHost && t.TopologyKey == corev1.LabelHostname {
			lowest = 0
		}
		self := 0
		if spreadSelector(pod, t).Matches(labels.Set(pod.Labels)) {
			self = 1
		}
		if counts[value]+self-lowest > int(t.MaxSkew) {
			return fmt.Sprintf("PodTopologySpread: %s has %v", t.TopologyKey, counts)
		}
	}
	return ""
}

// spreadCounts are the pods that count, by domain: of the nodes that have the keys of all constraints, that the pod's node
// selection admits unless the constraint ignores it, and tolerates its taints if the constraint honors them.
func (c *Cluster) spreadCounts(pod *corev1.Pod, t *corev1.TopologySpreadConstraint, all []corev1.TopologySpreadConstraint) map[string]int {
	counts := map[string]int{}
	for _, n := range c.Nodes {
		hasKeys := !slices.ContainsFunc(all, func(t corev1.TopologySpreadConstraint) bool { _, ok := n.Labels[t.TopologyKey]; return !ok })
		ignoresSelection := t.NodeAffinityPolicy != nil && *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
		honorsTaints := t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		if !hasKeys || !ignoresSelection && c.nodeAffinity(pod, n) != "" || honorsTaints && c.taints(pod, n) != "" {
			continue
		}
		v := n.Labels[t.TopologyKey]
		counts[v] += 0
		selector := spreadSelector(pod, t)
		for _, other := range n.Pods {
			if selector.Empty() || other.DeletionTimestamp != nil || other.Namespace != pod.Namespace {
				continue
			}
			if selector.Matches(labels.Set(other.Labels)) {
				counts[v]++
			}
		}
	}
	return counts
}

// spreadSelector is the constraint's selector with the pod's own values of matchLabelKeys.
func spreadSelector(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || t.LabelSelector == nil {
		return labels.Nothing()
	}
	for _, key := range t.MatchLabelKeys {
		if v, ok := pod.Labels[key]; ok {
			r, err := labels.NewRequirement(key, "in", []string{v})
			if err == nil {
				s = s.Add(*r)
			}
		}
	}
	return s
}
