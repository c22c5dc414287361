package reduced_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/reduced"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Plans depend on what a snapshot keeps of an object. A reduced object has all of it.
func TestPlansDependOnNothingThatIsDropped(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1<<30), resource.DecimalSI)
		},
	)
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []func() client.Object{
		func() client.Object { return &corev1.Pod{} },
		func() client.Object { return &corev1.Node{} },
		func() client.Object { return &appsv1.DaemonSet{} },
		func() client.Object { return &appsv1.ReplicaSet{} },
		func() client.Object { return &appsv1.StatefulSet{} },
		func() client.Object { return &corev1.ReplicationController{} },
	}
	for i := range 1200 {
		full := kinds[i%len(kinds)]()
		fill.Fill(full)
		if random.IntN(2) == 0 {
			full.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "karpenter.sh/do-not-disrupt": "true"})
		}
		small := full.DeepCopyObject().(client.Object)
		if out, err := reduced.Transform(small); err != nil || out != small {
			t.Fatalf("%T: %v, %v", full, out, err)
		}
		manifest.Scrub(full)
		manifest.Scrub(small)
		if diff := cmp.Diff(full, small, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%T %d: plans lose (-full +reduced):\n%s", full, i, diff)
		}
	}
}

// Controllers read more than plans: conditions with their messages, annotations, since when a container is in its state.
func TestControllersHaveWhatTheyRead(t *testing.T) {
	pod := example(t)
	if _, err := reduced.Transform(pod); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"uid":"7d9c`, `"resourceVersion":"48213377"`, "ownerReferences", "prometheus.io/scrape", "terminationGracePeriodSeconds",
		`"type":"Ready"`, "2026-11-20T08:14:12Z", "whenUnsatisfiable", "data-checkout-0", "persistentVolumeClaim", "hostPort",
		"preStop is no reason to wait", "finishedAt",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, dropped := range []string{
		"managedFields", "last-applied", "DATABASE_URL", "secretKeyRef", "--listen", "httpGet", "/etc/tls", "runAsNonRoot", "containerID",
		"imagePullSecrets", "kube-root-ca.crt", "panic: out of memory",
		"PodReadyToStartContainers", "podIP",
	} {
		if strings.Contains(string(text), dropped) {
			t.Errorf("%s is kept in %s", dropped, text)
		}
	}
}

func TestOtherValuesPassUnchanged(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": "value"}}
	want := config.DeepCopy()
	for _, o := range []any{config, "tombstone", nil} {
		if got, err := reduced.Transform(o); err != nil || got != o {
			t.Errorf("%v becomes %v, %v", o, got, err)
		}
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Error(diff)
	}
}

// An annotation that kubectl apply made is dropped from the object, and not from a map that others may read.
func TestSharedAnnotationsStay(t *testing.T) {
	shared := map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: shared}}
	if _, err := reduced.Transform(node); err != nil {
		t.Fatal(err)
	}
	if len(shared) != 2 || len(node.Annotations) != 1 {
		t.Errorf("shared %v, of the node %v", shared, node.Annotations)
	}
}

