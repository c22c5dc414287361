package planner_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

const secret = "hunter2"

// stall sells the same to every class, live or not.
type stall struct{}

func (stall) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return enginetest.Types(), nil
}

func (stall) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return enginetest.Types(), nil
}

// liveWorld is a cluster with a bit of everything, and a secret wherever people put them.
func liveWorld() []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret, "example.com/token": secret},
		}
	}
	spec := func(cpu string) corev1.PodSpec {
		return corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "c", Command: []string{secret}, Args: []string{secret},
				Env:           []corev1.EnvVar{{Name: "PASSWORD", Value: secret}},
				EnvFrom:       []corev1.EnvFromSource{{Prefix: secret}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{secret}}}},
				Resources:     corev1.ResourceRequirements{Requests: enginetest.Resources("cpu", cpu)},
			}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
		}
	}
	pod := func(name, node, cpu string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name), Spec: spec(cpu)}
		p.Namespace, p.Spec.NodeName, p.Status.Phase = "shop", node, corev1.PodPending
		return p
	}
	waiting, ignored := pod("waiting", "", "3"), pod("not-looked-at-yet", "", "3")
	waiting.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: secret},
	}
	small := waiting.DeepCopy()
	small.Name, small.Spec.Containers[0].Resources.Requests = "small", enginetest.Resources("cpu", "500m")
	node := &corev1.Node{ObjectMeta: meta("node-1")}
	node.Labels = map[string]string{corev1.LabelHostname: "node-1", corev1.LabelTopologyZone: "z1"}
	node.Status.Allocatable = enginetest.Resources("cpu", "2", "memory", "8Gi", "pods", "10")
	daemons := &appsv1.DaemonSet{ObjectMeta: meta("agent")}
	daemons.Namespace, daemons.Spec.Template.Spec = "shop", spec("250m")
	daemons.Spec.Template.Annotations = map[string]string{"token": secret}
	pool := &karpv1.NodePool{ObjectMeta: meta("general")}
	pool.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{
		Group: awsv1.GroupVersion.Group,
		Kind:  "EC2NodeClass",
		Name:  "default",
	}
	pool.SetConditions([]metav1.Condition{{Type: condition.Ready, Status: metav1.ConditionTrue, Reason: condition.Ready}})
	service := &corev1.Service{
		ObjectMeta: meta("web"),
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ExternalName: secret},
	}
	service.Namespace = "shop"
	rs := &appsv1.ReplicaSet{ObjectMeta: meta("web")}
	rs.Namespace, rs.Spec.Template.Spec = "shop", spec("1")
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	class := &awsv1.EC2NodeClass{ObjectMeta: meta("default")}
	class.Spec.UserData = secret
	return []client.Object{
		&corev1.Namespace{
			ObjectMeta: meta("shop"),
		}, node, daemons, service, rs, pool, class, waiting, small, ignored, pod("bound", "node-1", "1200m"),
	}
}

// planOf returns what the plan of a live cluster prints.
func planOf(t *testing.T, c client.Client) string {
	t.Helper()
	s, err := cluster.NewState(cluster.Config{
		Cache: c, Live: c, Types: stall{}, Now: enginetest.Now, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()},
	}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return printed(t, planner.Report{Plan: schedule.Solve(s, schedule.Budget{})})
}

