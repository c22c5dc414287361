// Package crds holds the CustomResourceDefinitions of every kind below api, as generated from the Go types.
// What the generator of Kubernetes cannot state is added by internal/adjust.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:generate go run ./internal/generate -out .

// FS holds one YAML file per CustomResourceDefinition, named GROUP_PLURAL.yaml.
//
//go:embed *.yaml
var FS embed.FS

// All decodes the CustomResourceDefinitions, in the order of their file names.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(FS, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(names))
	for _, name := range names {
		crd, err := decode(name)
		if err != nil {
			return nil, err
		}
		all = append(all, crd)
	}
	return all, nil
}

// Of decodes the one of a kind: its plural is made as English makes most. Decoding all takes time that shows.
func Of(group, kind string) (*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(FS, group+"_"+strings.ToLower(kind)+"*s.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if crd, err := decode(name); err != nil || crd.Spec.Names.Kind == kind {
			return crd, err
		}
	}
	return nil, fmt.Errorf("there is no definition of %s in %s", kind, group)
}

func decode(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := fs.ReadFile(FS, name)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	return crd, nil
}
