package top

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
)

var now = time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC)

// sampleNode is a row of the sample cluster.
type sampleNode struct {
	name, pool, instanceType, capacityType, zone string
	cores, gibibytes                             int
	age                                          time.Duration
	change                                       func(*corev1.Node, *karpv1.NodeClaim)
}

func samples() []sampleNode {
	drift := func(_ *corev1.Node, c *karpv1.NodeClaim) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
			Type: karpv1.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift", Message: "AMIDrift",
		})
	}
	drain := func(n *corev1.Node, _ *karpv1.NodeClaim) {
		n.DeletionTimestamp = &metav1.Time{Time: now.Add(-40 * time.Second)}
	}
	protect := func(n *corev1.Node, _ *karpv1.NodeClaim) {
		n.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
	}
	unready := func(n *corev1.Node, _ *karpv1.NodeClaim) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Message = corev1.ConditionFalse, "container runtime network not ready"
	}
	return []sampleNode{
		{"ip-10-0-12-4.eu-west-1.compute.internal", "general", "m7i.2xlarge", "on-demand", "eu-west-1a", 8, 32, 9 * time.Hour, nil},
		{"ip-10-0-12-77.eu-west-1.compute.internal", "general", "m7i.2xlarge", "spot", "eu-west-1a", 8, 32, 3 * time.Hour, drift},
		{"ip-10-0-19-30.eu-west-1.compute.internal", "general", "c7i.xlarge", "spot", "eu-west-1b", 4, 8, 26 * time.Hour, nil},
		{"ip-10-0-21-8.eu-west-1.compute.internal", "general", "c7i.xlarge", "spot", "eu-west-1b", 4, 8, 50 * time.Minute, nil},
		{"ip-10-0-31-99.eu-west-1.compute.internal", "general", "m7i.large", "on-demand", "eu-west-1c", 2, 8, 4 * 24 * time.Hour, drain},
		{"ip-10-0-14-5.eu-west-1.compute.internal", "batch", "r7i.4xlarge", "spot", "eu-west-1a", 16, 128, 2 * time.Hour, protect},
		{"ip-10-0-14-61.eu-west-1.compute.internal", "batch", "r7i.4xlarge", "spot", "eu-west-1a", 16, 128, 11 * time.Minute, unready},
	}
}

// listed is a catalog.
type listed []*catalog.InstanceType

func (l listed) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return l, nil }

func (l *listed) add(name string, o catalog.Offering) {
	for _, t := range *l {
		if t.Name == name {
			t.Offerings = append(t.Offerings, o)
			return
		}
	}
	*l = append(*l, &catalog.InstanceType{Name: name, Offerings: []catalog.Offering{o}})
}

// sampleObjects is a small cluster with a node in each state but planned, and one node that Karpenter does not manage.
func sampleObjects() Objects {
	var offered listed
	o := Objects{Now: now, Used: map[string]Used{}}
	for i, s := range samples() {
		node, claim := s.objects(i)
		o.Nodes, o.Claims = append(o.Nodes, node), append(o.Claims, claim)
		o.Used[s.name] = Used{CPU: int64(s.cores) * 230, Memory: int64(s.gibibytes) << 30 * 2 / 5}
		offered.add(s.instanceType, catalog.Offering{Zone: s.zone, CapacityType: s.capacityType, Price: float64(s.cores) * 0.0481})
		for j := range 2 + i%3 {
			o.Pods = append(o.Pods, samplePod(fmt.Sprintf("web-%d%d", i, j), s.name, int64(s.cores*1000/(4+j)), int64(s.gibibytes)<<30/6))
		}
	}
	o.Prices = fleet.PricesOf(fleet.Source{From: "the built-in catalog of eu-west-1", Catalog: offered})
	unmanaged := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "bootstrap", CreationTimestamp: metav1.NewTime(now.Add(-40 * 24 * time.Hour)),
	}}
	unmanaged.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	o.Nodes = append(o.Nodes, unmanaged)
	o.Claims = append(o.Claims, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "general-x7k2p", CreationTimestamp: metav1.NewTime(now.Add(-25 * time.Second)),
		Labels: map[string]string{
			karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "c7i.xlarge", karpv1.LabelCapacityType: "spot",
		},
	}})
	waits := samplePod("checkout-7d9f", "", 1500, 2<<30)
	waits.Scheduler = "0/8 nodes are available: 8 Insufficient cpu."
	typo := samplePod("ledger-0", "", 500, 1<<30)
	o.Pods = append(o.Pods, waits, typo)
	return o
}

func (s sampleNode) objects(i int) (*corev1.Node, *karpv1.NodeClaim) {
	id := fmt.Sprintf("aws:///%s/i-%017d", s.zone, i)
	labels := map[string]string{
		karpv1.LabelNodePool: s.pool, corev1.LabelInstanceTypeStable: s.instanceType, karpv1.LabelCapacityType: s.capacityType,
		corev1.LabelTopologyZone: s.zone, karpv1.LabelInitialized: "true", corev1.LabelArchStable: "amd64",
	}
	created := metav1.NewTime(now.Add(-s.age))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: labels, CreationTimestamp: created}}
	node.Spec.ProviderID = id
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(s.cores), resource.DecimalSI), corev1.ResourcePods: resource.MustParse("58"),
		corev1.ResourceMemory: *resource.NewQuantity(int64(s.gibibytes)<<30, resource.BinarySI),
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%05d", s.pool, i), Labels: labels, CreationTimestamp: created,
	}}
	claim.Status.ProviderID = id
	if s.change != nil {
		s.change(node, claim)
	}
	return node, claim
}

func samplePod(name, node string, cpu, memory int64) Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-7 * time.Minute)),
		Labels: map[string]string{"app": "web"},
	}}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodPending
	if node != "" {
		p.Status.Phase = corev1.PodRunning
	}
	return Pod{Pod: p, CPU: cpu, Memory: memory}
}

func sampleObserved() Observed {
	return Observed{
		Fleet: Observe(sampleObjects()), Prices: "the built-in catalog of eu-west-1", Link: Link{Name: "production.eu-west-1"},
	}
}

func sampleForecast() *Forecast {
	gone := samples()[2].name
	launch := Launch{NodePool: "general", InstanceType: "c7i.large", CapacityType: "spot", Zone: "eu-west-1b", HourlyCost: 0.0384}
	return &Forecast{
		At: now.Add(-12 * time.Second), LowerBound: 1.9,
		Changes: []Change{
			{
				Action: "launch", Reason: "pending pods", Nodes: []string{}, Launches: []Launch{launch}, Pods: 1, HourlySavings: -0.0384,
				pods: []types.UID{"checkout-7d9f"},
			},
			{Action: "replace", Reason: "underutilized", Nodes: []string{gone}, Launches: []Launch{launch}, Pods: 4, HourlySavings: 0.154},
		},
		removals: map[string]int{gone: 1},
		stays: map[string]stay{
			samples()[0].name: {why: "removing it would need a node that costs as much"},
			samples()[3].name: {blocked: true, why: "pdb prevents pod evictions (PDB=shop/web)"},
		},
		pods: map[types.UID]Outlook{
			"checkout-7d9f": {Launch: &launch},
			"ledger-0":      {Reasons: []string{"NodePool general: no instance type has the label disk=nvmee", "NodePool batch: taint team=data"}},
		},
	}
}

func sampleModel(w, h int) Model {
	return NewModel(Link{}).Update(Resize{w, h}).Update(sampleObserved()).Update(Predicted{sampleForecast()})
}

func press(m Model, keys ...string) Model {
	for _, k := range keys {
		m = m.Update(Key(k))
	}
	return m
}
