package cluster_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A pod that was resized in place is made again from its owner's template, wherever it goes.
func TestResizedPodsComeBackWithTheSizeOfTheirTemplate(t *testing.T) {
	sized := func(cpu string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: room(cpu, "1Gi")}}}}
	}
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: podOf("p").Namespace, Name: "rs", UID: "rs"}}
	replicaSet.Spec.Template.Spec = sized("3")
	pod := func(cpu string, generation int64) *corev1.Pod {
		return boundPod("p", "node-a", ownedBy("ReplicaSet", "rs"), func(p *corev1.Pod) {
			p.OwnerReferences[0].Name, p.Generation = "rs", generation
			p.Spec.Containers = sized(cpu).Containers
		})
	}
	for _, tt := range []struct {
		name    string
		objects []client.Object
		want    string
	}{
		{"to less", []client.Object{pod("1", 2), replicaSet}, "3"},
		{"to more", []client.Object{pod("5", 2), replicaSet}, "0"},
		{"never", []client.Object{pod("1", 1), replicaSet}, "0"},
		{"its owner is gone", []client.Object{pod("1", 2)}, "0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t, append(copies(tt.objects), nodeOf("node-a", "i-9"))...).snapshot(t)
			var recreated corev1.ResourceList
			for _, recreated = range s.Recreated {
			}
			if got := recreated.Cpu().String(); got != tt.want {
				t.Errorf("once it is made again its larger request of cpu is %s, want %s", got, tt.want)
			}
			for i := range s.Nodes {
				for _, p := range s.Nodes[i].Pods {
					requests, now := snapshot.Requests(p), p.Spec.Containers[0].Resources.Requests
					if requests.Cpu().Cmp(*now.Cpu()) != 0 {
						t.Errorf("on its node it takes %s of cpu, want %s", requests.Cpu(), now.Cpu())
					}
				}
			}
		})
	}
}

// Until a DaemonSet has a pod, its template counts with what the API server and its controller add.
func TestDaemonsWithoutAPodCountWithWhatIsAddedToThem(t *testing.T) {
	kata := "kata"
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent", UID: "ds"}}
	set.Spec.Template.Spec = corev1.PodSpec{
		RuntimeClassName: &kata, HostNetwork: true, Containers: []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{ContainerPort: 9100}}}},
	}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "defaults"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: room("1", "1Gi")}},
	}}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: kata}, Handler: kata, Overhead: &nodev1.Overhead{
		PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
	}, Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"kata": "yes"}}}
	s := newTestCluster(t, copies([]client.Object{set, limits, class})...).snapshot(t)
	if len(s.DaemonSets) != 1 {
		t.Fatalf("%d daemon sets", len(s.DaemonSets))
	}
	pod := s.DaemonSets[0].Pod
	requests := snapshot.Requests(pod)
	if cpu, memory := requests.Cpu().String(), requests.Memory().String(); cpu != "1250m" || memory != "1Gi" {
		t.Errorf("cpu %s, memory %s; want 1250m, 1Gi", cpu, memory)
	}
	if pod.Spec.NodeSelector["kata"] != "yes" || pod.Spec.Containers[0].Ports[0].HostPort != 9100 {
		t.Errorf("node selector %v, ports %v", pod.Spec.NodeSelector, pod.Spec.Containers[0].Ports)
	}
	class.Scheduling.NodeSelector["kata"] = "no"
	set.Spec.Template.Spec.NodeSelector = map[string]string{"kata": "yes"}
	if s := newTestCluster(t, copies([]client.Object{set, limits, class})...).snapshot(t); len(s.DaemonSets) != 0 {
		t.Error("a DaemonSet whose pods the API server rejects counts")
	}
}
