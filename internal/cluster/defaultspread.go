package cluster

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Owners are the objects with selectors over pods. A default spread constraint counts the pods that they select.
type Owners struct {
	Services               []*corev1.Service
	ReplicationControllers []*corev1.ReplicationController
	ReplicaSets            []*appsv1.ReplicaSet
	StatefulSets           []*appsv1.StatefulSet
}

// applyDefaultSpread adds the default spread constraints to copies of pods without constraints, as the scheduler does.
// It skips pods without a Service or controller, since no selector defines which pods to count.
func (w *snapshotBuilder) applyDefaultSpread() {
	if len(w.facts.Settings.DefaultSpread) == 0 {
		return
	}
	services := map[string][]*corev1.Service{}
	for _, s := range w.Services {
		services[s.Namespace] = append(services[s.Namespace], s)
	}
	controllers := w.controllers()
	for i, pod := range w.snap.Pods {
		if len(pod.Spec.TopologySpreadConstraints) > 0 {
			continue
		}
		selector := defaultSelector(pod, services[pod.Namespace], controllers)
		if selector == nil {
			continue
		}
		spread := pod.DeepCopy()
		for _, c := range w.facts.Settings.DefaultSpread {
			c.LabelSelector = selector
			spread.Spec.TopologySpreadConstraints = append(spread.Spec.TopologySpreadConstraints, c)
		}
		w.snap.Pods[i] = spread
		w.replacePod(pod, spread)
	}
}

// replacePod puts the copy of a pod in the pod's place, if the pod is on a node that it must leave.
func (w *snapshotBuilder) replacePod(pod, by *corev1.Pod) {
	at, known := w.byNode[pod.Spec.NodeName]
	if pod.Spec.NodeName == "" || !known {
		return
	}
	if i := slices.Index(w.snap.Nodes[at].Pods, pod); i >= 0 {
		w.snap.Nodes[at].Pods[i] = by
	}
}

// ownerKey identifies a controller by a pod's owner reference.
type ownerKey struct{ namespace, apiVersion, kind, name string }

// controllers maps controllers to their selectors.
func (w *snapshotBuilder) controllers() map[ownerKey]*metav1.LabelSelector {
	out := map[ownerKey]*metav1.LabelSelector{}
	for _, c := range w.ReplicationControllers {
		out[ownerKey{c.Namespace, "v1", "ReplicationController", c.Name}] = &metav1.LabelSelector{MatchLabels: c.Spec.Selector}
	}
	for _, c := range w.ReplicaSets {
		out[ownerKey{c.Namespace, "apps/v1", "ReplicaSet", c.Name}] = c.Spec.Selector
	}
	for _, c := range w.StatefulSets {
		out[ownerKey{c.Namespace, "apps/v1", "StatefulSet", c.Name}] = c.Spec.Selector
	}
	return out
}

// defaultSelector joins the selectors of the Services that select the pod and of its controller; nil if there are none.
func defaultSelector(pod *corev1.Pod, services []*corev1.Service, controllers map[ownerKey]*metav1.LabelSelector) *metav1.LabelSelector {
	out := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, s := range services {
		if s.Spec.Selector != nil && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			maps.Copy(out.MatchLabels, s.Spec.Selector)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		if selector := controllers[ownerKey{pod.Namespace, owner.APIVersion, owner.Kind, owner.Name}]; selector != nil {
			maps.Copy(out.MatchLabels, selector.MatchLabels)
			out.MatchExpressions = selector.MatchExpressions
		}
	}
	if len(out.MatchLabels)+len(out.MatchExpressions) == 0 {
		return nil
	}
	return out
}

// readOwners reads Services and controllers, but only if there are default spread constraints: nothing else needs them.
func (s *State) readOwners(ctx context.Context, o *Objects) error {
	if len(s.cfg.Settings.DefaultSpread) == 0 {
		return nil
	}
	var services corev1.ServiceList
	if err := s.listCached(ctx, &services); err != nil {
		return err
	}
	var replicationControllers corev1.ReplicationControllerList
	if err := s.listCached(ctx, &replicationControllers); err != nil {
		return err
	}
	var replicaSets appsv1.ReplicaSetList
	if err := s.listCached(ctx, &replicaSets); err != nil {
		return err
	}
	var statefulSets appsv1.StatefulSetList
	if err := s.listCached(ctx, &statefulSets); err != nil {
		return err
	}
	o.Services, o.ReplicationControllers = pointers(services.Items), pointers(replicationControllers.Items)
	o.ReplicaSets, o.StatefulSets = pointers(replicaSets.Items), pointers(statefulSets.Items)
	return nil
}
