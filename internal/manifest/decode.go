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
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// kind is an API kind as manifests spell it.
type kind struct{ apiVersion, kind string }

func (d document) kind() kind { return kind{d.text("apiVersion"), d.text("kind")} }

// clusterWide are the kinds without a namespace.
var clusterWide = []string{
	"Node", "CSINode", "NodePool", "NodeClaim", "EC2NodeClass", "PersistentVolume", "StorageClass", "Namespace", "PriorityClass",
}

// prototypes are empty objects of the kinds that bear on a plan.
func prototypes() map[kind]client.Object {
	return map[kind]client.Object{
		{"v1", "Pod"}:                                 &corev1.Pod{},
		{"v1", "Node"}:                                &corev1.Node{},
		{"v1", "Namespace"}:                           &corev1.Namespace{},
		{"v1", "PersistentVolume"}:                    &corev1.PersistentVolume{},
		{"v1", "PersistentVolumeClaim"}:               &corev1.PersistentVolumeClaim{},
		{"apps/v1", "Deployment"}:                     &appsv1.Deployment{},
		{"apps/v1", "ReplicaSet"}:                     &appsv1.ReplicaSet{},
		{"apps/v1", "StatefulSet"}:                    &appsv1.StatefulSet{},
		{"apps/v1", "DaemonSet"}:                      &appsv1.DaemonSet{},
		{"batch/v1", "Job"}:                           &batchv1.Job{},
		{"policy/v1", "PodDisruptionBudget"}:          &policyv1.PodDisruptionBudget{},
		{"scheduling.k8s.io/v1", "PriorityClass"}:     &schedulingv1.PriorityClass{},
		{"storage.k8s.io/v1", "StorageClass"}:         &storagev1.StorageClass{},
		{"storage.k8s.io/v1", "CSINode"}:              &storagev1.CSINode{},
		{karpv1.GroupVersion.String(), "NodePool"}:    &karpv1.NodePool{},
		{karpv1.GroupVersion.String(), "NodeClaim"}:   &karpv1.NodeClaim{},
		{awsv1.GroupVersion.String(), "EC2NodeClass"}: &awsv1.EC2NodeClass{},
	}
}

// decode reads the document as an object like the prototype. The error names the field; notes are about fields
// that are not known.
func (d document) decode(prototype client.Object) (_ client.Object, notes []string, err error) {
	into, strict, err := unmarshal(d.fields, prototype)
	if err != nil {
		return nil, nil, d.errorf("%s: %w", d.name(), d.locate(prototype, err))
	}
	for _, s := range strict {
		notes = append(notes, fmt.Sprintf("%s: %s: %s is ignored", d.place, d.name(), s))
	}
	if into.GetName() == "" && into.GetGenerateName() == "" {
		return nil, nil, d.errorf("%s: metadata.name is missing", d.text("kind"))
	}
	return into, notes, nil
}

func unmarshal(fields map[string]any, prototype client.Object) (_ client.Object, strict []error, err error) {
	into, ok := prototype.DeepCopyObject().(client.Object)
	if !ok {
		return nil, nil, fmt.Errorf("%T does not copy to itself", prototype)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	strict, err = kjson.UnmarshalStrict(data, into)
	return into, strict, err
}

// name is how people name the object: its kind, namespace and name.
func (d document) name() string {
	metadata, _ := d.fields["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(d.text("kind") + " " + name)
}

// locate adds to a decoding error the field that it is about. Not all errors say so themselves: the field is
// the one without which the rest can be decoded.
func (d document) locate(prototype client.Object, err error) error {
	path := culprit(d.fields, func() bool {
		_, _, err := unmarshal(d.fields, prototype)
		return err == nil
	})
	if path == "" {
		return err
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("%s: is a %s, which cannot be %s", path, mismatch.Value, mismatch.Type)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	return fmt.Errorf("%s: %s", path, text)
}

// culprit finds the smallest part of a document without which it is well; empty if no single one is at fault.
func culprit(tree any, well func() bool) string {
	switch node := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			child := node[key]
			delete(node, key)
			found := well()
			node[key] = child
			if found {
				return join(key, culprit(child, well))
			}
		}
	case []any:
		for i, child := range node {
			node[i] = nil
			found := well()
			node[i] = child
			if found {
				return join(fmt.Sprintf("[%d]", i), culprit(child, well))
			}
		}
	}
	return ""
}

func join(parent, child string) string {
	if child == "" || strings.HasPrefix(child, "[") {
		return parent + child
	}
	return parent + "." + child
}
