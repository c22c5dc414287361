// Package buffer computes CapacityBuffers: how many chunks one has, the virtual pods that reserve their room, and
// where these fit.
//
// A virtual pod exists in plans only. It is scheduled after all real pods, on the room that they leave free, and what
// is launched for it is launched in addition to what they need.
package buffer

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// MaxChunks is the largest number of virtual pods of one buffer: it keeps a typo in a buffer from making every plan
// slow.
const MaxChunks = 10_000

// Chunks returns how many pods like template the buffer reserves room for. scalable are the replicas of the workload that
// the template belongs to, nil if there is none.
//
// The larger of spec.replicas and spec.percentage counts, up to spec.limits; with neither, the limits alone decide,
// and without limits nothing is reserved.
func Chunks(spec *bufferv1.CapacityBufferSpec, template *corev1.PodTemplateSpec, scalable *int32) int32 {
	wanted, given := int64(0), false
	if spec.Replicas != nil {
		wanted, given = int64(*spec.Replicas), true
	}
	if spec.Percentage != nil && scalable != nil {
		share := int64(*scalable) * int64(*spec.Percentage)
		wanted, given = max(wanted, (share+99)/100), true
	}
	allowed, bounded := podsWithinLimits(spec.Limits, template)
	switch {
	case given && bounded:
		wanted = min(wanted, allowed)
	case bounded:
		wanted = allowed
	}
	return int32(min(max(wanted, 0), math.MaxInt32))
}

// podsWithinLimits returns how many pods the limits allow; false if the limits name nothing that the pods request.
func podsWithinLimits(limits corev1.ResourceList, template *corev1.PodTemplateSpec) (allowed int64, bounded bool) {
	allowed = math.MaxInt64
	requests := snapshot.Requests(&corev1.Pod{Spec: virtualSpec(template)})
	for name, limit := range limits {
		if each := quantity.Milli(requests[name]); each > 0 {
			allowed, bounded = min(allowed, max(0, quantity.Milli(limit))/each), true
		}
	}
	return allowed, bounded
}

// Pods are the virtual pods of a buffer with n chunks. They share all but their metadata.
func Pods(b *bufferv1.CapacityBuffer, template *corev1.PodTemplateSpec, n int32) []*corev1.Pod {
	annotations := map[string]string{}
	maps.Copy(annotations, template.Annotations)
	annotations[karpv1.AnnotationCapacityBufferFakePod] = "true"
	annotations[karpv1.AnnotationCapacityBufferName] = b.Name
	annotations[karpv1.AnnotationCapacityBufferNamespace] = b.Namespace
	spec := virtualSpec(template)
	out := make([]*corev1.Pod, 0, min(n, MaxChunks))
	for i := range min(n, MaxChunks) {
		out = append(out, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: b.Namespace, Name: fmt.Sprintf("capacity-buffer-%s-%d", b.Name, i+1), UID: types.UID(fmt.Sprintf("%s-%d", b.UID, i+1)),
				CreationTimestamp: b.CreationTimestamp, Labels: template.Labels, Annotations: annotations,
			},
			Spec: spec,
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			}}},
		})
	}
	return out
}

// virtualSpec is the template's spec as a pod that only reserves room: of lowest priority, unscheduled, and without
// volumes that would have to be provisioned.
func virtualSpec(template *corev1.PodTemplateSpec) corev1.PodSpec {
	spec := *template.Spec.DeepCopy()
	snapshot.RequestLimits(&spec)
	lowest := int32(math.MinInt32)
	spec.NodeName, spec.Priority, spec.PriorityClassName = "", &lowest, ""
	dropped := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		dropped[v.Name] = v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		return dropped[v.Name]
	})
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return dropped[m.Name] })
			c.VolumeDevices = slices.DeleteFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return dropped[d.Name] })
		}
	}
	return spec
}

// BufferOf is the buffer of a virtual pod.
func BufferOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{
		Namespace: p.Annotations[karpv1.AnnotationCapacityBufferNamespace], Name: p.Annotations[karpv1.AnnotationCapacityBufferName],
	}
}
