package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// packSlowly is what pack takes of each demand, with the order found anew and each demand looked at each time.
func (sv *solver) packSlowly(queue []demand, first *class, cand nodepool.Candidate) []int {
	ti := sv.pools.All()[0].TypeOf(cand)
	free, taken := ti.Room().Minus(first.Requests()), make([]int, len(queue))
	ratio := float64(ti.Room()[sv.memory]) / float64(max(1, ti.Room()[sv.cpu]))
	take := func(k, most int) {
		for range most {
			if d := &queue[k]; taken[k] == d.n || !d.requests.Within(free) {
				return
			}
			free = free.Minus(queue[k].requests)
			taken[k]++
		}
	}
	duals := vec64(sv.prices.market.Duals(ti, cand))
	for tier, least := range fitTiers {
		var left [2][]int // the CPU-heavy and the memory-heavy demands
		for k := range queue {
			d := &queue[k]
			share, earlier := d.value/d.class.amounts.dot(duals), tier > 0 && d.value >= fitTiers[max(0, tier-1)]*d.class.amounts.dot(duals)
			if share >= least && !earlier && d.cands.PriceOf(cand) <= cand.Price {
				heavy := btoi(float64(d.requests[sv.memory])/float64(max(1, d.requests[sv.cpu])) > ratio)
				left[heavy] = append(left[heavy], k)
			}
		}
		unfit := func(k int) bool { return taken[k] == queue[k].n || !queue[k].requests.Within(free) }
		for {
			side := btoi(float64(free[sv.memory]) > ratio*float64(free[sv.cpu]))
			if left[side] = slices.DeleteFunc(left[side], unfit); len(left[side]) == 0 {
				side = 1 - side
				if left[side] = slices.DeleteFunc(left[side], unfit); len(left[side]) == 0 {
					break
				}
			}
			k := left[side][0]
			take(k, sv.untilBalanced(&queue[k], ratio, free))
		}
	}
	return taken
}

// variedQueue is a solver about to open its first bin for pods of all different sizes, some of which need zone z1.
func variedQueue(rng *rand.Rand) *solver {
	var pods []*corev1.Pod
	for i := range 300 {
		edit := []func(*corev1.Pod){enginetest.Requests("cpu", fmt.Sprint(50+rng.IntN(900), "m"), "memory", fmt.Sprint(64+rng.IntN(5000), "Mi"))}
		if i%7 == 0 {
			edit = append(edit, enginetest.Selects(enginetest.Zone, "z1"))
		}
		pods = append(pods, enginetest.Pod(fmt.Sprintf("pod-%03d", i), edit...))
	}
	types := append(enginetest.Types(), enginetest.Type("c.large", 0.6, "cpu", "16", "memory", "32Gi"),
		enginetest.Type("r.large", 0.7, "cpu", "12", "memory", "64Gi"), enginetest.Type("r.xlarge", 1.3, "cpu", "24", "memory", "128Gi"))
	sv := newSolver(enginetest.World([]snapshot.Pool{enginetest.Pool("general", types)}, pods...))
	sv.startRun(sv.compile(nil))
	sv.sumFreeRoom()
	sv.priceQueue()
	sv.resetWaiting()
	return sv
}

// Packings share orders between two solutions of the LP, and skip demands in blocks. Neither may change what they take.
func TestPackingsTakeWhatASlowPackingTakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	packed := 0
	for range 10 {
		sv := variedQueue(rng)
		first := sv.waiting[0].first()
		for round := range 6 {
			b := sv.bins.Fresh(sv.pools.All()[0])
			g, why := sv.bins.Grow(b, first.Class, first.Levels()[0], bin.AnyPrice)
			if why != nil {
				t.Fatalf("no new bin takes a pod: %v", why.Code())
			}
			queue := sv.lookAhead(b, first, g)
			for _, cand := range g.Candidates().List()[g.First():] {
				sv.pack(queue, first, packTarget{b.Template().TypeOf(cand), cand, -1}, nil)
				var got []int
				for k := range queue {
					got = append(got, queue[k].taken)
					packed += queue[k].taken
				}
				if want := sv.packSlowly(queue, first, cand); !slices.Equal(got, want) {
					t.Fatalf("%v takes %v, want %v", cand, got, want)
				}
			}
			for _, f := range sv.waiting { // some classes are used up, as later in a run
				if c := f.first(); c != nil && c != first && rng.IntN(4) == 0 {
					c.count, f.unplaced = 0, 0
				}
			}
			if round%2 == 1 {
				sv.resolve(sv.waitingClasses())
			}
		}
	}
	if packed < 5000 {
		t.Errorf("only %d pods were packed", packed)
	}
}
