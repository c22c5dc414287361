package podreport

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// owned is a pod of an owner, such as "ReplicaSet web-7c9"; with a node if there is one.
func owned(name, owner, node string, phase corev1.PodPhase) *corev1.Pod {
	kind, of, _ := strings.Cut(owner, " ")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{}}}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of, UID: types.UID(of), Controller: new(true)}}
	if kind == "ReplicaSet" {
		pod.Labels["pod-template-hash"] = of[strings.LastIndex(of, "-")+1:]
	}
	pod.Spec.NodeName, pod.Status.Phase = node, phase
	return pod
}

// The name of a workload stands for one of its pods: a pending one, if there is any.
func TestTheNameOfAWorkloadStandsForOneOfItsPods(t *testing.T) {
	view := &inspect.View{ClusterState: &manifest.ClusterState{}}
	view.Pods = []*corev1.Pod{
		owned("web-7c9-a", "ReplicaSet web-7c9", "n1", corev1.PodRunning),
		owned("web-7c9-c", "ReplicaSet web-7c9", "", corev1.PodPending),
		owned("web-7c9-b", "ReplicaSet web-7c9", "", corev1.PodPending),
		owned("web-admin-5d5-a", "ReplicaSet web-admin-5d5", "", corev1.PodPending),
		owned("db-1", "StatefulSet db", "n1", corev1.PodRunning),
		owned("db-0", "StatefulSet db", "n1", corev1.PodRunning),
		owned("agent-x", "DaemonSet agent", "n1", corev1.PodRunning),
		owned("night-29000001-a", "Job night-29000001", "n1", corev1.PodSucceeded),
		owned("night-29000002-a", "Job night-29000002", "n1", corev1.PodRunning),
		owned("night-once-a", "Job night-once", "n1", corev1.PodRunning),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone"}},
	}
	view.ReplicaSets = []*appsv1.ReplicaSet{}
	view.DaemonSets = []*appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy"}}}
	_, err := Explain(view, types.NamespacedName{Namespace: "kube-system", Name: "proxy"})
	if err == nil || !strings.Contains(err.Error(), "kube-system/proxy is a DaemonSet") {
		t.Errorf("a DaemonSet without pods: %v", err)
	}
	for name, want := range map[string]string{
		"shop/web":            "shop/web is a Deployment with 3 pods: this is shop/web-7c9-b; also pending: shop/web-7c9-c",
		"shop/web-7c9":        "shop/web-7c9 is a ReplicaSet with 3 pods: this is shop/web-7c9-b; also pending: shop/web-7c9-c",
		"shop/db":             "shop/db is a StatefulSet with 2 pods: this is shop/db-0",
		"shop/agent":          "shop/agent is a DaemonSet with 1 pod: this is shop/agent-x",
		"shop/night":          "shop/night is a CronJob with 2 pods: this is shop/night-29000002-a",
		"shop/night-29000001": "shop/night-29000001 is a Job with 1 pod: this is shop/night-29000001-a",
		"bank/web":            "",
		"shop/we":             "",
		"shop/alon":           "",
	} {
		namespace, short, _ := strings.Cut(name, "/")
		pod, got := podOfWorkload(view, types.NamespacedName{Namespace: namespace, Name: short})
		if got != want || (pod == nil) != (want == "") || pod != nil && !strings.Contains(want, key(pod)) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
