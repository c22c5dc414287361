package sizing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
)

// slowPacking describes what pack takes of each demand, with the order found anew and each demand looked at each time.
type slowPacking struct {
	packer
	taken []int
}

func (p *slowPacking) unfit(k int) bool {
	return p.taken[k] == p.queue[k].n || !p.queue[k].requests.Within(p.free)
}

func (p *slowPacking) take(k, most int) {
	for range most {
		if p.unfit(k) {
			return
		}
		p.free = p.free.Minus(p.queue[k].requests)
		p.taken[k]++
	}
}

// worth is the value of a demand's pods per cost at dual prices.
func worth(d *demand, duals []float64) float64 {
	return d.value / costOf(d.requests, duals)
}

// tier are the demands of a tier, the CPU-heavy and the memory-heavy ones.
func (p *slowPacking) tier(tier int, duals []float64) (out [2][]int) {
	for k := range p.queue {
		d := &p.queue[k]
		earlier := tier > 0 && worth(d, duals) >= fitTiers[tier-1]
		if worth(d, duals) >= fitTiers[tier] && !earlier && d.cands.PriceOf(p.cand) <= p.cand.Price {
			heavy := btoi(float64(d.requests[p.memory])/float64(max(1, d.requests[p.cpu])) > p.ratio)
			out[heavy] = append(out[heavy], k)
		}
	}
	return out
}

func (f *fixture) packSlowly(queue []demand, first *Pods, cand nodepool.Candidate) []int {
	ti := f.pool.TypeOf(cand)
	room := ti.Room()
	p := &slowPacking{packer{
		queue: queue, cpu: f.c.CPU, memory: f.c.Memory, cand: cand, free: room.Minus(first.Requests()),
		ratio: float64(room[f.c.Memory]) / float64(max(1, room[f.c.CPU])),
	}, make([]int, len(queue))}
	for tier := range fitTiers {
		left := p.tier(tier, f.market.Duals(ti, cand))
		for {
			side := btoi(float64(p.free[p.memory]) > p.ratio*float64(p.free[p.cpu]))
			if left[side] = slices.DeleteFunc(left[side], p.unfit); len(left[side]) == 0 {
				side = 1 - side
				if left[side] = slices.DeleteFunc(left[side], p.unfit); len(left[side]) == 0 {
					break
				}
			}
			k := left[side][0]
			p.take(k, p.untilBalanced(&queue[k]))
		}
	}
	return p.taken
}

// variedQueue is pods of all different sizes, some of which need zone z1.
func variedQueue(t *testing.T, rng *rand.Rand) *fixture {
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
	return newFixture(t, enginetest.Pool("general", types), pods...)
}

// Packings share orders between two prices, and skip demands in blocks. Neither may change what they take.
func TestPackingsTakeWhatASlowPackingTakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	packed := 0
	for range 10 {
		f := variedQueue(t, rng)
		first := f.queue[0]
		for round := range 6 {
			o := f.opening(first)
			queue, list := f.lookAhead(o), o.Growth.Candidates().List()
			for k := o.Growth.First(); k < len(list); k++ {
				f.pack(queue, first, f.target(o, k, -1), nil)
				var got []int
				for i := range queue {
					got = append(got, queue[i].taken)
					packed += queue[i].taken
				}
				if want := f.packSlowly(queue, first, list[k]); !slices.Equal(got, want) {
					t.Fatalf("%v takes %v, want %v", list[k], got, want)
				}
			}
			for _, p := range f.queue[1:] { // some classes are used up, as later in a run
				for p.Left() > 0 && rng.IntN(4) == 0 {
					p.Place()
				}
			}
			if round%2 == 1 {
				f.reprice()
			}
		}
	}
	if packed < 5000 {
		t.Errorf("only %d pods were packed", packed)
	}
}
