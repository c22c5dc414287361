package assess

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// samePlans reports whether the edit of a NodePool changes nothing that a Prospect depends on: neither the pool, its budgets and the
// notes of controllers aside, nor what drifts. It reports it only if it is sure.
func samePlans(before, edited *inspect.View, name string) bool {
	named := func(p *karpv1.NodePool) bool { return p.Name == name }
	was, is := slices.IndexFunc(before.NodePools, named), slices.IndexFunc(edited.NodePools, named)
	if was < 0 || is < 0 || !apiequality.Semantic.DeepEqual(planned(before.NodePools[was]), planned(edited.NodePools[is])) {
		return false
	}
	return slices.EqualFunc(before.NodeClaims, edited.NodeClaims, sameConditions)
}

// planned returns what a Prospect depends on of a NodePool. Its steps are computed without budgets.
func planned(p *karpv1.NodePool) *karpv1.NodePool {
	out := *p
	out.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, UID: p.UID, Labels: p.Labels, Annotations: manifest.Authored(p.Annotations), DeletionTimestamp: p.DeletionTimestamp,
	}
	out.Spec.Disruption.Budgets = nil
	out.TypeMeta = metav1.TypeMeta{}
	return &out
}

// sameConditions reports whether two versions of a NodeClaim have equal conditions, but for their messages. An edit changes nothing else
// of a NodeClaim.
func sameConditions(a, b *karpv1.NodeClaim) bool {
	return a == b || slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(x, y metav1.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.LastTransitionTime.Equal(&y.LastTransitionTime)
	})
}
