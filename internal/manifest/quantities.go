package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// negative finds a quantity below zero, which the API server refuses: in what a pod or the pods of a template ask for,
// or in what a node has. The path is empty if there is none.
func negative(o client.Object) string {
	const template = "spec.template.spec"
	switch t := o.(type) {
	case *corev1.Pod:
		return negativeRequest("spec", &t.Spec)
	case *corev1.ReplicationController:
		if t.Spec.Template != nil {
			return negativeRequest(template, &t.Spec.Template.Spec)
		}
	case *appsv1.Deployment:
		return negativeRequest(template, &t.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		return negativeRequest(template, &t.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		return negativeRequest(template, &t.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		return negativeRequest(template, &t.Spec.Template.Spec)
	case *batchv1.Job:
		return negativeRequest(template, &t.Spec.Template.Spec)
	case *corev1.Node:
		return cmp.Or(negativeIn("status.capacity", t.Status.Capacity), negativeIn("status.allocatable", t.Status.Allocatable))
	}
	return ""
}

func negativeRequest(path string, spec *corev1.PodSpec) string {
	found := []string{negativeIn(path+".overhead", spec.Overhead)}
	if spec.Resources != nil {
		found = append(found, negativeIn(path+".resources.requests", spec.Resources.Requests), negativeIn(path+".resources.limits", spec.Resources.Limits))
	}
	for _, of := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i, c := range of.containers {
			at := fmt.Sprintf("%s.%s[%d].resources", path, of.field, i)
			found = append(found, negativeIn(at+".requests", c.Resources.Requests), negativeIn(at+".limits", c.Resources.Limits))
		}
	}
	return cmp.Or(found...)
}

func negativeIn(path string, list corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Sign() < 0 {
			return path + "." + string(name)
		}
	}
	return ""
}
