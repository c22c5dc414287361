package manifest

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Conformance describes what the API server makes of an object once it has this version's CustomResourceDefinitions.
type Conformance struct {
	// Unknown are the paths of fields that it drops at the next write, such as spec.kubelet.
	Unknown []string
	// Invalid are the errors with which it rejects the object.
	Invalid field.ErrorList
}

// Conformer compares objects of our API with their CustomResourceDefinitions. It compiles each definition once, and is for one goroutine.
type Conformer struct{ definitions map[kind]*definition }

// NewConformer returns a Conformer.
func NewConformer() *Conformer { return &Conformer{definitions: map[kind]*definition{}} }

// Check compares an object with its definition. An error means that there is none of its kind and version.
func (c *Conformer) Check(object *unstructured.Unstructured) (Conformance, error) {
	of := kind{object.GetAPIVersion(), object.GetKind()}
	d := c.definitions[of]
	if d == nil {
		var err error
		if d, err = newDefinition(of); err != nil {
			return Conformance{}, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		c.definitions[of] = d
	}
	fields := object.DeepCopy().Object
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	out := Conformance{Unknown: pruning.PruneWithOptions(fields, d.structural, true /* resource root */, track)}
	out.Invalid = d.complete(fields)
	return out, nil
}
