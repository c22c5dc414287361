package provisioning

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Claim returns the NodeClaim of a Launch. An annotation lists the pods that it is for, so that neither this process
// nor the next launches a second node for them.
func Claim(l *schedule.Launch, labels requirement.Labels) (*karpv1.NodeClaim, error) {
	claim, err := newClaim(l.Pool)
	if err != nil {
		return nil, err
	}
	claim.Labels = l.ClaimLabels(labels)
	claim.Spec.Requirements = nameFewerTypes(l.ClaimRequirements())
	claim.Spec.Resources.Requests = l.Requests
	if l.ID != "" {
		claim.Annotations[karpv1.AnnotationDecision] = l.ID
	}
	claim.Annotations[karpv1.AnnotationMinValuesRelaxed] = fmt.Sprint(l.MinValuesRelaxed)
	if slices.ContainsFunc(l.InstanceTypes, (*catalog.InstanceType).PriceOverlaid) {
		claim.Annotations[karpv1.AnnotationPriceOverlayApplied] = "true"
	}
	if slices.ContainsFunc(l.InstanceTypes, func(t *catalog.InstanceType) bool { return t.CapacityOverlaid }) {
		claim.Annotations[karpv1.AnnotationCapacityOverlayApplied] = "true"
	}
	if len(l.Drivers) > 0 {
		claim.Annotations[karpv1.AnnotationRequestedDRADrivers] = strings.Join(l.Drivers, ",")
	}
	var pods, virtual []string
	var real []*corev1.Pod
	for _, pod := range l.Pods {
		if snapshot.IsVirtual(pod) {
			virtual = append(virtual, string(pod.UID))
		} else {
			pods, real = append(pods, string(pod.UID)), append(real, pod)
		}
	}
	claim.Annotations[karpv1.AnnotationNominatedPods] = strings.Join(pods, ",")
	if len(real) > 0 {
		claim.Annotations[karpv1.AnnotationPodClasses] = strings.Join(classesOf(real), ",")
	}
	if len(virtual) > 0 {
		claim.Annotations[karpv1.AnnotationNominatedBuffers] = strings.Join(virtual, ",")
	}
	return claim, nil
}

// maxNamedTypes limits how many instance types a claim names, cheapest first: a launch requests 60 of them. Claims with minValues name all
// types of the plan. The API server validates and stores the list with each of the dozen writes that a claim gets until its node is
// initialized. With 600 names, as in Karpenter, it took 0.03 CPU seconds more for each node that joins, and the controller 0.014.
const maxNamedTypes = 120

// nameFewerTypes drops the most expensive instance types from the requirements of a claim, unless minValues count the values that the
// types have. If none of the others can be launched, the claim is deleted, and the next plan names others.
func nameFewerTypes(requirements []karpv1.Requirement) []karpv1.Requirement {
	if slices.ContainsFunc(requirements, func(r karpv1.Requirement) bool { return r.MinValues != nil }) {
		return requirements
	}
	for i := range requirements {
		if r := &requirements[i]; r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			r.Values = r.Values[:min(len(r.Values), maxNamedTypes)]
		}
	}
	return requirements
}

// StaticClaim returns a NodeClaim of a static pool: any instance type that the template allows, for no particular pods.
// nodeClass is the label (key, value) that marks nodes of the pool's class.
func StaticClaim(pool *karpv1.NodePool, nodeClass [2]string, labels requirement.Labels) (*karpv1.NodeClaim, error) {
	claim, err := newClaim(pool)
	if err != nil {
		return nil, err
	}
	requirements, err := labels.FromPool(pool, nodeClass)
	if err != nil {
		return nil, fmt.Errorf("parse the requirements of node pool %q: %w", pool.Name, err)
	}
	claim.Labels = (&schedule.Launch{Pool: pool, Requirements: requirements}).ClaimLabels(labels)
	claim.Spec.Requirements = requirements.API()
	return claim, nil
}

// newClaim returns a NodeClaim with the fields that all claims of the pool share. Its hash annotation is computed from
// the template used, since the pool's own annotation may still be of an older one.
func newClaim(pool *karpv1.NodePool) (*karpv1.NodeClaim, error) {
	hash, err := pool.Hash()
	if err != nil {
		return nil, fmt.Errorf("hash the template of node pool %q: %w", pool.Name, err)
	}
	block, template := true, pool.Spec.Template
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pool.Name + "-",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: karpv1.GroupVersion.String(), Kind: "NodePool", Name: pool.Name, UID: pool.UID, BlockOwnerDeletion: &block,
			}},
			Annotations: map[string]string{},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef:           template.Spec.NodeClassRef,
			Taints:                 template.Spec.Taints,
			StartupTaints:          template.Spec.StartupTaints,
			ExpireAfter:            template.Spec.ExpireAfter,
			TerminationGracePeriod: template.Spec.TerminationGracePeriod,
		},
	}
	maps.Copy(claim.Annotations, template.Annotations)
	claim.Annotations[karpv1.AnnotationNodePoolHash] = hash
	claim.Annotations[karpv1.AnnotationNodePoolHashVersion] = karpv1.NodePoolHashVersion
	return claim, nil
}
