package consolidate_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// TestPodsThatAvoidANodeByItsNameDoNotKeepTheirOwnNode: two nodes with one small pod each become one. A pod that can only run
// on its node keeps it.
func TestPodsThatAvoidANodeByItsNameDoNotKeepTheirOwnNode(t *testing.T) {
	byName := func(op corev1.NodeSelectorOperator, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			Needs()(p)
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{Expr("metadata.name", op, name)}
		}
	}
	for name, c := range map[string]struct {
		edit  func(*corev1.Pod)
		stays bool
	}{
		"not a node with a fault":               {Needs(Expr(Host, corev1.NodeSelectorOpNotIn, "gone")), false},
		"not a node with a fault, by its field": {byName(corev1.NodeSelectorOpNotIn, "gone"), false},
		"any node with a name":                  {Needs(Expr(Host, corev1.NodeSelectorOpExists)), false},
		"a registered node":                     {Selects(karpv1.LabelRegistered, "true"), false},
		"preferably an unmanaged node":          {Prefers(1, Expr(karpv1.LabelNodePool, corev1.NodeSelectorOpDoesNotExist)), false},
		"its own node":                          {Selects(Host, "first"), true},
		"its own node, by its field":            {byName(corev1.NodeSelectorOpIn, "first"), true},
	} {
		s := world([]*catalog.InstanceType{priced("m.large", 4, 0.2, 0)})
		add(s, 0, "first", "m.large", onDemand, one("a", "1", c.edit))
		add(s, 0, "second", "m.large", onDemand, one("b", "1", Selects(Host, "second")))
		removed := removedNames(find(s, consolidate.Settings{}))
		if slices.Contains(removed, "first") == c.stays {
			t.Errorf("%s: removed %v", name, removed)
		}
	}
}
