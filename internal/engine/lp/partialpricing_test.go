package lp

import (
	"math/rand/v2"
	"testing"
)

// An axis of which all nodes have as much puts most offerings on the frontier. Partial pricing proves no less there, but
// for its gap, than the search of all of them with many rounds, and no more than any plan costs.
func TestPartialPricingProvesAsMuch(t *testing.T) {
	thorough := effort{rounds: 100, gap: 0.003}
	frontier := 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 12))
		in := benchInput(1 + r.IntN(3))
		in.Offerings, in.Pods = in.Offerings[:150], in.Pods[:100+r.IntN(200)]
		for i := range in.Offerings {
			o := &in.Offerings[i]
			o.Room = []int64{o.Room[0], o.Room[1], 4}
		}
		for k := range in.Pods {
			in.Pods[k].Requests = []int64{in.Pods[k].Requests[0], in.Pods[k].Requests[1], int64(k % 2)}
		}
		all := newProgram(in)
		all.generateColumns(thorough)
		in.Partial = true
		p := New(in)
		frontier += len(p.frontier)
		cost, err := planCost(all)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.bound(), all.bound(); got < want*(1-2*partialGap) || got > cost*(1+tiny) {
			t.Errorf("seed %d: partial pricing proves %v, all offerings prove %v, patterns cost %v", seed, got, want, cost)
		}
	}
	if frontier < 250 {
		t.Errorf("only %d offerings are on the frontiers: the test says little", frontier)
	}
}
