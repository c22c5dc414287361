package manifest_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

var collectTime = time.Date(2026, 11, 23, 3, 12, 0, 500, time.UTC)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.NewTime(collectTime.Truncate(time.Second).Add(-time.Hour)),
		Annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true", "example.com/secret": "hunter2"},
	}
}

func podOn(name, node string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("shop", name)}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
	p.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
		Name: "app", Image: "example.com/app", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
	}}}
	p.Status.Phase = corev1.PodRunning
	if node == "" {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
		}}}
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

// clusterObjects has at least one object of each kind that plans depend on, and those that need completion.
func clusterObjects() []client.Object {
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOn("t", "").Spec}
	pool := &karpv1.NodePool{ObjectMeta: meta("", "general")}
	pool.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: "karpenter.sh/nodepool", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}}
	claim := &karpv1.NodeClaim{ObjectMeta: meta("", "general-a")}
	claim.Labels = map[string]string{karpv1.LabelNodePool: "general"}
	claim.Status.ProviderID, claim.Status.NodeName = "aws:///a/i-1", "a"
	node := &corev1.Node{ObjectMeta: meta("", "a"), Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-1"}}
	node.Labels = map[string]string{karpv1.LabelNodePool: "general"}
	node.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3920m")}, Images: []corev1.ContainerImage{{SizeBytes: 1}},
	}
	toleration := resourcev1.DeviceToleration{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	devices := []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Tolerations: []resourcev1.DeviceToleration{toleration}},
	}}
	used := &resourcev1.ResourceClaim{ObjectMeta: meta("shop", "gpu"), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: devices}}}
	used.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "web-1", UID: "shop/web-1"}}
	return []client.Object{
		pool, claim, node, used,
		&karpv1.NodePool{ObjectMeta: meta("", "batch")},
		&awsv1.EC2NodeClass{ObjectMeta: meta("", "default"), Spec: awsv1.EC2NodeClassSpec{UserData: "token=hunter2"}},
		podOn("web-1", "a"), podOn("web-0", "a"), podOn("lost", "gone"), podOn("waits", ""),
		podOn("done", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		podOn("gated", "", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }),
		podOn("other", "", func(p *corev1.Pod) { p.Namespace = "unlisted" }),
		&corev1.Namespace{ObjectMeta: meta("", "shop")},
		&storagev1.CSINode{ObjectMeta: meta("", "a")},
		&storagev1.StorageClass{ObjectMeta: meta("", "gp3"), Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"kmsKeyId": "secret"}},
		&corev1.PersistentVolume{ObjectMeta: meta("", "pv")},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("shop", "data")},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta("shop", "web"), Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}},
		&appsv1.DaemonSet{ObjectMeta: meta("shop", "agent"), Spec: appsv1.DaemonSetSpec{Template: template}},
		&corev1.Service{ObjectMeta: meta("shop", "web"), Spec: corev1.ServiceSpec{Selector: labels}},
		&corev1.Service{ObjectMeta: meta("shop", "headless")},
		&corev1.ReplicationController{ObjectMeta: meta("shop", "old"), Spec: corev1.ReplicationControllerSpec{Selector: labels, Template: &template}},
		&appsv1.ReplicaSet{ObjectMeta: meta("shop", "web"), Spec: appsv1.ReplicaSetSpec{Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: meta("shop", "scaled-down"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Template: template}},
		&appsv1.StatefulSet{ObjectMeta: meta("shop", "db"), Spec: appsv1.StatefulSetSpec{Template: template}},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: meta("shop", "gpu")},
		&resourcev1.DeviceClass{ObjectMeta: meta("", "gpu")},
		&resourcev1.ResourceSlice{ObjectMeta: meta("", "slice")},
		&resourcev1.DeviceTaintRule{ObjectMeta: meta("", "broken")},
	}
}

// plain is a value as JSON has it, without the kinds that only files have.
func plain(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return withoutKinds(out)
}

func withoutKinds(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, object := v["metadata"]; object {
			delete(v, "kind")
			delete(v, "apiVersion")
		}
		for _, child := range v {
			withoutKinds(child)
		}
	case []any:
		for _, child := range v {
			withoutKinds(child)
		}
	}
	return v
}

// What is collected of a cluster is what is read of its snapshot.
func TestCollectingAClusterIsReadingItsSnapshot(t *testing.T) {
	api := apitest.New(t, func() time.Time { return collectTime }, clusterObjects()...)
	var file bytes.Buffer
	if err := manifest.Dump(t.Context(), api, collectTime, &file); err != nil {
		t.Fatal(err)
	}
	read, err := manifest.Read([]string{"-"}, &file)
	if err != nil {
		t.Fatal(err)
	}
	lists := func(kind client.ObjectList) ([]client.Object, error) {
		return manifest.List(t.Context(), api, kind, manifest.Scrub)
	}
	collected, err := manifest.Collect(collectTime, lists)
	if err != nil {
		t.Fatal(err)
	}
	for i := range read.Notes { // the place in the file
		if _, rest, cut := strings.Cut(read.Notes[i], ": "); cut && strings.HasPrefix(read.Notes[i], "stdin:") {
			read.Notes[i] = rest
		}
	}
	for _, s := range []*manifest.ClusterState{read, collected} {
		s.Devices.Expressions = nil
	}
	a, b := reflect.ValueOf(*read), reflect.ValueOf(*collected)
	for i := range a.NumField() {
		was, is := plain(t, a.Field(i).Interface()), plain(t, b.Field(i).Interface())
		if !reflect.DeepEqual(was, is) {
			wasText, _ := json.MarshalIndent(was, "", " ")
			isText, _ := json.MarshalIndent(is, "", " ")
			t.Errorf("%s: read\n%s\ncollected\n%s", a.Type().Field(i).Name, wasText, isText)
		}
	}
	if strings.Contains(file.String(), "hunter2") || len(collected.Notes) == 0 {
		t.Errorf("notes %q", collected.Notes)
	}
}

// Objects that are collected again do not change: readers of an earlier state have them, too.
func TestObjectsAreCompletedOnce(t *testing.T) {
	known := map[reflect.Type][]client.Object{}
	for _, o := range clusterObjects() {
		manifest.Scrub(o)
		known[reflect.TypeOf(o)] = append(known[reflect.TypeOf(o)], o)
	}
	lists := func(kind client.ObjectList) ([]client.Object, error) {
		for of, objects := range known {
			if of.Elem().Name()+"List" == reflect.TypeOf(kind).Elem().Name() {
				return objects, nil
			}
		}
		return nil, nil
	}
	// completed are the parts that the first state completes, by their places in memory.
	completed := func() (out []uintptr) {
		state, err := manifest.Collect(collectTime, lists)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range state.Namespaces {
			if n.UID != "" { // others are those of pods without one
				out = append(out, reflect.ValueOf(n.Labels).Pointer())
			}
		}
		for _, c := range state.StorageClasses {
			out = append(out, reflect.ValueOf(c.VolumeBindingMode).Pointer())
		}
		for _, w := range state.Owners.ReplicaSets {
			out = append(out, reflect.ValueOf(w.Spec.Selector).Pointer())
		}
		for _, w := range state.Owners.StatefulSets {
			out = append(out, reflect.ValueOf(w.Spec.Selector).Pointer())
		}
		return out
	}
	first, second := completed(), completed()
	if len(first) < 4 || slices.Contains(first, 0) || !slices.Equal(first, second) {
		t.Errorf("the parts of two states are at %x and %x", first, second)
	}
}
