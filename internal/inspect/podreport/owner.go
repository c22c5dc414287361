package podreport

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// workload describes what makes a pod, and so where a change of the pod belongs.
type workload struct {
	Object
	// prefix is the path of the pod's template in it; empty for a pod of its own.
	prefix string
	// action is Recreate if the API server lets no template of the kind change.
	action Action
	// pods are all of its pods that have not finished. The change is for all of them.
	pods []*corev1.Pod
}

// workloadOf finds the workload of a pod. A change of the workload changes all its pods, as its controller would.
func workloadOf(view *inspect.View, pod *corev1.Pod) workload {
	owner := metav1.GetControllerOf(pod)
	if owner == nil { // nearly nothing of a pod's spec can change in place
		return workload{Object: Object{"Pod", pod.Namespace, pod.Name}, action: Recreate, pods: []*corev1.Pod{pod}}
	}
	w := workload{Object: Object{owner.Kind, pod.Namespace, owner.Name}, prefix: "/spec/template", action: Patch}
	switch owner.Kind {
	case "ReplicaSet":
		w.Name, w.Kind = deployment(view, pod, owner)
	case "Job":
		w.action = Recreate
	}
	for _, p := range view.Pods {
		if o := metav1.GetControllerOf(p); o != nil && o.UID == owner.UID && p.Namespace == pod.Namespace &&
			p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			w.pods = append(w.pods, p)
		}
	}
	return w
}

// deployment is the Deployment of a pod's ReplicaSet, or the ReplicaSet if it has none. A ReplicaSet of a Deployment has the
// label pod-template-hash, and the Deployment's name with that hash.
func deployment(view *inspect.View, pod *corev1.Pod, owner *metav1.OwnerReference) (name, kind string) {
	for _, rs := range view.ReplicaSets {
		if rs.UID != owner.UID || owner.UID == types.UID("") {
			continue
		}
		if up := metav1.GetControllerOf(rs); up != nil {
			return up.Name, up.Kind
		}
	}
	hash := pod.Labels["pod-template-hash"]
	if hash == "" {
		return owner.Name, owner.Kind
	}
	if cut := len(owner.Name) - len(hash) - 1; cut > 0 && owner.Name[cut:] == "-"+hash {
		return owner.Name[:cut], "Deployment"
	}
	return owner.Name, "Deployment" // files of a Deployment name its ReplicaSet like it
}
