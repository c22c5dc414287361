package cover_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/cover"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// candidates returns those of a pool with all types, and the requests of a pod with one core.
func candidates() (*nodepool.Candidates, resources.Vec) {
	axes, slots := resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), reservation.Slots{}
	pools := []snapshot.Pool{Pool("general", Types())}
	t := nodepool.NewModels(nodepool.Config{
		Labels: World(pools).Labels, Axes: axes, Slots: &slots, Steps: new(int),
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, pools).All()[0]
	return t.Candidates(t.Requirements()), axes.Vec(Resources("cpu", "1", "memory", "1Gi", "pods", "1"))
}

// leastPrice tries all choices of nodes.
func leastPrice(cands *nodepool.Candidates, holders []cover.Node, n int) float64 {
	if n <= 0 {
		return 0
	}
	best := math.Inf(1)
	for _, h := range holders {
		best = min(best, cands.List()[h.Candidate].Price+leastPrice(cands, holders, n-h.Pods))
	}
	return best
}

func TestNoCoverCostsLess(t *testing.T) {
	cands, requests := candidates()
	for n := 1; n <= 20; n++ {
		holders := cover.Holders(cands, requests, n)
		nodes, price := cover.Cheapest(cands, holders, n, 0)
		held, sum := 0, 0.0
		for i, node := range nodes {
			held, sum = held+node.Pods, sum+cands.List()[node.Candidate].Price
			if i > 0 && node.Pods > nodes[i-1].Pods {
				t.Errorf("%d pods: the nodes are not sorted: %v", n, nodes)
			}
		}
		if best := leastPrice(cands, holders, n); held < n || math.Abs(price-best) > 1e-9 || math.Abs(price-sum) > 1e-9 {
			t.Errorf("%d pods: nodes for %d at %v, sum %v, least %v", n, held, price, sum, best)
		}
	}
}

// A charge per node never makes more of them.
func TestChargePerNodeMeansFewerNodes(t *testing.T) {
	cands, requests := candidates()
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		n := 1 + r.IntN(60)
		holders := cover.Holders(cands, requests, n)
		free, price := cover.Cheapest(cands, holders, n, 0)
		charged, dearer := cover.Cheapest(cands, holders, n, r.Float64())
		if len(charged) > len(free) || dearer < price-1e-9 {
			t.Errorf("%d pods: %d nodes at %v, with a charge %d at %v", n, len(free), price, len(charged), dearer)
		}
	}
}

func TestNothingHoldsThePods(t *testing.T) {
	cands, _ := candidates()
	requests := resources.Vec{math.MaxInt64, 0, 0}
	if nodes, price := cover.Cheapest(cands, cover.Holders(cands, requests, 3), 3, 0); nodes != nil || !math.IsInf(price, 1) {
		t.Errorf("%v at %v", nodes, price)
	}
}
