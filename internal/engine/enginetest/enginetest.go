// Package enginetest builds small snapshots for tests of the engine and of its users: three zones, two capacity
// types, a handful of instance types, and pods that declare in one line what they need.
package enginetest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Labels that fixtures use often.
const (
	Zone     = corev1.LabelTopologyZone
	Host     = corev1.LabelHostname
	Arch     = corev1.LabelArchStable
	Capacity = karpv1.LabelCapacityType
)

// Now is the instant of every fixture.
func Now() time.Time { return time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC) }

// Zones of the fixture's region.
func Zones() []string { return []string{"z1", "z2", "z3"} }

// Resources reads name, quantity, name, quantity, ...; quantities must be valid.
func Resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q, err := resource.ParseQuantity(pairs[i+1])
		if err != nil {
			q = *resource.NewQuantity(-1, resource.DecimalSI) // nothing fits: the test fails where it is looked at
		}
		out[corev1.ResourceName(pairs[i])] = q
	}
	return out
}

// Type returns an amd64 Linux instance type in all zones, on-demand at $price/h and spot at a third of it. It holds 110
// pods unless resources state otherwise, and all of its capacity is allocatable.
func Type(name string, price float64, resources ...string) *catalog.InstanceType {
	it := &catalog.InstanceType{Name: name, Capacity: Resources(append([]string{"pods", "110"}, resources...)...)}
	it.Allocatable = it.Capacity.DeepCopy()
	for _, zone := range Zones() {
		it.Offerings = append(
			it.Offerings,
			Offering(zone, karpv1.CapacityTypeOnDemand, price),
			Offering(zone, karpv1.CapacityTypeSpot, price/3),
		)
	}
	it.Requirements = requirement.NewSet(
		requirement.In(corev1.LabelInstanceTypeStable, name),
		requirement.In(Arch, "amd64"),
		requirement.In(corev1.LabelOSStable, "linux"),
	)
	return WithOfferings(it, it.Offerings...)
}

// WithOfferings replaces the offerings, and the labels that are their union.
func WithOfferings(it *catalog.InstanceType, offerings ...catalog.Offering) *catalog.InstanceType {
	it.Offerings = offerings
	var zones, capacityTypes []string
	for _, o := range offerings {
		zones, capacityTypes = append(zones, o.Zone), append(capacityTypes, o.CapacityType)
	}
	it.Requirements = it.Requirements.Replace(requirement.In(Zone, zones...)).Replace(requirement.In(Capacity, capacityTypes...))
	return it
}

// WithLabel replaces the values of one label of the type.
func WithLabel(it *catalog.InstanceType, key string, values ...string) *catalog.InstanceType {
	it.Requirements = it.Requirements.Replace(requirement.In(key, values...))
	return it
}

// Offering returns an available offering.
func Offering(zone, capacityType string, price float64) catalog.Offering {
	return catalog.Offering{
		Zone: zone, CapacityType: capacityType, Price: price, Available: true,
		Requirements: requirement.NewSet(requirement.In(Zone, zone), requirement.In(Capacity, capacityType)),
	}
}

// ReservationID is the label of a node's capacity reservation here.
const ReservationID = "example.com/reservation"

// WithReservation adds to the type an offering in zone z1 that uses one of n instances of a capacity reservation.
func WithReservation(it *catalog.InstanceType, id string, n int) *catalog.InstanceType {
	const discount = 10_000_000
	price := 0.0
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if o.CapacityType == karpv1.CapacityTypeOnDemand {
			price = o.Price / discount
		}
		if o.ReservationID == "" {
			o.Requirements = o.Requirements.Replace(requirement.DoesNotExist(ReservationID))
		}
	}
	o := Offering(Zones()[0], karpv1.CapacityTypeReserved, price)
	o.Requirements = o.Requirements.With(requirement.In(ReservationID, id))
	o.ReservationID, o.Remaining, o.Available = id, n, n > 0
	if n == 0 {
		o.UnavailableReason = catalog.ReasonFull
	}
	return WithOfferings(it, append(it.Offerings, o)...)
}

// Types is a family of four sizes with prices in proportion.
func Types() []*catalog.InstanceType {
	return []*catalog.InstanceType{
		Type("m.small", 0.05, "cpu", "1", "memory", "4Gi"),
		Type("m.medium", 0.10, "cpu", "2", "memory", "8Gi"),
		Type("m.large", 0.20, "cpu", "4", "memory", "16Gi"),
		Type("m.xlarge", 0.40, "cpu", "8", "memory", "32Gi"),
	}
}

// AnyBudget lets all nodes of a pool be disrupted at once.
func AnyBudget(np *karpv1.NodePool) {
	np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
}

// Pool returns a pool without constraints; edit changes it.
func Pool(name string, instanceTypes []*catalog.InstanceType, edit ...func(*karpv1.NodePool)) snapshot.Pool {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	np.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: "example.com", Kind: "NodeClass", Name: "default"}
	for _, e := range edit {
		e(np)
	}
	return snapshot.Pool{NodePool: np, NodeClassLabel: [2]string{"example.com/nodeclass", "default"}, InstanceTypes: instanceTypes}
}

// Require adds a requirement to a pool.
func Require(key string, op corev1.NodeSelectorOperator, values ...string) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) {
		reqs := &np.Spec.Template.Spec.Requirements
		*reqs = append(*reqs, karpv1.Requirement{Key: key, Operator: op, Values: values})
	}
}

// MinValues sets minValues of the requirement added last.
func MinValues(n int) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) {
		reqs := np.Spec.Template.Spec.Requirements
		reqs[len(reqs)-1].MinValues = &n
	}
}

// Weight sets a pool's weight.
func Weight(w int32) func(*karpv1.NodePool) { return func(np *karpv1.NodePool) { np.Spec.Weight = &w } }

