// Command generate writes the CustomResourceDefinitions of all packages below api: it runs controller-gen
// and adds what that cannot state (see package adjust).
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/api/crds/internal/adjust"
)

const header = "# Generated from the Go types by `make generate`. Change those instead.\n---\n"

func main() {
	out := flag.String("out", ".", "directory to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "generate CRDs: %v\n", err)
		os.Exit(1)
	}
}

func run(out string) error {
	raw, err := os.MkdirTemp("", "crds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(raw)
	generate := exec.Command("go", "tool", "controller-gen", "crd",
		"paths=github.com/dovetail-k8s/dovetail/api/...", "output:crd:dir="+raw)
	generate.Stderr = os.Stderr
	if err := generate.Run(); err != nil {
		return fmt.Errorf("controller-gen: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(raw, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := adjusted(file)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if err := os.WriteFile(filepath.Join(out, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func adjusted(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, err
	}
	if err := adjust.Apply(&crd); err != nil {
		return nil, err
	}
	// Everything but the status, which is the API server's.
	text, err = yaml.Marshal(struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              apiextensionsv1.CustomResourceDefinitionSpec `json:"spec"`
	}{crd.TypeMeta, crd.ObjectMeta, crd.Spec})
	return append([]byte(header), text...), err
}
