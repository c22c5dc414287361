package manifest

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Authored returns the annotations of a NodePool that people write: without those that kubectl and controllers note on it.
func Authored(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, noted := range []string{
		karpv1.AnnotationNodePoolHash, karpv1.AnnotationNodePoolHashVersion, karpv1.AnnotationReplacementOutcomes,
		corev1.LastAppliedConfigAnnotation,
	} {
		delete(out, noted)
	}
	return out
}