// Limit sets a pool's limits, see Resources.
func Limit(pairs ...string) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) { np.Spec.Limits = Resources(pairs...) }
}

// TemplateLabel adds a label to a pool's template.
func TemplateLabel(key, value string) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) {
		if np.Spec.Template.Labels == nil {
			np.Spec.Template.Labels = map[string]string{}
		}
		np.Spec.Template.Labels[key] = value
	}
}

// PoolTaint adds a taint to a pool's template.
func PoolTaint(key string, effect corev1.TaintEffect) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) {
		taints := &np.Spec.Template.Spec.Taints
		*taints = append(*taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// World joins pools and pods into a snapshot.
func World(pools []snapshot.Pool, pods ...*corev1.Pod) *snapshot.Snapshot {
	return &snapshot.Snapshot{
		Now:        Now(),
		Labels:     labels(),
		Pools:      pools,
		Pods:       pods,
		Namespaces: map[string]map[string]string{"default": nil},
	}
}

// labels are the core's, on a cloud with capacity reservations.
func labels() requirement.Labels {
	l := requirement.CoreLabels()
	l.ReservationID = ReservationID
	l.WellKnown[ReservationID] = true
	return l
}

// Pod returns an unschedulable pod of namespace default; edit changes it.
func Pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			Namespace:         "default",
			UID:               types.UID("uid-" + name),
			CreationTimestamp: metav1.Time{Time: Now().Add(-time.Minute)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

// Pods returns n pods called prefix-000, prefix-001, ...
func Pods(n int, prefix string, edit ...func(*corev1.Pod)) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = Pod(fmt.Sprintf("%s-%03d", prefix, i), edit...)
	}
	return out
}

// Bound binds a pod to a node.
func Bound(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = nil
	return p
}

// Requests sets the requests of the pod's container, see Resources.
func Requests(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = Resources(pairs...) }
}

// Labeled adds a label.
func Labeled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
	}
}

// Selects adds to the nodeSelector.
func Selects(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[key] = value
	}
}

func nodeAffinity(p *corev1.Pod) *corev1.NodeAffinity {
	a := affinityOf(p)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	return a.NodeAffinity
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

// Expr is one match expression.
func Expr(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

// Needs adds a term of required node affinity; terms are alternatives.
func Needs(exprs ...corev1.NodeSelectorRequirement) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := nodeAffinity(p)
		if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		}
		terms := &a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		*terms = append(*terms, corev1.NodeSelectorTerm{MatchExpressions: exprs})
	}
}

// Prefers adds a term of preferred node affinity.
func Prefers(weight int32, exprs ...corev1.NodeSelectorRequirement) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := nodeAffinity(p)
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: exprs}})
	}
}

// Tolerates adds a toleration of a key, whatever its value and effect.
func Tolerates(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

// HostPort adds a port of the node.
func HostPort(ip string, port int32, protocol corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		ports := &p.Spec.Containers[0].Ports
		*ports = append(*ports, corev1.ContainerPort{HostIP: ip, HostPort: port, ContainerPort: port, Protocol: protocol})
	}
}

// App selects pods labeled app=name.
func App(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

// Spread adds a hard spread constraint over pods labeled app=name; edit changes it.
func Spread(key string, maxSkew int32, app string, edit ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: App(app),
		}
		for _, e := range edit {
			e(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// Near adds required affinity to pods labeled app=name.
func Near(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: App(app)})
	}
}

// Apart adds required anti-affinity to pods labeled app=name.
func Apart(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: App(app)},
		)
	}
}

// PreferNear and PreferApart are the soft forms of Near and Apart.
func PreferNear(weight int32, key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: App(app)}})
	}
}

// PreferApart is the soft form of Apart.
func PreferApart(weight int32, key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: App(app)}},
		)
	}
}

// OwnedBy adds an owner.
func OwnedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "owner"})
	}
}

// Claims mounts a PersistentVolumeClaim.
func Claims(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

// Node returns an initialized, managed node in z1, with an m.large's resources.
func Node(name, pool string, edit ...func(*snapshot.Node)) snapshot.Node {
	n := snapshot.Node{
		Name: name, Claim: name + "-claim", ClaimUID: types.UID("uid-" + name), Pool: pool,
		Labels: map[string]string{
			karpv1.LabelNodePool: pool, Host: name, Zone: "z1", Capacity: karpv1.CapacityTypeOnDemand, Arch: "amd64", corev1.LabelOSStable: "linux",
			corev1.LabelInstanceTypeStable: "m.large", karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
		},
		Allocatable: Resources("cpu", "4", "memory", "16Gi", "pods", "110"),
		Capacity:    Resources("cpu", "4", "memory", "16Gi", "pods", "110"),
		Launched:    true, Registered: true, Initialized: true, Ready: true, Consolidatable: true,
		CreatedAt: Now().Add(-time.Hour), Price: 0.2,
	}
	for _, e := range edit {
		e(&n)
	}
	return n
}

// DriftedNode is a node that drifted so many hours ago, with pods.
func DriftedNode(name, pool string, hours int, pods ...*corev1.Pod) snapshot.Node {
	return Node(name, pool, func(n *snapshot.Node) {
		n.Claim, n.ClaimUID = name, types.UID(name)
		n.Registered, n.Initialized, n.Ready, n.Launched = true, true, true, true
		n.DriftedAt = Now().Add(-time.Duration(hours) * time.Hour)
		n.Allocatable = Resources("cpu", "1", "memory", "4Gi", "pods", "110")
		n.Capacity = n.Allocatable
		for _, p := range pods {
			n.Pods = append(n.Pods, Bound(p, name))
		}
	})
}
