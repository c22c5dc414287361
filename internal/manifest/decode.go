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

// blank returns an empty object of the kind, nil for a kind that does not bear on a plan.
func (k kind) blank() client.Object {
	switch k {
	case kind{"v1", "Pod"}:
		return &corev1.Pod{}
	case kind{"v1", "Node"}:
		return &corev1.Node{}
	case kind{"v1", "Namespace"}:
		return &corev1.Namespace{}
	case kind{"v1", "PersistentVolume"}:
		return &corev1.PersistentVolume{}
	case kind{"v1", "PersistentVolumeClaim"}:
		return &corev1.PersistentVolumeClaim{}
	case kind{"apps/v1", "Deployment"}:
		return &appsv1.Deployment{}
	case kind{"apps/v1", "ReplicaSet"}:
		return &appsv1.ReplicaSet{}
	case kind{"apps/v1", "StatefulSet"}:
		return &appsv1.StatefulSet{}
	case kind{"apps/v1", "DaemonSet"}:
		return &appsv1.DaemonSet{}
	case kind{"batch/v1", "Job"}:
		return &batchv1.Job{}
	case kind{"policy/v1", "PodDisruptionBudget"}:
		return &policyv1.PodDisruptionBudget{}
	case kind{"scheduling.k8s.io/v1", "PriorityClass"}:
		return &schedulingv1.PriorityClass{}
	case kind{"storage.k8s.io/v1", "StorageClass"}:
		return &storagev1.StorageClass{}
	case kind{"storage.k8s.io/v1", "CSINode"}:
		return &storagev1.CSINode{}
	case kind{karpv1.GroupVersion.String(), "NodePool"}:
		return &karpv1.NodePool{}
	case kind{karpv1.GroupVersion.String(), "NodeClaim"}:
		return &karpv1.NodeClaim{}
	case kind{awsv1.GroupVersion.String(), "EC2NodeClass"}:
		return &awsv1.EC2NodeClass{}
	}
	return nil
}

// decode reads the document into an object. The error names the field; notes are about fields that are not known.
func (d document) decode(into client.Object) (notes []string, err error) {
	data, err := json.Marshal(d.fields)
	if err != nil {
		return nil, d.errorf("%w", err)
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return nil, d.errorf("%s: %w", d.name(), d.locate(err))
	}
	for _, s := range strict {
		notes = append(notes, fmt.Sprintf("%s: %s: %s is ignored", d.place, d.name(), s))
	}
	if into.GetName() == "" && into.GetGenerateName() == "" {
		return nil, d.errorf("%s: metadata.name is missing", d.text("kind"))
	}
	return notes, nil
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
func (d document) locate(err error) error {
	path := culprit(d.fields, func() bool {
		data, err := json.Marshal(d.fields)
		if err != nil {
			return false
		}
		_, err = kjson.UnmarshalStrict(data, d.kind().blank())
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
