package manifest

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// taken reports whether an object comes from a snapshot of a cluster, which needs no completion.
func (r *reader) taken(kind, namespace, name string) bool {
	if r.live || !r.anyTaken {
		return r.live
	}
	o := r.objects[identity{kind, namespace, name}]
	return o != nil && o.document.taken
}

// takenPod reports whether a pod comes from a snapshot. A pod that replaces one of the snapshot may have the same name,
// as those of StatefulSets.
func (r *reader) takenPod(pod *corev1.Pod) bool {
	if r.live || !r.anyTaken {
		return r.live
	}
	o := r.objects[identity{"Pod", pod.Namespace, pod.Name}]
	return o != nil && o.document.taken && o.Object == client.Object(pod)
}

// completeNodes completes Nodes like the API server, and makes missing NodeClaims for the Nodes of NodePools: without a
// claim a Node would take no pods and count against no limit.
func (r *reader) completeNodes() {
	claimed := map[string]bool{}
	for _, claim := range r.world.NodeClaims {
		claimed[claim.Status.ProviderID] = true
	}
	for _, node := range r.world.Nodes {
		if r.taken("Node", "", node.Name) {
			continue
		}
		if len(node.Status.Allocatable) == 0 {
			node.Status.Allocatable = node.Status.Capacity
		}
		if node.Labels[corev1.LabelHostname] == "" {
			node.Labels = with(node.Labels, corev1.LabelHostname, node.Name)
		}
		if node.Labels[karpv1.LabelNodePool] == "" || claimed[node.Spec.ProviderID] && node.Spec.ProviderID != "" {
			continue
		}
		if node.Spec.ProviderID == "" {
			node.Spec.ProviderID = "manifest:///" + node.Name
		}
		node.Labels = with(with(node.Labels, karpv1.LabelRegistered, "true"), karpv1.LabelInitialized, "true")
		r.world.NodeClaims = append(r.world.NodeClaims, claimFor(node))
	}
}

func with(labels map[string]string, key, value string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

// claimFor returns the NodeClaim that an initialized node would have.
func claimFor(node *corev1.Node) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = node.Name, madeUID("NodeClaim", "", node.Name)
	claim.Labels, claim.CreationTimestamp = node.Labels, node.CreationTimestamp
	claim.Status.NodeName, claim.Status.ProviderID = node.Name, node.Spec.ProviderID
	claim.Status.Capacity, claim.Status.Allocatable = node.Status.Capacity, node.Status.Allocatable
	var conditions []metav1.Condition
	for _, c := range []string{
		karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized, condition.Ready, karpv1.ConditionConsolidatable,
	} {
		conditions = append(conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c})
	}
	claim.SetConditions(conditions)
	return claim
}

// completeVolumes gives claims without a class the newest default class, and makes the claims of ephemeral volumes.
func (r *reader) completeVolumes() {
	for _, pod := range r.world.Pods {
		if r.takenPod(pod) {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
				continue
			}
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: *v.Ephemeral.VolumeClaimTemplate.ObjectMeta.DeepCopy(),
				Spec:       *v.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy(),
			}
			claim.Namespace, claim.Name = pod.Namespace, pod.Name+"-"+v.Name
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			r.addClaim(claim)
		}
	}
	for _, class := range r.world.StorageClasses {
		if class.VolumeBindingMode == nil {
			immediate := storagev1.VolumeBindingImmediate
			class.VolumeBindingMode = &immediate
		}
	}
	standard := defaultClass(r.world.StorageClasses)
	for _, claim := range r.world.PersistentVolumeClaims {
		if claim.Spec.StorageClassName == nil && standard != "" && !r.taken("PersistentVolumeClaim", claim.Namespace, claim.Name) {
			claim.Spec.StorageClassName = &standard
		}
	}
}

// defaultClass returns the name of the default storage class: the newest, on a tie the first by name; empty if there is
// none.
func defaultClass(classes []*storagev1.StorageClass) string {
	var marked []*storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			marked = append(marked, class)
		}
	}
	if len(marked) == 0 {
		return ""
	}
	return slices.MinFunc(marked, func(a, b *storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}

// completePods completes pods like the scheduler: a pod without a node is marked unschedulable.
func (r *reader) completePods() {
	nodes := map[string]bool{}
	for _, node := range r.world.Nodes {
		nodes[node.Name] = true
	}
	gated, preempting := 0, 0
	var orphans []*corev1.Pod
	for _, pod := range r.world.Pods {
		if pod.Spec.NodeName != "" && !nodes[pod.Spec.NodeName] && !snapshot.Terminal(pod) {
			orphans = append(orphans, pod)
		}
		if r.takenPod(pod) {
			continue
		}
		pod.Status.Phase = cmp.Or(pod.Status.Phase, corev1.PodPending)
		switch {
		case pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending:
		case len(pod.Spec.SchedulingGates) > 0:
			gated++
		case pod.Status.NominatedNodeName != "" && nodes[pod.Status.NominatedNodeName]:
			preempting++
		default:
			markUnschedulable(pod)
		}
	}
	for _, left := range []struct {
		pods int
		why  string
	}{
		{gated, "held back by scheduling gates"},
		{preempting, "about to preempt others (status.nominatedNodeName)"},
	} {
		if left.pods > 0 {
			r.note("pods %s: %d left out", left.why, left.pods)
		}
	}
	if len(orphans) > 0 {
		r.note(
			"pods bound to nodes that are not among the inputs: %d left out, the first of them %s/%s on node %s; to count them, add the nodes (kubectl get nodes -o yaml)",
			len(orphans),
			orphans[0].Namespace,
			orphans[0].Name,
			orphans[0].Spec.NodeName,
		)
	}
}

// markUnschedulable marks a pod as the scheduler does when it finds no node. Pods may share their conditions, so it
// changes a copy.
func markUnschedulable(pod *corev1.Pod) {
	mark := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}
	if slices.Equal(pod.Status.Conditions, []corev1.PodCondition{mark}) {
		return
	}
	others := slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	pod.Status.Conditions = append(others, mark)
}

// completeNamespaces makes the namespaces of the pods, with the label of their name.
func (r *reader) completeNamespaces() {
	known := map[string]bool{}
	for _, namespace := range r.world.Namespaces {
		known[namespace.Name] = true
		if namespace.Labels[corev1.LabelMetadataName] != namespace.Name {
			namespace.Labels = with(namespace.Labels, corev1.LabelMetadataName, namespace.Name)
		}
	}
	for _, pod := range r.world.Pods {
		if !known[pod.Namespace] {
			known[pod.Namespace] = true
			r.world.Namespaces = append(r.world.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: pod.Namespace, Labels: map[string]string{corev1.LabelMetadataName: pod.Namespace},
			}})
		}
	}
}
