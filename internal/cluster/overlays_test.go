package cluster_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func overlaid(name, price string, requirements ...v1alpha1.Requirement) *v1alpha1.NodeOverlay {
	o := &v1alpha1.NodeOverlay{}
	o.Name, o.Spec.Price, o.Spec.Requirements = name, &price, requirements
	return o
}

// A snapshot shows a pool's types as the overlays make them, and no pool that they were not judged for.
func TestOverlaidSnapshot(t *testing.T) {
	w := newTestCluster(t, classOf(), poolOf("general"))
	w.types = []*catalog.InstanceType{engine.Type("m.large", 10, "cpu", "4")}
	overlays := &cluster.Overlays{}
	w.State = cluster.NewState(cluster.Config{
		Cache: w.cache, Live: w.live, Types: w, Overlays: overlays, NominationWindow: window, Now: w.clock,
		OnPoolSkipped: func(*karpv1.NodePool, error) { t.Error("left out") },
	})
	if s := w.snapshot(t); len(s.Pools) != 0 || len(s.Closed) != 1 {
		t.Errorf("before any judgement: pools %v, tainted %v", s.Pools, s.Closed)
	}
	pool := w.snapshot(t).Closed[0]
	judge := func(price string) {
		book, _ := overlay.Evaluate([]*v1alpha1.NodeOverlay{overlaid("a", price)},
			[]overlay.Pool{{NodePool: pool, InstanceTypes: w.types}}, overlay.Terms{Labels: requirement.CoreLabels()})
		overlays.Set(book, []types.UID{pool.UID})
	}
	for _, price := range []string{"1", "1", "2"} {
		judge(price)
		s := w.snapshot(t)
		if len(s.Pools) != 1 {
			t.Fatalf("judged: %d pools", len(s.Pools))
		}
		o := s.Pools[0].InstanceTypes[0].Offerings[0]
		if want := map[string]float64{"1": 1, "2": 2}[price]; o.Price != want || !o.PriceOverlaid {
			t.Errorf("offering %+v, want price %g", o, want)
		}
	}
	w.types = []*catalog.InstanceType{engine.Type("m.xlarge", 20, "cpu", "8")}
	if got := w.snapshot(t).Pools[0].InstanceTypes[0]; got.Name != "m.xlarge" || got.Offerings[0].Price != 2 {
		t.Errorf("when the cloud offers something else: %s at %g", got.Name, got.Offerings[0].Price)
	}
	if w.types[0].Offerings[0].Price != 20 {
		t.Error("the cloud's own list has changed")
	}
	overlays.Set(overlay.Overlays{}, nil)
	if s := w.snapshot(t); len(s.Pools) != 0 {
		t.Error("a pool that is not judged any more is planned")
	}
}

// The version reports when prices for types without one are other than before.
func TestOverlayPrices(t *testing.T) {
	named := v1alpha1.Requirement{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"x.large"}}
	overlays := &cluster.Overlays{}
	versions := map[int]bool{}
	for _, price := range []string{"1", "1", "2"} {
		book, _ := overlay.Evaluate(
			[]*v1alpha1.NodeOverlay{overlaid("a", price, named)},
			nil,
			overlay.Terms{Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}},
		)
		overlays.Set(book, nil)
		prices, version := overlays.Prices()
		versions[version] = true
		if len(prices) != 1 {
			t.Errorf("prices %v", prices)
		}
	}
	if len(versions) != 2 {
		t.Errorf("versions %v, want two", versions)
	}
}
