// Package reduced drops from cached objects what no controller reads: environments, commands, probes, images of nodes and the
// like. A pod with two containers, 8 KiB as JSON, takes 9 KB of heap instead of 17, and 1.8 KB beside other pods of its owner
// (BenchmarkHeapPerPod).
//
// Reduced objects must never be written as a whole. All writes are patches of what changed, computed between two copies of the
// reduced object, so they do not touch what is dropped.
package reduced

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Transform reduces an object before it enters a cache. It changes the object in place, and returns it. Other values, such as the
// tombstones of deleted objects, pass unchanged. It never returns an error; its form is that of cache.TransformFunc of client-go.
//
// Cost: linear in the number of containers and volumes.
func Transform(o any) (any, error) {
	object, is := o.(metav1.Object)
	if !is {
		return o, nil
	}
	reduceMeta(object)
	switch t := o.(type) {
	case *corev1.Pod:
		reduceSpec(&t.Spec)
		reduceStatus(&t.Status)
	case *corev1.Node:
		t.Status.Images = nil
	case *appsv1.DaemonSet:
		reduceTemplate(&t.Spec.Template)
	case *appsv1.ReplicaSet:
		reduceTemplate(&t.Spec.Template)
	case *appsv1.StatefulSet:
		reduceTemplate(&t.Spec.Template)
	case *appsv1.Deployment:
		reduceTemplate(&t.Spec.Template)
	case *corev1.ReplicationController:
		if t.Spec.Template != nil {
			reduceTemplate(t.Spec.Template)
		}
	}
	return o, nil
}

func reduceTemplate(t *corev1.PodTemplateSpec) {
	reduceMeta(&t.ObjectMeta)
	reduceSpec(&t.Spec)
}

// reduceMeta drops who set which field, and the copy of the object that kubectl apply keeps on it.
func reduceMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	if _, has := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; !has {
		return
	}
	kept := maps.Clone(o.GetAnnotations())
	delete(kept, corev1.LastAppliedConfigAnnotation)
	o.SetAnnotations(kept)
}

// reduceSpec keeps what scheduling, draining and the doctor read.
func reduceSpec(s *corev1.PodSpec) {
	s.Containers, s.InitContainers = containers(s.Containers), containers(s.InitContainers)
	s.EphemeralContainers, s.ImagePullSecrets, s.DNSConfig, s.HostAliases, s.SecurityContext = nil, nil, nil, nil, nil
	var kept []corev1.Volume
	for _, v := range s.Volumes {
		v.ConfigMap, v.Secret, v.Projected, v.DownwardAPI = nil, nil, nil, nil
		if v.VolumeSource != (corev1.VolumeSource{}) {
			kept = append(kept, v)
		}
	}
	s.Volumes, s.Tolerations = exact(kept), exact(s.Tolerations)
}

// containers are in a slice of their own: the decoder's has room for more, and a container is 700 bytes.
func containers(list []corev1.Container) []corev1.Container {
	if len(list) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(list))
	for i := range list {
		c := &list[i]
		out[i] = corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules, VolumeMounts: mountsWithOptions(c.VolumeMounts),
		}
	}
	return out
}

// mountsWithOptions are the mounts for which a node needs a feature that its kubelet declares.
func mountsWithOptions(list []corev1.VolumeMount) (out []corev1.VolumeMount) {
	for i := range list {
		if len(list[i].BindMountOptions) > 0 {
			out = append(out, list[i])
		}
	}
	return out
}

func reduceStatus(s *corev1.PodStatus) {
	s.ContainerStatuses, s.InitContainerStatuses = statuses(s.ContainerStatuses), statuses(s.InitContainerStatuses)
	s.EphemeralContainerStatuses = nil
	s.HostIP, s.HostIPs, s.PodIP, s.PodIPs, s.QOSClass = "", nil, "", nil, ""
	s.Conditions = conditions(s.Conditions)
}

// conditions leaves out those that are true of every pod that runs, and state nothing that Ready does not.
func conditions(list []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for i := range list {
		switch c := &list[i]; {
		case c.Status != corev1.ConditionTrue, c.Message != "",
			c.Type != corev1.PodInitialized && c.Type != corev1.ContainersReady && c.Type != corev1.PodReadyToStartContainers:
			out = append(out, *c)
		}
	}
	return exact(out)
}

func statuses(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(list) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(list))
	for i := range list {
		c := &list[i]
		out[i] = corev1.ContainerStatus{
			Name: c.Name, Ready: c.Ready, State: times(c.State), AllocatedResources: c.AllocatedResources, Resources: c.Resources,
			RestartCount: c.RestartCount, LastTerminationState: times(c.LastTerminationState),
		}
	}
	return out
}

// exact is a copy without room for more.
func exact[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// times keeps of the state of a container when it finished, and why it waits unless it is starting.
func times(s corev1.ContainerState) (out corev1.ContainerState) {
	if s.Waiting != nil && s.Waiting.Reason != "ContainerCreating" && s.Waiting.Reason != "PodInitializing" {
		out.Waiting = &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason}
	}
	if s.Terminated != nil {
		out.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: s.Terminated.ExitCode, StartedAt: s.Terminated.StartedAt, FinishedAt: s.Terminated.FinishedAt,
		}
	}
	return out
}
