package provision

import (
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Claim makes the NodeClaim that a Launch stands for. It remembers the pods that it is bought for, so that
// whoever reads it, this process or the next, does not buy for them again.
func Claim(l *schedule.Launch, labels requirement.Labels) *karpv1.NodeClaim {
	pool, template := l.Pool, l.Pool.Spec.Template
	block := true
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pool.Name + "-",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: karpv1.GroupVersion.String(), Kind: "NodePool", Name: pool.Name, UID: pool.UID, BlockOwnerDeletion: &block,
			}},
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef:           template.Spec.NodeClassRef,
			Taints:                 template.Spec.Taints,
			StartupTaints:          template.Spec.StartupTaints,
			ExpireAfter:            template.Spec.ExpireAfter,
			TerminationGracePeriod: template.Spec.TerminationGracePeriod,
			Requirements:           l.ClaimRequirements(),
		},
	}
	claim.Spec.Resources.Requests = l.Requests
	maps.Copy(claim.Labels, l.ClaimLabels(labels))
	maps.Copy(claim.Annotations, template.Annotations)
	for _, key := range []string{karpv1.AnnotationNodePoolHash, karpv1.AnnotationNodePoolHashVersion} {
		if v, ok := pool.Annotations[key]; ok {
			claim.Annotations[key] = v
		}
	}
	claim.Annotations[karpv1.AnnotationMinValuesRelaxed] = fmt.Sprint(l.MinValuesRelaxed)
	var nominated []string
	for _, pod := range l.Pods {
		nominated = append(nominated, string(pod.UID))
	}
	claim.Annotations[karpv1.AnnotationNominatedPods] = strings.Join(nominated, ",")
	return claim
}
