package assess_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// baselineOf compares edits with a view, with the gates of the view.
func baselineOf(v *inspect.View) *assess.Baseline {
	settings := assess.DefaultSettings()
	settings.Consolidation = v.Search
	return assess.NewBaseline(v, settings)
}

// What a gate would do is what the cluster does with it.
func TestAGateIsComparedWithTheClusterThatHasIt(t *testing.T) {
	v := fragmentedOf(t, 12, karpv1.CapacityTypeSpot)
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	found, err := baselineOf(v).CompareGates(map[string]bool{assess.SpotToSpot: true})
	if err != nil {
		t.Fatal(err)
	}
	if found.After.HourlyCost >= 0.9*found.Before.HourlyCost {
		t.Errorf("with the gate $%.3f/h, without $%.3f/h", found.After.HourlyCost, found.Before.HourlyCost)
	}
	launches := func(steps []assess.Step) (n int) {
		for i := range steps {
			n += len(steps[i].Launched)
		}
		return n
	}
	if before, after := launches(found.Next.Before), launches(found.Next.After); before != 0 || after == 0 {
		t.Errorf("the next pass launches %d spot nodes for spot nodes without the gate, %d with it", before, after)
	}
	with := *v
	with.Search.SpotToSpot = true
	same, err := baselineOf(&with).CompareGates(map[string]bool{assess.SpotToSpot: true})
	if err != nil {
		t.Fatal(err)
	}
	if same.Before.HourlyCost != found.After.HourlyCost || same.After.HourlyCost != found.After.HourlyCost {
		t.Errorf("the cluster with the gate comes to $%.3f/h and $%.3f/h, predicted $%.3f/h", same.Before.HourlyCost, same.After.HourlyCost,
			found.After.HourlyCost)
	}
}

// A static NodePool at its limit replaces its drifted nodes only with TerminateFirstDrift, one at a time.
func TestAGateThatNoProspectDependsOnShowsTheNextPass(t *testing.T) {
	replicas := int64(2)
	pool := enginetest.Pool("fixed", enginetest.Types(), enginetest.AnyBudget, func(p *karpv1.NodePool) {
		p.Spec.Replicas = &replicas
		p.Spec.Limits = corev1.ResourceList{"nodes": resource.MustParse("2")}
		p.SetConditions([]metav1.Condition{{Type: condition.Ready, Status: metav1.ConditionTrue}})
	}).NodePool
	s := enginetest.World(nil)
	s.Closed = []*karpv1.NodePool{pool}
	s.Nodes = []snapshot.Node{enginetest.DriftedNode("a", "fixed", 2), enginetest.DriftedNode("b", "fixed", 1)}
	v := view(s, enginetest.Types())
	found, err := baselineOf(v).CompareGates(map[string]bool{"TerminateFirstDrift": true})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Next.Before) != 0 || len(found.Next.After) != 1 {
		t.Fatalf("the next pass: %+v", found.Next)
	}
	if step := found.Next.After[0]; step.How != assess.TerminateFirst || len(step.Removed) != 1 || step.Removed[0] != "a" {
		t.Errorf("the next pass: %+v", step)
	}
	if v.Gates.TerminateFirstDrift {
		t.Error("the view has changed")
	}
}

func TestAGateThatNoPassReadsIsNamed(t *testing.T) {
	_, err := baselineOf(fragmented(t, 2)).CompareGates(map[string]bool{"SpotToSpotConsolidaton": true})
	if unknown := (*assess.UnknownGateError)(nil); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "did you mean SpotToSpotConsolidation?") {
		t.Errorf("a misspelled gate: %v", err)
	}
	_, err = baselineOf(fragmented(t, 2)).CompareGates(map[string]bool{"StaticCapacity": true})
	if unknown := (*assess.UnknownGateError)(nil); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "passes read SpotToSpotConsolidation, ") {
		t.Errorf("a gate that no pass reads: %v", err)
	}
}
