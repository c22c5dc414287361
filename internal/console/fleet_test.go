package console

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// fleetTime is the time when a generated fleet is seen.
var fleetTime = time.Date(2026, 11, 19, 14, 32, 8, 0, time.UTC)

// podsPerNode sets how many pods of workloads a generated node has, besides two of DaemonSets.
const podsPerNode = 18

// fleetPool is a pool of a generated fleet, with its share of the nodes, and their instance types.
type fleetPool struct {
	name  string
	share float64
	types []string
	// own is true for a pool with nodes that have a taint, which its pods alone tolerate.
	own bool
}

// fleetPools are the pools of a fleet with few of them.
var fleetPools = []fleetPool{
	{name: "general", share: 0.5, types: []string{"m7g.xlarge", "m7g.2xlarge", "m7g.4xlarge", "c7g.2xlarge"}},
	{name: "batch", share: 0.3, types: []string{"c7g.2xlarge", "c7g.4xlarge", "c7g.8xlarge"}},
	{name: "data", share: 0.2, types: []string{"r7g.2xlarge", "r7g.4xlarge"}},
}

// teamPools are so many pools of equal size. All have the same rules, unless each is for its own pods.
func teamPools(many int, own bool) (out []fleetPool) {
	for i := range many {
		out = append(out, fleetPool{fmt.Sprint("team-", i), 1 / float64(many), fleetPools[i%len(fleetPools)].types, own})
	}
	return out
}

// fleetView generates a cluster with so many nodes.
func fleetView(tb testing.TB, nodes int) *inspect.View {
	tb.Helper()
	return fleetOf(tb, nodes, fleetPools)
}

// fleetOf generates a cluster with so many nodes of some pools, always the same one: a tenth of the nodes are nearly empty, a twentieth
// drifted, ten pods are pending.
func fleetOf(tb testing.TB, nodes int, pools []fleetPool) *inspect.View {
	tb.Helper()
	list, err := workload.EC2Types("us-east-1", "spot", "on-demand")
	if err != nil {
		tb.Fatal(err)
	}
	f := &fleetMaker{pools: pools, types: map[string]*catalog.InstanceType{}, random: rand.New(rand.NewPCG(7, 7))}
	for _, t := range list {
		f.types[t.Name] = t
	}
	f.make(nodes)
	view, err := inspect.Listed(fleetTime, f.list, inspect.Config{
		Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
			return inspect.Prices{Catalog: offered(list), From: "a test"}, nil
		},
		NominationWindow: time.Minute, Search: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return view
}

type fleetMaker struct {
	pools   []fleetPool
	objects []client.Object
	types   map[string]*catalog.InstanceType
	random  *rand.Rand
	pods    int
	// tolerations are the tolerations of the pods of the pool that is made.
	tolerations []corev1.Toleration
}

// list is a manifest.Lister.
func (f *fleetMaker) list(kind client.ObjectList) ([]client.Object, error) {
	var out []client.Object
	for _, o := range f.objects {
		if reflect.TypeOf(kind).Elem().Name() == reflect.TypeOf(o).Elem().Name()+"List" {
			out = append(out, o)
		}
	}
	return out, nil
}

func isTrue(conditions ...string) (out []metav1.Condition) {
	for _, c := range conditions {
		out = append(out, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c, LastTransitionTime: metav1.NewTime(fleetTime.Add(-time.Hour))})
	}
	return out
}

func (f *fleetMaker) make(nodes int) {
	day := metav1.NewTime(fleetTime.AddDate(0, 0, -1))
	class := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class", CreationTimestamp: day}}
	class.SetConditions(isTrue("Ready"))
	f.objects = append(f.objects, class)
	for _, p := range f.pools {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name, UID: types.UID("pool-" + p.name), CreationTimestamp: day}}
		pool.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.GroupVersion.Group, Kind: "EC2NodeClass", Name: "default"}
		pool.Spec.Template.Spec.ExpireAfter = karpv1.After(720 * time.Hour)
		pool.Spec.Template.Spec.Requirements = []karpv1.Requirement{
			{Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{"spot", "on-demand"}},
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}},
			{Key: awsv1.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
		}
		pool.Spec.Disruption = karpv1.Disruption{
			ConsolidationPolicy: karpv1.ConsolidationWhenEmptyOrUnderutilized, ConsolidateAfter: karpv1.After(time.Minute),
			Budgets: []karpv1.Budget{{Nodes: "10%"}},
		}
		pool.SetConditions(isTrue("Ready", "ValidationSucceeded", "NodeClassReady"))
		f.tolerations = nil
		if p.own {
			f.tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: p.name}}
			pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: p.name, Effect: corev1.TaintEffectNoSchedule}}
		}
		f.objects = append(f.objects, pool)
		for range int(p.share * float64(nodes)) {
			f.node(pool, p.types[f.random.IntN(len(p.types))])
		}
	}
	for range 10 {
		f.pod(f.pools[0].name, "", 1500)
	}
}

