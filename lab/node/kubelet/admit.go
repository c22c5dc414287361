package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// admit decides whether a pod that is new to the node may run on it. A pod that does not fit beside
// those already admitted fails at once, which happens when two schedulers, or a scheduler and a hand,
// gave the same room away. It reports whether the pod was admitted.
func (p *pods) admit(ctx context.Context, s *podState) bool {
	reason, message := p.rejection(s)
	if reason == "" {
		s.admitted = true
		return true
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.pod.UID},
		"status": corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message, StartTime: &metav1.Time{Time: time.Now()},
		},
	})
	if err != nil {
		p.logf('E', `"Failed to reject pod" err="%s" pod="%s/%s"`, oneLine(err), s.pod.Namespace, s.pod.Name)
		return false
	}
	p.logf('I', `"Failed to admit pod" pod="%s/%s" message="%s"`, s.pod.Namespace, s.pod.Name, message)
	for {
		_, err = p.cfg.Client.CoreV1().Pods(
			s.pod.Namespace,
		).Patch(
			ctx,
			s.pod.Name,
			types.StrategicMergePatchType,
			patch,
			metav1.PatchOptions{},
			"status",
		)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return false
		}
		p.logf('E', `"Failed to update status for pod" err="%s" pod="%s/%s"`, oneLine(err), s.pod.Namespace, s.pod.Name)
		if !pause(ctx, time.Second) {
			return false
		}
	}
}

// rejection names the first resource that the node has too little of, in kubelet's words.
func (p *pods) rejection(s *podState) (reason, message string) {
	used := corev1.ResourceList{}
	for _, other := range p.states {
		if other != s && other.admitted && !ended(other.pod) {
			add(used, requests(other.pod))
		}
	}
	wanted := requests(s.pod)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, taken, has := wanted[name], used[name], p.allocatable(name)
		if want.IsZero() || servedByDevices(s.pod, name) {
			continue
		}
		sum := taken.DeepCopy()
		sum.Add(want)
		if sum.Cmp(has) <= 0 {
			continue
		}
		amount := func(q resource.Quantity) int64 {
			if name == corev1.ResourceCPU {
				return q.MilliValue()
			}
			return q.Value()
		}
		return "OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, amount(want), amount(taken), amount(has))
	}
	return "", ""
}

// servedByDevices reports whether kube-scheduler has allocated devices for the pod's requests of the extended resource.
func servedByDevices(pod *corev1.Pod, name corev1.ResourceName) bool {
	served := pod.Status.ExtendedResourceClaimStatus
	return served != nil && slices.ContainsFunc(served.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ResourceName == string(name)
	})
}

func (p *pods) allocatable(name corev1.ResourceName) resource.Quantity {
	if q, ok := p.cfg.Devices[name]; ok {
		return q
	}
	return p.cfg.Allocatable[name]
}

// requests are what a pod takes from its node, itself included.
func requests(pod *corev1.Pod) corev1.ResourceList {
	out := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