func printed(t *testing.T, r planner.Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func dump(t *testing.T) (client.Client, string) {
	t.Helper()
	c := apitest.New(t, enginetest.Now, liveWorld()...)
	var out bytes.Buffer
	if err := manifest.Dump(t.Context(), c, enginetest.Now(), &out); err != nil {
		t.Fatal(err)
	}
	return c, out.String()
}

func TestSnapshotReplaysThePlanOfTheCluster(t *testing.T) {
	c, text := dump(t)
	w, err := manifest.Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !w.Now.Equal(enginetest.Now()) {
		t.Errorf("the snapshot is of %v, want %v", w.Now, enginetest.Now())
	}
	s, _, err := planner.BuildSnapshot(w, planner.Config{Catalog: stall{}})
	if err != nil {
		t.Fatal(err)
	}
	replayed, live := printed(t, planner.Report{Plan: schedule.Solve(s, schedule.Budget{})}), planOf(t, c)
	if replayed != live {
		t.Errorf("replayed:\n%s\nlive:\n%s", replayed, live)
	}
	for _, want := range []string{"shop/waiting", "shop/small", `"node": "node-1"`, `"nodePool": "general"`} {
		if !strings.Contains(live, want) {
			t.Errorf("the plan does not mention %s:\n%s", want, live)
		}
	}
	if strings.Contains(live, "not-looked-at-yet") {
		t.Errorf("a pod that the scheduler has not seen is planned:\n%s", live)
	}
}

func TestSnapshotKeepsSecretsBack(t *testing.T) {
	_, text := dump(t)
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, secret) || strings.Contains(line, "managedFields") {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
}

func TestNewWorkloadsBesideASnapshot(t *testing.T) {
	_, text := dump(t)
	now := filepath.Join(t.TempDir(), "now.yaml")
	if err := os.WriteFile(now, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := manifest.Read([]string{now, "-"}, strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}}"))
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := planner.BuildSnapshot(w, planner.Config{Catalog: stall{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range s.Pods {
		got = append(got, p.Name)
	}
	if strings.Join(got, " ") != "new small waiting" {
		t.Errorf("pods to plan: %v, want those of the cluster that wait, and the new one", got)
	}
}

// What a snapshot of a cluster holds is enough to report which pods an edited Deployment replaces.
func TestEditedDeploymentBesideASnapshotOfAClusterReplacesItsPods(t *testing.T) {
	template := func(cpu string) corev1.PodTemplateSpec {
		t := corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: "7f9"}},
		}
		t.Spec.Containers = []corev1.Container{
			{
				Name:      "c",
				Image:     "web",
				Env:       []corev1.EnvVar{{Name: "PASSWORD", Value: secret}},
				Resources: corev1.ResourceRequirements{Requests: enginetest.Resources("cpu", cpu)},
			},
		}
		return t
	}
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "u", Controller: new(true)}}
	}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-7f9", OwnerReferences: owned("Deployment", "web")},
	}
	rs.Spec.Template, rs.Spec.Replicas, rs.Spec.Selector = template(
		"1",
	), new(
		int32(2),
	), &metav1.LabelSelector{
		MatchLabels: map[string]string{"app": "web"},
	}
	objects := append(liveWorld(), rs)
	for _, name := range []string{"web-7f9-a", "web-7f9-b"} {
		pod := &corev1.Pod{ObjectMeta: template("1").ObjectMeta, Spec: template("1").Spec}
		pod.Namespace, pod.Name, pod.OwnerReferences, pod.Status.Phase = "shop", name, owned("ReplicaSet", "web-7f9"), corev1.PodRunning
		pod.Spec.NodeName = "node-1"
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "injected"})
		objects = append(objects, pod)
	}
	var out bytes.Buffer
	if err := manifest.Dump(t.Context(), apitest.New(t, enginetest.Now, objects...), enginetest.Now(), &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secret) {
		t.Error("the snapshot holds what is secret")
	}
	now := filepath.Join(t.TempDir(), "now.yaml")
	if err := os.WriteFile(now, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, cpu, want string }{{"as it is", "1", ""}, {"another request", "2", "2"}} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := manifest.Read(
				[]string{now, "-"},
				strings.NewReader("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, "+
					"template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: web, resources: {requests: {cpu: "+tt.cpu+"}}}]}}}}"),
			)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range w.Changes {
				got += strconv.Itoa(c.Replaced)
			}
			if got != tt.want {
				t.Errorf("replaced %q, want %q: %+v", got, tt.want, w.Changes)
			}
		})
	}
}
