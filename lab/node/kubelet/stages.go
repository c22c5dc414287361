package kubelet

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
	"sigs.k8s.io/yaml"
)

//go:embed stages.yaml
var stagesYAML []byte

// DefaultStages are the stages that pods go through unless others are given. Each call returns new objects.
func DefaultStages() ([]*v1alpha1.Stage, error) { return ParseStages(stagesYAML) }

// ParseStages reads Stage objects of kwok from YAML documents.
func ParseStages(documents []byte) ([]*v1alpha1.Stage, error) {
	var out []*v1alpha1.Stage
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	for {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read stage %d: %w", len(out)+1, err)
		}
		stage := &v1alpha1.Stage{}
		if err := yaml.UnmarshalStrict(document, stage); err != nil {
			return nil, fmt.Errorf("read stage %d: %w", len(out)+1, err)
		}
		if stage.Name == "" && stage.Kind == "" {
			continue // nothing but comments
		}
		out = append(out, stage)
	}
}

// Stages is a compiled set of stages, shared by all nodes. It is safe for concurrent use.
type Stages struct {
	pods lifecycle.Lifecycle
}

// NewStages compiles stages. Those that are not about pods are rejected: the simulator controls nodes.
func NewStages(stages []*v1alpha1.Stage) (*Stages, error) {
	internal := make([]*internalversion.Stage, 0, len(stages))
	for _, s := range stages {
		if s.Spec.ResourceRef.Kind != "Pod" {
			return nil, fmt.Errorf("stage %s is about %ss, not about pods", s.Name, s.Spec.ResourceRef.Kind)
		}
		converted, err := internalversion.ConvertToInternalStage(s.DeepCopy())
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", s.Name, err)
		}
		internal = append(internal, converted)
	}
	pods, err := lifecycle.NewLifecycle(internal)
	if err != nil {
		return nil, err
	}
	// A stage compiles its expressions when it is first queried, and is read-only from then on.
	if _, err := pods.ListAllPossible(context.Background(), &lifecycle.Event{Data: &corev1.Pod{}}); err != nil {
		return nil, fmt.Errorf("compile stages: %w", err)
	}
	return &Stages{pods: pods}, nil
}
