package disrupt

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Reasons of the condition Drifted. The cloud's reasons are checked after them.
const (
	NodePoolDrifted      = "NodePoolDrifted"
	RequirementsDrifted  = "RequirementsDrifted"
	InstanceTypeNotFound = "InstanceTypeNotFound"
	// ResizeDeferred is checked after the cloud's reasons, and only if the NodePool wants it: see ResizeHistory.
	ResizeDeferred = "ResizeDeferred"
)

// DriftReason returns why a claim has drifted from its pool, by what both declare; empty if it has not. Missing hashes,
// and hashes of different versions, are not compared.
func DriftReason(claim *karpv1.NodeClaim, pool *karpv1.NodePool, labels requirement.Labels) (string, error) {
	const hash, version = karpv1.AnnotationNodePoolHash, karpv1.AnnotationNodePoolHashVersion
	has := func(annotations map[string]string) bool { return annotations[hash] != "" && annotations[version] != "" }
	if has(claim.Annotations) && has(pool.Annotations) &&
		claim.Annotations[version] == pool.Annotations[version] && claim.Annotations[hash] != pool.Annotations[hash] {
		return NodePoolDrifted, nil
	}
	want, err := labels.FromAPI(pool.Spec.Template.Spec.Requirements)
	if err != nil {
		return "", fmt.Errorf("read the requirements of node pool %q: %w", pool.Name, err)
	}
	if !labels.FromNode(claim.Labels).Compatible(want, nil) {
		return RequirementsDrifted, nil
	}
	return "", nil
}

// StillOffered reports whether the claim's type is among those that its pool could launch, with an offering, available
// or not, that has the claim's labels. An instance of a capacity reservation may continue as on-demand, under any
// reservation; reservation are the labels that name one.
func StillOffered(claim *karpv1.NodeClaim, types []*catalog.InstanceType, labels requirement.Labels, reservation ...string) bool {
	name := claim.Labels[corev1.LabelInstanceTypeStable]
	i := slices.IndexFunc(types, func(t *catalog.InstanceType) bool { return t.Name == name })
	if name == "" || i < 0 {
		return false
	}
	set := labels.FromNode(claim.Labels)
	if claim.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeReserved {
		set = set.Without(
			reservation...).Replace(
			requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved, karpv1.CapacityTypeOnDemand),
		)
	}
	return slices.ContainsFunc(types[i].Offerings, func(o catalog.Offering) bool { return set.Overlaps(o.Requirements) })
}
