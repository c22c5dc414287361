package propertytest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// disruptionSeeds are added to the number of a world, for the facts that only disruption depends on.
const disruptionSeeds = 2_000_000

// disruptable gives the nodes, pods and pools of a world what disruption depends on: ages, drift, health, budgets,
// annotations. It changes the world.
func (d random) disruptable(s *snapshot.Snapshot) *snapshot.Snapshot {
	for i := range s.Pools {
		d.disruption(s.Pools[i].NodePool)
	}
	if d.maybe(70) {
		s.Pods = nil // pods that wait for nodes keep most nodes from being consolidated
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" {
			d.offered(s, n)
			d.nodeFacts(s, n)
			d.nodeHealth(s, n)
		}
	}
	for _, app := range []string{"a", "b", "c", "d"} {
		if d.maybe(12) {
			s.PDBs = append(s.PDBs, d.pdb(app))
		}
	}
	if d.maybe(4) {
		last := len(s.Pools) - 1
		s.Closed, s.Pools = append(s.Closed, s.Pools[last].NodePool), s.Pools[:last]
	}
	return s
}

// disruption sets the policy and the budgets of a pool.
func (d random) disruption(pool *karpv1.NodePool) {
	spec := &pool.Spec.Disruption
	spec.ConsolidationPolicy = pick(d, karpv1.ConsolidationWhenEmptyOrUnderutilized, karpv1.ConsolidationWhenEmptyOrUnderutilized,
		karpv1.ConsolidationBalanced, karpv1.ConsolidationWhenEmpty)
	spec.ConsolidateAfter = karpv1.After(0)
	if d.maybe(5) {
		spec.ConsolidateAfter = karpv1.Never()
	}
	spec.Budgets = []karpv1.Budget{{Nodes: pick(d, "100%", "100%", "50%", "1", "2")}}
	if d.maybe(20) {
		reason := pick(d, karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized, karpv1.DisruptionUnhealthy)
		spec.Budgets = append(spec.Budgets, karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{reason}})
	}
	if d.maybe(5) {
		replicas := int64(d.n(4))
		pool.Spec.Replicas = &replicas
	}
}

// offered makes a node one that its pool can launch, with a type as large as the largest of some: others are seldom worth
// replacing. A few nodes remain as they are.
func (d random) offered(s *snapshot.Snapshot, n *snapshot.Node) {
	if n.Initialized && d.maybe(60) {
		n.Nominated, n.NominatedUntil = nil, s.Now
	}
	if n.Pool >= fmt.Sprintf("p%d", len(s.Pools)) && d.maybe(85) {
		n.Pool = "p0" // drawn for a pool that this world does not have
		n.Labels[karpv1.LabelNodePool] = n.Pool
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.NodePool.Name != n.Pool || !n.Launched || len(p.InstanceTypes) == 0 || d.maybe(5) {
			continue
		}
		it := pick(d, p.InstanceTypes...)
		for range 3 {
			if other := pick(d, p.InstanceTypes...); other.Capacity.Cpu().Cmp(*it.Capacity.Cpu()) > 0 {
				it = other
			}
		}
		if len(it.Offerings) == 0 {
			continue
		}
		o := pick(d, it.Offerings...)
		n.Labels[corev1.LabelInstanceTypeStable], n.Labels[Zone], n.Labels[Capacity] = it.Name, o.Zone, o.CapacityType
		n.Allocatable, n.Capacity, n.Price = it.Allocatable, it.Capacity, o.Price
	}
}

// nodeFacts sets what allows or blocks the disruption of a managed node, and of its pods.
func (d random) nodeFacts(s *snapshot.Snapshot, n *snapshot.Node) {
	n.CreatedAt = s.Now.Add(-time.Duration(d.from(1, 100)) * time.Hour)
	n.Consolidatable = d.maybe(85)
	n.Bounded = d.maybe(15)
	n.Annotations = map[string]string{}
	if d.maybe(6) {
		n.Annotations[karpv1.AnnotationDoNotDisrupt] = "true"
	}
	if d.maybe(25) {
		n.DriftedAt = s.Now.Add(-time.Duration(d.from(1, 60)) * time.Minute)
	}
	if d.maybe(6) {
		n.NominatedUntil = s.Now.Add(time.Minute)
	}
	if d.maybe(4) {
		n.Disrupting = true
	}
	if d.maybe(3) {
		n.Unplannable = "its devices are not published"
	}
	if d.maybe(4) {
		n.Virtual = d.from(1, 2)
	}
	switch d.n(40) {
	case 0:
		n.Pool = ""
	case 1:
		n.Pool = "gone"
	case 2:
		delete(n.Labels, Capacity)
	}
	for _, p := range n.Pods {
		if d.maybe(5) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationDoNotDisrupt, pick(d, "true", "30m", "soon"))
		}
		if d.maybe(10) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, pick(d, "-2147483647", "1000", "100000000"))
		}
	}
}

// nodeHealth makes some nodes due for repair.
func (d random) nodeHealth(s *snapshot.Snapshot, n *snapshot.Node) {
	n.Rebooting = d.maybe(3)
	if !d.maybe(12) {
		return
	}
	n.Unhealthy, n.Ready = true, d.maybe(50)
	if d.maybe(70) {
		n.Repair = &repair.Decision{
			Action: pick(d, karpv1.RepairReplace, karpv1.RepairReplace, karpv1.RepairReboot), Score: float64(d.n(9)),
			EligibleAt: s.Now.Add(-time.Duration(d.from(1, 60)) * time.Minute),
		}
		if d.maybe(20) {
			bound := time.Duration(d.from(1, 9)) * time.Minute
			n.Repair.Bound = &bound
		}
	}
	if d.maybe(10) {
		n.DoNotRepair = "Node " + n.Name
	}
}

// pdb selects the pods of an app, and lets none or some of them go.
func (d random) pdb(app string) *policyv1.PodDisruptionBudget {
	out := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pdb-%s", app)}}
	out.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	out.Spec.MaxUnavailable = new(intstr.IntOrString)
	if d.maybe(60) {
		*out.Spec.MaxUnavailable = intstr.FromInt32(2)
		out.Status.DisruptionsAllowed = int32(d.n(3))
	}
	if d.maybe(20) {
		always := policyv1.AlwaysAllow
		out.Spec.UnhealthyPodEvictionPolicy = &always
	}
	return out
}
