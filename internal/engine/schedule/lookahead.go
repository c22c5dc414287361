package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxLookahead is how many classes of the queue are looked at when a node is opened.
const maxLookahead = 64

// demand is what a class still wants of a new node.
type demand struct {
	c      *class
	count  int
	admits bitset // of types
}

// ceiling is the price of the type on which the queue's pods would cost least: the best ratio of price to what
// is packed, counted by what those pods are worth. The bin may become anything up to that price.
func (sv *solver) ceiling(b *bin, first *class, g growth, rest []*queued) float64 {
	if sv.budget.Steps > 0 && sv.steps >= sv.budget.Steps {
		return math.Inf(1)
	}
	queue := sv.ahead(b, first, g, rest)
	best, price := math.Inf(1), math.Inf(1)
	for _, cand := range g.types {
		room := b.t.types[cand.t].room
		packed := 0.0
		used := g.total
		for _, d := range queue {
			if !d.admits.has(cand.t) {
				continue
			}
			sv.steps++
			n := copies(d, used, room)
			if n == 0 {
				continue
			}
			packed += float64(n) * d.c.weight
			next := make(vec, len(used))
			for i, r := range d.c.requests {
				next[i] = used[i] + r*int64(n)
			}
			used = next
		}
		packed += first.weight
		if packed <= 0 {
			return math.Inf(1)
		}
		// Among equals, rounding errors aside, the larger type makes fewer nodes.
		if score := cand.price / packed; score <= best*(1+1e-9) {
			best, price = min(best, score), cand.price
		}
	}
	return price
}

// copies is how many pods fit into what is left of room.
func copies(d demand, used, room vec) int {
	n := int64(d.count)
	for i, r := range d.c.requests {
		if r > 0 {
			n = min(n, max(0, room[i]-used[i])/r)
		}
	}
	return int(n)
}

// ahead lists the classes of the queue that could join the bin, as far as is known without placing them.
func (sv *solver) ahead(b *bin, first *class, g growth, rest []*queued) []demand {
	seen := map[*class]bool{}
	var out []demand
	for _, q := range rest {
		c := q.class
		if seen[c] {
			continue
		}
		seen[c] = true
		if len(seen) > maxLookahead {
			break
		}
		sh := c.shapes[0]
		if _, blocked := snapshot.Untolerated(sh.tolerations, b.t.taints); blocked || !g.reqs.Compatible(sh.full, sv.s.Labels.WellKnown) {
			continue
		}
		count := c.count
		if c == first {
			count--
		}
		if count = min(count, perNode(c, sh, c == first)); count <= 0 {
			continue
		}
		reqs := g.reqs.Intersect(sh.full.Without(corev1.LabelHostname))
		out = append(out, demand{c, count, sv.candidates(b.t, reqs).set})
	}
	return out
}

// perNode bounds how many more pods of the class one new node can get, by the topology that the class minds.
func perNode(c *class, sh *shape, started bool) int {
	most := math.MaxInt
	for _, v := range c.views(sh) {
		if !v.self {
			continue
		}
		switch {
		case v.g.kind == antiAffinity:
			most = 1
		case v.g.kind == spread && v.g.key == corev1.LabelHostname:
			most = min(most, v.g.maxSkew)
		case v.g.kind == spread:
			if n := len(v.g.usable); n > 0 {
				most = min(most, (c.count+n-1)/n)
			}
		}
	}
	if len(c.ports) > 0 {
		most = 1
	}
	if started && most != math.MaxInt {
		most--
	}
	return most
}