func example(t testing.TB) *corev1.Pod {
	t.Helper()
	data, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// BenchmarkHeapPerPod reports the heap that a pod of an API server takes in a cache, in bytes.
func BenchmarkHeapPerPod(b *testing.B) {
	data, err := json.Marshal(example(b))
	if err != nil {
		b.Fatal(err)
	}
	for name, transform := range map[string]func(any) (any, error){
		"whole":   func(o any) (any, error) { return o, nil },
		"reduced": reduced.Transform,
		"shared":  reduced.NewSharer().Transform,
	} {
		b.Run(name, func(b *testing.B) {
			const pods = 5000
			for b.Loop() {
				kept := make([]*corev1.Pod, pods)
				before := heap()
				for i := range kept {
					kept[i] = &corev1.Pod{}
					if err := json.Unmarshal(data, kept[i]); err != nil {
						b.Fatal(err)
					}
					kept[i].Name = fmt.Sprintf("checkout-%d", i)
					if _, err := transform(kept[i]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/pods, "B/pod")
				runtime.KeepAlive(kept)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Pods of one owner are what they would be without the others, and their common parts are in memory once.
func TestPodsOfAnOwnerShareWhatTheyHaveInCommon(t *testing.T) {
	sharer := reduced.NewSharer()
	pods := make([]*corev1.Pod, 3)
	for i := range pods {
		pods[i] = example(t)
		pods[i].Name = fmt.Sprintf("checkout-%d", i)
		if i == 2 {
			pods[i].Labels["pod-template-hash"] = "other"
		}
		want := pods[i].DeepCopy()
		if _, err := reduced.Transform(want); err != nil {
			t.Fatal(err)
		}
		if _, err := sharer.Transform(pods[i]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, pods[i]); diff != "" {
			t.Errorf("pod %d (-alone +shared):\n%s", i, diff)
		}
	}
	if &pods[0].Spec.Containers[0] != &pods[1].Spec.Containers[0] || &pods[0].Spec.Containers[0] != &pods[2].Spec.Containers[0] {
		t.Error("containers are in memory twice")
	}
	pods[2].Labels["of"] = "the third pod" // which has labels of its own
	if pods[0].Labels["of"] != "" || pods[1].Labels["of"] != "" {
		t.Error("labels that differ are shared")
	}
}

// The API server adds the zone of its node to the labels of a bound pod: they are in memory once for each zone.
func TestPodsOfAnOwnerShareTheLabelsOfAZone(t *testing.T) {
	sharer, maps := reduced.NewSharer(), map[uintptr]string{}
	for i := range 30 {
		pod := example(t)
		zone := fmt.Sprintf("us-east-1%c", 'a'+i%3)
		pod.Name, pod.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("checkout-%d", i), zone
		if _, err := sharer.Transform(pod); err != nil {
			t.Fatal(err)
		}
		if pod.Labels[corev1.LabelTopologyZone] != zone {
			t.Fatalf("pod %d of %s has the labels %v", i, zone, pod.Labels)
		}
		maps[reflect.ValueOf(pod.Labels).Pointer()] = zone
	}
	if len(maps) != 3 {
		t.Errorf("%d maps of labels of 30 pods in 3 zones", len(maps))
	}
}

// Many short-lived owners do not fill the memory.
func TestWhatIsRememberedOfOwnersIsBounded(t *testing.T) {
	sharer := reduced.NewSharer()
	before := heap()
	for i := range 100_000 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("run-", i), Name: "a",
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(fmt.Sprint(i)), Controller: new(true)}},
		}}
		if _, err := sharer.Transform(pod); err != nil {
			t.Fatal(err)
		}
	}
	if kept := heap() - before; kept > 70<<20 {
		t.Errorf("%d MiB are kept of 100,000 owners whose pods are gone", kept>>20)
	}
	runtime.KeepAlive(sharer)
}

// Nodes and NodeClaims of an instance type are what they would be without the others, and amounts and texts are in memory once.
func TestNodesOfAnInstanceTypeShareWhatTheyHaveInCommon(t *testing.T) {
	amounts := func() corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse("15890m"), "pods": resource.MustParse("58")}
	}
	labels := func(name string) map[string]string {
		return map[string]string{
			karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "m7i.4xlarge", corev1.LabelHostname: name,
			strings.Repeat("long.", 20) + "/key": strings.Repeat("v", 100),
		}
	}
	sharer := reduced.NewSharer()
	nodes, claims := make([]*corev1.Node, 3), make([]*karpv1.NodeClaim, 3)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		nodes[i] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(name)}}
		nodes[i].Status.Capacity, nodes[i].Status.Allocatable = amounts(), amounts()
		nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Reason: strings.Clone("KubeletReady")}}
		claims[i] = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(name)}}
		claims[i].Spec.Requirements = []karpv1.Requirement{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64"}}}
		claims[i].Status.Capacity = amounts()
		if i == 2 {
			nodes[i].Status.Allocatable["cpu"] = resource.MustParse("1")
			claims[i].Spec.Requirements[0].Values[0] = "arm64"
		}
		for _, o := range []client.Object{nodes[i], claims[i]} {
			want := o.DeepCopyObject()
			if _, err := sharer.Transform(o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("%T %d (-alone +shared):\n%s", o, i, diff)
			}
		}
	}
	same := func(a, b corev1.ResourceList) bool {
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	if !same(nodes[0].Status.Allocatable, nodes[1].Status.Allocatable) || !same(claims[0].Status.Capacity, claims[2].Status.Capacity) ||
		&claims[0].Spec.Requirements[0] != &claims[1].Spec.Requirements[0] ||
		unsafe.StringData(nodes[0].Status.Conditions[0].Reason) != unsafe.StringData(nodes[2].Status.Conditions[0].Reason) {
		t.Error("amounts, requirements or texts are in memory twice")
	}
	if same(nodes[1].Status.Allocatable, nodes[2].Status.Allocatable) {
		t.Error("amounts that differ are shared")
	}
}
