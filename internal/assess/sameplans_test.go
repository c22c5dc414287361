package assess

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// A plan is shared only by edits of what no plan depends on.
func TestOnlyEditsWithoutEffectOnPlansShareOne(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 11, 19, 14, 32, 8, 0, time.UTC))
	cluster := func() *inspect.View {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{
			Name: "general", UID: "pool", Annotations: map[string]string{karpv1.AnnotationNodePoolHash: "1", "team": "shop"},
		}}
		pool.Spec.Disruption = karpv1.Disruption{ConsolidateAfter: karpv1.After(time.Minute), Budgets: []karpv1.Budget{{Nodes: "10%"}}}
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-1"}}
		claim.SetConditions([]metav1.Condition{{
			Type: karpv1.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift", LastTransitionTime: now,
		}})
		state := &manifest.ClusterState{}
		state.NodePools, state.NodeClaims = []*karpv1.NodePool{pool}, []*karpv1.NodeClaim{claim}
		return &inspect.View{ClusterState: state}
	}
	for _, tt := range []struct {
		name  string
		edit  func(*karpv1.NodePool, *karpv1.NodeClaim)
		alike bool
	}{
		{"nothing", func(*karpv1.NodePool, *karpv1.NodeClaim) {}, true},
		{"budgets", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}, true},
		{"the hash that a controller notes", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) {
			delete(p.Annotations, karpv1.AnnotationNodePoolHash)
		}, true},
		{"the message of a condition", func(_ *karpv1.NodePool, c *karpv1.NodeClaim) { c.Status.Conditions[0].Message = "AMIDrift" }, true},
		{"another annotation", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) { p.Annotations["team"] = "search" }, false},
		{"a label", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) { p.Labels = map[string]string{"a": "b"} }, false},
		{"consolidateAfter", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Hour)
		}, false},
		{"weight", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) { p.Spec.Weight = new(int32(7)) }, false},
		{"limits", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) {
			p.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: {}}
		}, false},
		{"the template", func(p *karpv1.NodePool, _ *karpv1.NodeClaim) {
			p.Spec.Template.Spec.ExpireAfter = karpv1.After(time.Hour)
		}, false},
		{"a node that no longer drifts", func(_ *karpv1.NodePool, c *karpv1.NodeClaim) {
			c.Status.Conditions[0].Status = metav1.ConditionFalse
		}, false},
		{"another reason of drift", func(_ *karpv1.NodePool, c *karpv1.NodeClaim) { c.Status.Conditions[0].Reason = "NodePoolDrifted" }, false},
		{"since when it drifts", func(_ *karpv1.NodePool, c *karpv1.NodeClaim) {
			c.Status.Conditions[0].LastTransitionTime = metav1.Time{}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, edited := cluster(), cluster()
			tt.edit(edited.NodePools[0], edited.NodeClaims[0])
			if got := samePlans(before, edited, "general"); got != tt.alike {
				t.Errorf("planned alike: %v, want %v", got, tt.alike)
			}
		})
	}
	if samePlans(cluster(), cluster(), "other") {
		t.Error("a NodePool that does not exist")
	}
}
