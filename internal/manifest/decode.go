package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
)

// kind is an API kind as it appears in manifests.
type kind struct{ apiVersion, kind string }

// clusterWide are the kinds without a namespace.
var clusterWide = []string{
	"Node", "CSINode", "CSIDriver", "VolumeAttachment", "NodePool", "NodeClaim", "EC2NodeClass", "PersistentVolume", "StorageClass",
	"Namespace", "PriorityClass", "RuntimeClass", "DeviceClass", "ResourceSlice",
	"DeviceTaintRule", "NodeOverlay",
}

// prototypes returns empty objects of the kinds that affect a plan.
func prototypes() map[kind]client.Object {
	return map[kind]client.Object{
		{"v1", "Pod"}:                                      &corev1.Pod{},
		{"v1", "Node"}:                                     &corev1.Node{},
		{"v1", "Namespace"}:                                &corev1.Namespace{},
		{"v1", "Service"}:                                  &corev1.Service{},
		{"v1", "ReplicationController"}:                    &corev1.ReplicationController{},
		{"v1", "PersistentVolume"}:                         &corev1.PersistentVolume{},
		{"v1", "PersistentVolumeClaim"}:                    &corev1.PersistentVolumeClaim{},
		{"apps/v1", "Deployment"}:                          &appsv1.Deployment{},
		{"apps/v1", "ReplicaSet"}:                          &appsv1.ReplicaSet{},
		{"apps/v1", "StatefulSet"}:                         &appsv1.StatefulSet{},
		{"apps/v1", "DaemonSet"}:                           &appsv1.DaemonSet{},
		{"batch/v1", "Job"}:                                &batchv1.Job{},
		{"policy/v1", "PodDisruptionBudget"}:               &policyv1.PodDisruptionBudget{},
		{"scheduling.k8s.io/v1", "PriorityClass"}:          &schedulingv1.PriorityClass{},
		{"scheduling.k8s.io/v1beta1", "PodGroup"}:          &schedulingv1beta1.PodGroup{},
		{"node.k8s.io/v1", "RuntimeClass"}:                 &nodev1.RuntimeClass{},
		{"storage.k8s.io/v1", "StorageClass"}:              &storagev1.StorageClass{},
		{"storage.k8s.io/v1", "CSINode"}:                   &storagev1.CSINode{},
		{"storage.k8s.io/v1", "CSIDriver"}:                 &storagev1.CSIDriver{},
		{"storage.k8s.io/v1", "CSIStorageCapacity"}:        &storagev1.CSIStorageCapacity{},
		{"storage.k8s.io/v1", "VolumeAttachment"}:          &storagev1.VolumeAttachment{},
		{"resource.k8s.io/v1", "ResourceClaim"}:            &resourcev1.ResourceClaim{},
		{"resource.k8s.io/v1", "ResourceClaimTemplate"}:    &resourcev1.ResourceClaimTemplate{},
		{"resource.k8s.io/v1", "DeviceClass"}:              &resourcev1.DeviceClass{},
		{"resource.k8s.io/v1", "ResourceSlice"}:            &resourcev1.ResourceSlice{},
		{"resource.k8s.io/v1", "DeviceTaintRule"}:          &resourcev1.DeviceTaintRule{},
		{"v1", "LimitRange"}:                               &corev1.LimitRange{},
		{"v1", "PodTemplate"}:                              &corev1.PodTemplate{},
		{bufferv1.GroupVersion.String(), "CapacityBuffer"}: &bufferv1.CapacityBuffer{},
		{v1alpha1.GroupVersion.String(), "NodeOverlay"}:    &v1alpha1.NodeOverlay{},
		{karpv1.GroupVersion.String(), "NodePool"}:         &karpv1.NodePool{},
		{karpv1.GroupVersion.String(), "NodeClaim"}:        &karpv1.NodeClaim{},
		{awsv1.GroupVersion.String(), "EC2NodeClass"}:      &awsv1.EC2NodeClass{},
	}
}

