package lp

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A fleet in which each larger node has a little more per dollar: the largest alone decides prices.
func TestOnlyTheMostRoomPerDollarGetsPatterns(t *testing.T) {
	in := Input{Axes: 2, Classes: 1}
	for cores := int64(2); cores <= 64; cores *= 2 {
		in.Offerings = append(in.Offerings, Offering{
			Room: []int64{1000*cores - 100, 4096*cores - 500}, Price: 0.05 * float64(cores), Classes: 1,
		})
	}
	in.Pods = []Pods{{Requests: []int64{500, 1024}, Count: 500}, {Requests: []int64{250, 4096}, Count: 500}}
	p := New(in)
	if len(p.frontier) != 1 || p.frontier[0].price != 3.2 {
		t.Fatalf("%d offerings are on the frontier, the first at $%v/h", len(p.frontier), p.frontier[0].price)
	}
	for _, pattern := range p.master.patterns {
		if pattern.column != p.frontier[0].index {
			t.Errorf("offering %d has a pattern", pattern.column)
		}
	}
}

// Beaten offerings change no price: with patterns for all offerings the bound is the same, but for the gap at which the
// search stops.
func TestBeatenOfferingsDoNotChangeTheBound(t *testing.T) {
	thorough := effort{rounds: 200, gap: 1e-4}
	beaten := 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		in := benchInput(1 + r.IntN(4))
		in.Offerings, in.Pods = in.Offerings[:30+r.IntN(90)], in.Pods[:100+r.IntN(200)]
		for i := range in.Offerings {
			o := &in.Offerings[i]
			o.Room = []int64{o.Room[0], o.Room[1], o.Room[0] / 100} // larger nodes hold more pods
		}
		p, all := newProgram(in), newProgram(in)
		beaten += len(p.columns) - len(p.frontier)
		all.frontier = nil
		for k := range all.columns {
			all.columns[k].best = k
			all.frontier = append(all.frontier, &all.columns[k])
		}
		p.generateColumns(thorough)
		all.generateColumns(thorough)
		if got, want := p.bound(), all.bound(); math.Abs(got-want) > 2*thorough.gap*want {
			t.Errorf("seed %d: the bound is %v, and %v with patterns for all offerings", seed, got, want)
		}
	}
	if beaten < 300 {
		t.Errorf("only %d offerings are beaten: the test says little", beaten)
	}
}

// bound is the value of all demand at the best prices.
func (p *Program) bound() float64 { return dot(p.master.demand, p.stabilityCenter) }

// The value of a pod is the least over all offerings that hold it, although Value mostly looks at the frontier alone.
func TestValueIsTheLeastOverAllOfferings(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 10))
		in := randomInput(r)
		p := New(in)
		for k := range in.Pods {
			want := math.Inf(1)
			for i := range in.Offerings {
				c := p.representative[i]
				if c >= 0 && in.Offerings[i].Classes.Has(in.Pods[k].Class) && within(in.Pods[k].Requests, p.columns[c].room) {
					want = min(want, dotQuads(p.requests.at(k), p.feasible.at(int(c))))
				}
			}
			if got := p.Value(k); !math.IsInf(want, 1) && math.Abs(got-want) > 1e-8*want {
				t.Errorf("seed %d: a pod %d is worth %v, and costs %v at least", seed, k, got, want)
			}
		}
	}
}