// node adds a node with its NodeClaim and pods.
func (f *fleetMaker) node(pool *karpv1.NodePool, typeName string) {
	n := len(f.objects)
	it, name := f.types[typeName], fmt.Sprintf("ip-10-%d-%d-%d.ec2.internal", n>>16, n>>8&255, n&255)
	offering := it.Offerings[f.random.IntN(len(it.Offerings))]
	created := metav1.NewTime(fleetTime.Add(-time.Duration(2+f.random.IntN(300)) * time.Hour))
	labels := map[string]string{
		karpv1.LabelNodePool: pool.Name, corev1.LabelInstanceTypeStable: typeName, corev1.LabelTopologyZone: offering.Zone,
		karpv1.LabelCapacityType: offering.CapacityType, corev1.LabelArchStable: "arm64", corev1.LabelOSStable: "linux",
		awsv1.LabelInstanceCategory: typeName[:1], awsv1.GroupVersion.Group + "/ec2nodeclass": "default", corev1.LabelHostname: name,
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint(pool.Name, "-", n), UID: types.UID(fmt.Sprint("claim-", n)), CreationTimestamp: created, Labels: labels,
	}}
	claim.Spec.NodeClassRef = pool.Spec.Template.Spec.NodeClassRef
	claim.Status.ProviderID, claim.Status.NodeName = fmt.Sprint("aws:///", offering.Zone, "/i-", n), name
	claim.Status.Capacity, claim.Status.Allocatable = it.Capacity, it.Allocatable
	conditions := isTrue(karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized, "Ready", karpv1.ConditionConsolidatable)
	if f.random.IntN(20) == 0 {
		conditions = append(conditions, isTrue(karpv1.ConditionDrifted)...)
	}
	claim.SetConditions(conditions)
	joined := maps.Clone(labels)
	joined[karpv1.LabelRegistered], joined[karpv1.LabelInitialized] = "true", "true"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), CreationTimestamp: created, Labels: joined}}
	node.Spec.ProviderID, node.Spec.Taints = claim.Status.ProviderID, pool.Spec.Template.Spec.Taints
	node.Status.Capacity, node.Status.Allocatable = it.Capacity, it.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f.objects = append(f.objects, claim, node)
	f.pod("daemon/aws-node", name, 50)
	f.pod("daemon/kube-proxy", name, 100)
	share := 0.5 + 0.45*f.random.Float64()
	if f.random.IntN(10) == 0 {
		share = 0.1
	}
	cpu := int64(share*float64(it.Allocatable.Cpu().MilliValue()-200)) / podsPerNode
	for range podsPerNode {
		f.pod(fmt.Sprint(pool.Name, f.random.IntN(20)), name, max(10, cpu/2+f.random.Int64N(cpu)))
	}
}

// pod adds a pod of a workload, on a node or without one.
func (f *fleetMaker) pod(workload, node string, cpu int64) {
	f.pods++
	owner, daemon := strings.CutPrefix(workload, "daemon/")
	kind := "ReplicaSet"
	if daemon {
		kind = "DaemonSet"
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: fmt.Sprintf("%s-%06d", owner, f.pods), UID: types.UID(fmt.Sprint("pod-", f.pods)), Labels: map[string]string{"app": owner},
		CreationTimestamp: metav1.NewTime(fleetTime.Add(-2 * time.Hour)),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}},
	}}
	pod.Spec.NodeName, pod.Spec.SchedulerName = node, corev1.DefaultSchedulerName
	pod.Spec.Tolerations = f.tolerations
	pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cpu<<20, resource.BinarySI),
	}}}}
	pod.Status.Phase = corev1.PodRunning
	if node == "" {
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}
	}
	f.objects = append(f.objects, pod)
}