// decode decodes the document into an object of the prototype's type. The error names the field; notes are about
// fields that are ignored.
func (d document) decode(prototype client.Object) (_ client.Object, notes []string, err error) {
	into, strict, err := unmarshal(d.raw, prototype)
	if err != nil {
		return nil, nil, d.errorf("%s: %w", d.name(), d.locate(prototype, err))
	}
	var refused []error
	for _, s := range strict {
		path, unknown := unknownField(s)
		switch {
		case !unknown:
			refused = append(refused, repeatedFieldError(s))
		case d.refuses(into, path):
			refused = append(refused, unknownFieldError(into, path))
		default:
			notes = append(notes, fmt.Sprintf("%s: %s: %s is ignored", d.place, d.name(), s))
		}
	}
	if len(refused) > 0 {
		return nil, nil, d.errorf("%s: %w", d.name(), joinedErrors(refused))
	}
	if into.GetName() == "" && into.GetGenerateName() == "" {
		return nil, nil, d.errorf("%s: metadata.name is missing", d.kind.kind)
	}
	return into, notes, nil
}

func unmarshal(data []byte, prototype client.Object) (_ client.Object, strict []error, err error) {
	into, ok := prototype.DeepCopyObject().(client.Object)
	if !ok {
		return nil, nil, fmt.Errorf("%T does not copy to itself", prototype)
	}
	strict, err = kjson.UnmarshalStrict(data, into)
	return into, strict, err
}

// name returns the object's kind, namespace and name.
func (d document) name() string { return strings.TrimSpace(d.kind.kind + " " + d.displayName) }

// locate adds the field to a decoding error, which not all errors name.
func (d document) locate(prototype client.Object, err error) error {
	fields, unreadable := d.fields()
	if unreadable != nil {
		return err
	}
	var found error
	path := culprit(fields, func() bool {
		data, err := json.Marshal(fields)
		if err == nil {
			_, _, err = unmarshal(data, prototype)
		}
		if err != nil {
			found = err
		}
		return err != nil
	})
	if path == "" {
		return err
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(found, &mismatch) {
		return fmt.Errorf("%s: is a %s, which cannot be %s", path, mismatch.Value, mismatch.Type)
	}
	return fmt.Errorf("%s: %s", path, strings.TrimPrefix(found.Error(), "json: "))
}

// culprit returns the path of the smallest part of a document that is invalid alone. It is a bisection: a list of a
// million items takes twenty attempts.
func culprit(tree any, invalid func() bool) string {
	switch node := tree.(type) {
	case map[string]any:
		whole := maps.Clone(node)
		defer maps.Copy(node, whole)
		key, found := bisect(slices.Sorted(maps.Keys(whole)), func(keys []string) bool {
			clear(node)
			for _, key := range keys {
				node[key] = whole[key]
			}
			return invalid()
		})
		if found {
			return join(key, culprit(whole[key], invalid))
		}
	case []any:
		whole := slices.Clone(node)
		defer copy(node, whole)
		indexes := make([]int, len(whole))
		for i := range indexes {
			indexes[i] = i
		}
		i, found := bisect(indexes, func(some []int) bool {
			clear(node)
			for _, i := range some {
				node[i] = whole[i]
			}
			return invalid()
		})
		if found {
			return join(fmt.Sprintf("[%d]", i), culprit(whole[i], invalid))
		}
	}
	return ""
}

// bisect finds the first part that is invalid alone, if there is one, and leaves only that in place. Invariant: if any
// part is invalid alone, one of the remaining parts is.
func bisect[T any](parts []T, invalid func([]T) bool) (first T, found bool) {
	for len(parts) > 1 {
		if half := parts[:len(parts)/2]; invalid(half) {
			parts = half
		} else {
			parts = parts[len(parts)/2:]
		}
	}
	if len(parts) == 0 || !invalid(parts) {
		return first, false
	}
	return parts[0], true
}

func join(parent, child string) string {
	if child == "" || strings.HasPrefix(child, "[") {
		return parent + child
	}
	return parent + "." + child
}
