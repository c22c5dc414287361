package lp

import "math"

const (
	// maxBuckets bounds the rows of the master LP: proportions are distinguished as finely as it allows. The basis inverse
	// has rows squared entries, and a pivot touches all of them. bucketsPerClass more are allowed per demand class, up
	// to maxMoreBuckets, since each demand class has buckets of its own.
	maxBuckets      = 24
	bucketsPerClass = 12
	maxMoreBuckets  = 100
	// finestSteps and coarsestSteps are the resolution of proportions, in steps per factor of two: from about 12 % to a
	// factor of 32. Each attempt is coarser than the last by the factor coarser.
	finestSteps, coarsestSteps, coarser = 6.0, 0.2, 1.5
	// negligible is the share of the largest request below which a request counts as none.
	negligible = 1.0 / 64
	// maxProportions limits how many axes in use are distinguished.
	maxProportions = 4
	// noRequest is the step of a negligible request.
	noRequest = math.MinInt8
)

// bucket is pods of one demand class that request resources in about the same proportions.
type bucket struct {
	class  int
	amount []quad  // one unit of it, on the axes in use, in units of scale
	demand float64 // units
}

// proportions are binary logarithms: the requests of a pod on the first axes in use, relative to its largest. They are
// -Inf where the request is negligible. Further axes are not distinguished.
type proportions [maxProportions]float64

// bucketKey identifies a bucket: a demand class and rounded proportions.
type bucketKey struct {
	class int
	steps [maxProportions]int8
}

// makeBuckets groups the pods into buckets, coarser until these are few enough, and gives the master LP its rows.
func (p *Program) makeBuckets() {
	logs := make([]proportions, len(p.pods))
	for k := range p.pods {
		if p.pods[k].held {
			logs[k] = p.proportions(k)
		}
	}
	most := maxBuckets + min(bucketsPerClass*len(p.classes), maxMoreBuckets)
	for perOctave := finestSteps; ; perOctave /= coarser {
		p.groupPods(logs, perOctave)
		if len(p.buckets) <= most || perOctave < coarsestSteps {
			break
		}
	}
	moved := p.seedMaster()
	for k := range p.pods {
		if g := &p.pods[k]; g.bucket >= 0 {
			g.bucket = moved[g.bucket]
		}
	}
}

// proportions also sets the pod's norm.
func (p *Program) proportions(pods int) (out proportions) {
	g, shares, top := &p.pods[pods], p.requests.at(pods), 0.0
	for n := range p.axesInUse {
		g.norm += shares[n/4][n%4]
		top = max(top, shares[n/4][n%4])
	}
	if top == 0 {
		return out
	}
	for n := range min(len(p.axesInUse), len(out)) {
		out[n] = math.Inf(-1)
		if x := shares[0][n] / top; x > negligible {
			out[n] = math.Log2(x)
		}
	}
	return out
}

// groupPods groups pods by demand class and, in logarithmic steps, by the proportions of their requests. Pods that
// request nothing are in no bucket.
func (p *Program) groupPods(logs []proportions, perOctave float64) {
	p.buckets = p.buckets[:0]
	index := map[bucketKey]int{}
	for at := range p.pods {
		g := &p.pods[at]
		g.bucket = -1
		if !g.held || g.Count == 0 || g.norm == 0 {
			continue
		}
		key := bucketKey{class: g.Class}
		for n, x := range logs[at][:min(len(p.axesInUse), maxProportions)] {
			key.steps[n] = noRequest
			if !math.IsInf(x, -1) {
				key.steps[n] = int8(math.Round(x * perOctave))
			}
		}
		k, ok := index[key]
		if !ok {
			k = len(p.buckets)
			index[key] = k
			p.buckets = append(p.buckets, bucket{class: g.Class, amount: make([]quad, p.requests.stride)})
		}
		b := &p.buckets[k]
		for i, shares := range p.requests.at(at) {
			for n, x := range shares {
				b.amount[i][n] += float64(x * float64(g.Count))
			}
		}
		b.demand += float64(float64(g.Count) * g.norm)
		g.bucket = k
	}
	for k := range p.buckets {
		b := &p.buckets[k]
		for i := range b.amount {
			for n := range b.amount[i] {
				b.amount[i][n] /= b.demand
			}
		}
	}
}

// seedMaster gives the master LP one pattern per bucket: the offering that is cheapest for it alone. These patterns are
// the first basis. It drops buckets that no offering holds and returns the new index of each bucket, -1 for dropped
// ones.
func (p *Program) seedMaster() []int {
	var rows []bucket
	moved := make([]int, len(p.buckets))
	for k, b := range p.buckets {
		moved[k] = -1
		best, price, fits := -1, math.Inf(1), 0.0
		for _, i := range p.classes[b.class].frontier {
			if n := holds(b.amount, p.sizes.at(i)); n > tiny && p.columns[i].price/n < price {
				best, price, fits = i, p.columns[i].price/n, n
			}
		}
		if best >= 0 {
			moved[k] = len(rows)
			p.columns[best].patterns = append(p.columns[best].patterns, int32(len(rows)))
			p.master.add(pattern{[]entry{{int32(len(rows)), fits}}, p.columns[best].price, best})
			rows = append(rows, b)
		}
	}
	p.buckets = rows
	return moved
}

// holds returns how much of a bucket alone fits into a room.
func holds(amount, room []quad) float64 {
	most := math.Inf(1)
	for i := range amount {
		for n, x := range amount[i] {
			if x > 0 {
				most = min(most, room[i][n]/x)
			}
		}
	}
	return most
}

// usesOnlyAxesOf reports whether a room has some of every resource that a bucket requests.
func usesOnlyAxesOf(amount, room []quad) bool { return holds(amount, room) > 0 }
