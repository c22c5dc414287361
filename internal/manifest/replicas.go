package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Deployment is a Deployment by its pods.
type Deployment struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods counts its pods that run or are pending.
	Pods int `json:"pods"`
}

// UnknownDeploymentError is the error of a Deployment that the cluster does not have. One without replicas counts as such where its
// ReplicaSet is not known: what its pods request is then in no object.
type UnknownDeploymentError struct{ types.NamespacedName }

// Error implements error.
func (e *UnknownDeploymentError) Error() string {
	return fmt.Sprintf("there is no Deployment %s with pods", e.NamespacedName)
}

// deployed is what is known of a Deployment.
type deployed struct {
	// sets are its ReplicaSets, pods its live pods.
	sets []*appsv1.ReplicaSet
	pods []*corev1.Pod
}

// deployments finds the Deployments of the cluster. Their pods and ReplicaSets are those with the label
// pod-template-hash, which only they give.
//
// Cost: O(pods).
func (s *ClusterState) deployments() map[types.NamespacedName]*deployed {
	out := map[types.NamespacedName]*deployed{}
	of := func(namespace, set, hash string) *deployed {
		name := types.NamespacedName{Namespace: namespace, Name: strings.TrimSuffix(set, "-"+hash)}
		if out[name] == nil {
			out[name] = &deployed{}
		}
		return out[name]
	}
	for _, set := range s.Owners.ReplicaSets {
		if set.Spec.Selector != nil && hashOf(set.Spec.Selector.MatchLabels) != "" && len(set.Spec.Template.Spec.Containers) > 0 {
			d := of(set.Namespace, set.Name, hashOf(set.Spec.Selector.MatchLabels))
			d.sets = append(d.sets, set)
		}
	}
	for _, pod := range s.Pods {
		owner, hash := metav1.GetControllerOfNoCopy(pod), hashOf(pod.Labels)
		if owner == nil || owner.Kind != "ReplicaSet" || hash == "" || pod.DeletionTimestamp != nil || snapshot.Terminal(pod) {
			continue
		}
		d := of(pod.Namespace, owner.Name, hash)
		d.pods = append(d.pods, pod)
	}
	return out
}

// Deployments lists the Deployments with known pods or a known template, by namespace and name.
func (s *ClusterState) Deployments() []Deployment {
	out := []Deployment{}
	for name, d := range s.deployments() {
		out = append(out, Deployment{name.Namespace, name.Name, len(d.pods)})
	}
	slices.SortFunc(out, func(a, b Deployment) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// WithReplicas returns the cluster state in which a Deployment has another number of pods: of its pods those stay that its controller
// removes last, and new ones are as its newest. Other objects stay, and the states share them. The error is an UnknownDeploymentError for a
// Deployment that is not there.
func (s *ClusterState) WithReplicas(of types.NamespacedName, replicas int) (*ClusterState, error) {
	d := s.deployments()[of]
	if d == nil {
		return nil, &UnknownDeploymentError{of}
	}
	next := *s
	gone := map[*corev1.Pod]bool{}
	w := d.workload(replicas)
	for pod, wanted := range w.wanted(d.pods, nil) {
		gone[pod] = !wanted
	}
	next.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool { return gone[p] })
	made, err := next.made(w, replicas-len(d.pods))
	if err != nil {
		return nil, err
	}
	next.Pods = append(next.Pods, made.Pods...)
	next.PersistentVolumeClaims = append(slices.Clone(s.PersistentVolumeClaims), made.PersistentVolumeClaims...)
	if added := replicas - len(d.pods); added > 0 && snapshot.WantsDevices(&w.template.Spec) {
		next.Notes = append(slices.Clone(s.Notes), fmt.Sprintf("Deployment %s: its pods request devices by resource claims, which Kubernetes "+
			"makes for each pod: %d new ones have none here, and get no node", of, added))
	}
	next.Changes = []Change{{
		Kind: "Deployment", Name: of.String(), Was: len(d.pods), Now: replicas,
		Added: max(0, replicas-len(d.pods)), Removed: max(0, len(d.pods)-replicas),
	}}
	return &next, nil
}

// workload makes pods as the Deployment does: like its newest pod, which the API server has completed and webhooks have changed. Without a
// pod, they are of the template of its newest ReplicaSet.
func (d *deployed) workload(replicas int) *workload {
	newest := func(a, b metav1.Object) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	}
	set, hash := &appsv1.ReplicaSet{}, ""
	if len(d.pods) > 0 {
		like := slices.MaxFunc(d.pods, func(a, b *corev1.Pod) int { return newest(a, b) })
		owner := metav1.GetControllerOf(like)
		set.Namespace, set.Name, set.UID = like.Namespace, owner.Name, owner.UID
		set.Spec.Template, hash = templateLike(like), hashOf(like.Labels)
	} else {
		set = slices.MaxFunc(d.sets, func(a, b *appsv1.ReplicaSet) int { return newest(a, b) })
		hash = hashOf(set.Spec.Selector.MatchLabels)
	}
	return &workload{
		Object: set, kind: kind{"apps/v1", "ReplicaSet"}, template: &set.Spec.Template, replicas: replicas,
		labels: func(string, int) map[string]string {
			return map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
		},
	}
}

// hashOf is the hash of a template of a Deployment among labels; empty if there is none.
func hashOf(labels map[string]string) string { return labels[appsv1.DefaultDeploymentUniqueLabelKey] }

// templateLike is a template of pods like one: without its node, and without the volume claims that are its own.
func templateLike(pod *corev1.Pod) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(pod.Labels), Annotations: maps.Clone(pod.Annotations)}, Spec: *pod.Spec.DeepCopy(),
	}
	out.Spec.NodeName, out.Spec.SchedulingGates = "", nil
	return out
}

// made returns the state with new pods of a workload alone, completed as the API server would, and their volume claims.
func (s *ClusterState) made(w *workload, count int) (*ClusterState, error) {
	alone := *s
	alone.Pods, alone.PersistentVolumeClaims = nil, nil
	if count <= 0 {
		return &alone, nil
	}
	taken := podNames{}
	for _, p := range s.Pods {
		taken[p.Namespace+"/"+p.Name] = true
	}
	ordinal := 0
	for range count {
		ordinal = taken.free(w, ordinal)
		pod := w.pod(ordinal)
		pod.CreationTimestamp = metav1.NewTime(s.Now)
		alone.Pods = append(alone.Pods, pod)
	}
	r := &reader{world: &alone, objects: map[identity]*object{}}
	r.completeVolumes()
	r.completePods()
	rules := r.rules()
	for _, pod := range alone.Pods {
		if err := rules.Complete(pod.Namespace, &pod.Spec); err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return &alone, nil
}
