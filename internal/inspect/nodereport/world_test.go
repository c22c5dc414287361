package nodereport_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

var now = time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC)

// types is a catalog that is the same for every class.
type types4 []*catalog.InstanceType

func (t types4) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return t, nil }

// world is a cluster of API objects as Karpenter leaves them: no annotation of Dovetail is on any.
type world struct {
	manifest.ClusterState
	catalog types4
	search  consolidate.Settings
}

// lone is a pool with one node for $0.20/h, on which a pod runs that a node for $0.05/h could hold.
func lone() *world {
	w := &world{catalog: enginetest.Types()}
	w.Now = now
	w.NodeClasses = map[string]*awsv1.EC2NodeClass{"default": {ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	w.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	pool.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: "default"}
	pool.Spec.Template.Spec.ExpireAfter = karpv1.After(720 * time.Hour)
	pool.Spec.Template.Spec.Requirements = []karpv1.Requirement{{
		Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand},
	}}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute)
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
	w.NodePools = append(w.NodePools, pool)
	w.addNode("ip-10-0-1-7", "m.large", "4", "16Gi")
	w.addPod("web-1", "ip-10-0-1-7", "500m")
	return w
}

func (w *world) pool() *karpv1.NodePool   { return w.NodePools[0] }
func (w *world) claim() *karpv1.NodeClaim { return w.NodeClaims[0] }
func (w *world) node() *corev1.Node       { return w.Nodes[0] }
func (w *world) pod() *corev1.Pod         { return w.Pods[0] }

// addNode adds an initialized node of the pool, a day old, with its claim.
func (w *world) addNode(name, instanceType, cpu, memory string) {
	labels := func() map[string]string {
		return map[string]string{
			karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: instanceType, corev1.LabelTopologyZone: "z1",
			karpv1.LabelCapacityType: karpv1.CapacityTypeOnDemand, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			awsv1.LabelNodeClass: "default",
		}
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "general-" + name, UID: types.UID("claim-" + name), Labels: labels(), CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour)),
	}}
	claim.Spec.NodeClassRef = w.pool().Spec.Template.Spec.NodeClassRef
	claim.Spec.ExpireAfter = w.pool().Spec.Template.Spec.ExpireAfter
	claim.Spec.Resources.Requests = enginetest.Resources("cpu", "3500m", "memory", "2Gi")
	claim.Status.ProviderID, claim.Status.NodeName = "aws:///z1/i-"+name, name
	resources := enginetest.Resources("cpu", cpu, "memory", memory, "pods", "110")
	claim.Status.Capacity, claim.Status.Allocatable = resources, resources
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized, karpv1.ConditionConsolidatable} {
		condition.SetTrue(claim, typ, now.Add(-23*time.Hour))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(), CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))}}
	node.Labels[karpv1.LabelRegistered], node.Labels[karpv1.LabelInitialized], node.Labels[corev1.LabelHostname] = "true", "true", name
	node.Spec.ProviderID = claim.Status.ProviderID
	node.Status.Capacity, node.Status.Allocatable = resources, resources
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.NodeClaims, w.Nodes = append(w.NodeClaims, claim), append(w.Nodes, node)
}

// addPod adds a running pod of a ReplicaSet, or a pending one if node is empty.
func (w *world) addPod(name, node, cpu string) *corev1.Pod {
	p := enginetest.Pod(name, enginetest.Requests("cpu", cpu, "memory", "256Mi"), enginetest.Labeled("app", "web"))
	p.Namespace, p.UID = "shop", types.UID("pod-"+name)
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: &yes}}
	p.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
	if node != "" {
		enginetest.Bound(p, node)
	}
	w.Pods = append(w.Pods, p)
	return p
}

// addPDB adds a budget over the pods app=web that allows none to go.
func (w *world) addPDB(name string) {
	one := intstr.FromInt32(1)
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	pdb.Spec.MinAvailable, pdb.Spec.Selector = &one, enginetest.App("web")
	pdb.Status = policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	w.PDBs = append(w.PDBs, pdb)
}

// view returns what a read-only command sees of it.
func (w *world) view(t testing.TB) *inspect.View {
	t.Helper()
	state := w.ClusterState
	v, err := inspect.Of(&state, inspect.Config{
		Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
			return inspect.Prices{Catalog: w.catalog, From: "the tests"}, nil
		},
		NominationWindow: time.Minute, Search: w.search,
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
