package manifest

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/dovetail-k8s/dovetail/api/crds"
)

// definition defaults and validates objects by a CustomResourceDefinition, like the API server.
type definition struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// newDefinition finds the CustomResourceDefinition of a kind. An error means that the build is broken.
func newDefinition(of kind) (*definition, error) {
	group, version, _ := strings.Cut(of.apiVersion, "/")
	crd, err := crds.Of(group, of.kind)
	if err != nil {
		return nil, err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == version {
			return compile(v.Schema.OpenAPIV3Schema)
		}
	}
	return nil, fmt.Errorf("%s in %s has no definition", of.kind, of.apiVersion)
}

func compile(props *apiextensionsv1.JSONSchemaProps) (*definition, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, err
	}
	return &definition{structural, validator, cel.NewValidator(structural, true /* resource root */, celconfig.PerCallLimit)}, nil
}

// complete fills in the defaults of an object and returns the errors with which the API server would reject it.
func (s *definition) complete(fields map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(fields, s.structural)
	defaulting.Default(fields, s.structural)
	if errs := validation.ValidateCustomResource(nil, fields, s.validator); len(errs) > 0 {
		return errs // rules expect well-formed objects
	}
	// The validation does not block: there is nothing to cancel.
	errs, _ := s.rules.Validate(context.Background(), nil, s.structural, fields, nil, celconfig.RuntimeCELCostBudget)
	return errs
}
