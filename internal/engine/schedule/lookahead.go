package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxLookahead is how many families of the queue are looked at when a node is opened.
	maxLookahead = 1000
	// perTier is how many types of about the same price are looked at.
	perTier = 2
	// alike is the ratio up to which two sizes cost the same for what they hold; the larger makes fewer nodes.
	alike = 1.002
	// trusted is how much better a packing that follows the market's program is taken to be than it looks: it
	// leaves a queue that is as good to pack.
	trusted = 1.02
)

// demand is what a family still wants of a new node.
type demand struct {
	c  *class // the first of it
	n  int
	on *candidates // where its pods can be, together with the first
	// worth is that of one pod.
	worth float64
	// ratio is bytes per thousandth of a core.
	ratio float64
	// tier is how well the pods go with the type at hand, taken how many are in the room that is being packed.
	tier, taken int
	// quota bounds, together with other classes, how many pods one node can have; -1 if nothing does.
	quota int
	// requests and amounts are what one pod asks for.
	requests vec
	amounts  vec64
}

// quotas are how many pods one node can have of each group that keeps pods apart on hosts.
type quotas struct {
	groups []*group
	most   []int // for an empty node
	left   []int
}

// of is the quota that the class's pods share; -1 if there is none.
func (q *quotas) of(first, c *class, sh *shape) int {
	views := c.views(sh)
	for i := range views {
		v := &views[i]
		if !v.self || v.g.key != corev1.LabelHostname || v.g.kind != spread && v.g.kind != antiAffinity {
			continue
		}
		if k := slices.Index(q.groups, v.g); k >= 0 {
			return k
		}
		most := 1
		if v.g.kind == spread {
			most = v.g.maxSkew
		}
		if slices.Contains(first.matches, v.g) {
			most--
		}
		q.groups, q.most = append(q.groups, v.g), append(q.most, most)
		return len(q.groups) - 1
	}
	return -1
}

// portion is n pods of a family that a bin was sized for; nil if they may go wherever there is room.
type portion struct {
	f    *family
	n    int
	into *bin
}

// recent is how many of the last bins may be enlarged instead of opening another.
const recent = 8

// enlarge looks for a bin that, for no more than a new one would cost, could hold what the new one was sized for
// as well: fewer nodes for the same price. It returns what the pod then makes of it.
func (sv *solver) enlarge(fresh *bin, g growth, a ask, content []portion) (*bin, growth) {
	price := g.on.list[g.first].price
	total := slices.Clone(a.c.requests)
	for _, p := range content {
		for i, r := range p.f.members[0].requests {
			total[i] += r * int64(p.n)
		}
	}
	if fresh.target.t >= 0 {
		price = fresh.ceiling
	}
	for k := len(sv.bins) - 1; k >= max(0, len(sv.bins)-recent); k-- {
		b := sv.bins[k]
		if b.t != fresh.t || b.on.hasMin {
			continue
		}
		on, why := sv.narrow(b.on, a.sh.asks)
		if why != nil {
			continue
		}
		if on = sv.equippedFirst(b, a.c, on); on == nil {
			continue
		}
		limit := (b.on.list[b.first].price + price) * (1 + 1e-9)
		for _, cand := range on.list {
			if cand.price > limit {
				break
			}
			if !total.fitsBeside(b.total, b.t.types[cand.t].room) || !sv.may(b, cand, thrifty) {
				continue
			}
			ceiling, target := b.ceiling, b.target
			b.ceiling, b.target, b.room = max(ceiling, cand.price), cand, nil
			if grown, why := sv.grow(b, a.c, a.sh, thrifty); why == nil {
				return b, grown
			}
			b.ceiling, b.target = ceiling, target
			break
		}
	}
	return nil, growth{}
}

// size decides what a new bin is to become: the type on which the queue's pods cost least, by the ratio of price to
// the worth of what is packed. It returns what is to be packed besides the first pod.
func (sv *solver) size(b *bin, first *class, g growth) []portion {
	if sv.budget.Steps > 0 && sv.steps >= sv.budget.Steps || first.weight <= 0 || sv.how == firstFit {
		return nil
	}
	sv.reappraise()
	if first.weight <= 0 {
		return nil
	}
	queue := sv.ahead(b, first, g)
	best, size, recipe := math.Inf(1), -1, -1
	for _, pick := range sv.shortlist(b, first, g) {
		cand := g.on.list[pick.k]
		packed := first.weight + sv.pack(queue, first, &b.t.types[cand.t], cand, pick.recipe, nil)
		sv.steps += len(queue)
		score := cand.price / packed
		if pick.recipe >= 0 {
			score /= trusted
		}
		if score < best/alike || score <= best*alike && (size < 0 || cand.price > g.on.list[size].price) {
			best, size, recipe = min(best, score), pick.k, pick.recipe
		}
	}
	if size < 0 {
		return nil
	}
	if recipe >= 0 {
		sv.market.lp.level[recipe]--
	}
	cand := g.on.list[size]
	b.ceiling, b.target = cand.price, cand
	var content []portion
	sv.pack(queue, first, &b.t.types[cand.t], cand, recipe, &content)
	return content
}

// tiers are how well pods go with a type: the share that they are worth of the rent that they would pay on it. Those
// of an earlier tier are packed first.
var tiers = [...]float64{0.985, 0.95, 0}

// pack fills a room with the first pod and then as much as fits, and returns what that is worth. Pods that keep apart
// come first, since each node can have few of them; then those who pay the rent, and last those to whom the room
// is worth less than it costs. Of each, of cores and memory, the next pod asks for more of what is left more of,
// for a room is wasted when one runs out early; among those that do, the order is the queue's.
func (sv *solver) pack(queue []demand, first *class, ti *typeInfo, on candidate, recipe int, content *[]portion) float64 {
	room := ti.room
	free := sv.scratch[:len(room)]
	for i, r := range room {
		free[i] = r - first.requests[i]
	}
	worth := 0.0
	take := func(d *demand, most int) {
		n := int64(min(d.n-d.taken, most))
		if d.quota >= 0 {
			n = min(n, int64(sv.quotas.left[d.quota]))
			sv.quotas.left[d.quota] -= int(n)
		}
		if n > 1 {
			for i, r := range d.requests {
				if r > 0 {
					n = min(n, free[i]/r)
				}
			}
		}
		for i, r := range d.requests {
			free[i] -= n * r
		}
		d.taken += int(n)
		worth += float64(n) * d.worth
		if content != nil && n > 0 {
			*content = append(*content, portion{f: d.c.family, n: int(n)})
		}
	}
	ratio := math.Inf(1) // everybody leans to cores
	if sv.how == balanced {
		ratio = float64(room[sv.memory]) / float64(max(1, room[sv.cpu]))
	}
	sv.rank(queue, sv.market.rentOf(ti, on), ratio, on)
	if sv.quotas.left = append(sv.quotas.left[:0], sv.quotas.most...); len(sv.quotas.left) > 0 {
		for k := range queue {
			if d := &queue[k]; d.quota >= 0 && sv.quotas.left[d.quota] > 0 && d.requests.within(free) && d.on.priceOf(on) <= on.price {
				take(d, d.n)
			}
		}
	}
	if recipe >= 0 {
		sv.follow(queue, first, recipe, free, take)
	}
	for tier := range tiers {
		sv.packTier(queue, tier, ratio, free, take)
	}
	return worth
}

// rank finds each demand's tier on the type, -1 if it cannot be had there at the type's price, and sorts those of each tier
// by whether they lean to cores or to memory.
func (sv *solver) rank(queue []demand, rent vec64, ratio float64, on candidate) {
	for tier := range tiers {
		for side := range 2 {
			sv.ranked[tier][side] = sv.ranked[tier][side][:0]
		}
	}
	for k := range queue {
		d := &queue[k]
		d.tier, d.taken = -1, 0
		if d.quota >= 0 || d.on.priceOf(on) > on.price {
			continue
		}
		pays := d.amounts.dot(rent)
		for d.tier = 0; d.tier < len(tiers)-1 && d.worth < tiers[d.tier]*pays; d.tier++ {
		}
		list := &sv.ranked[d.tier][btoi(d.ratio > ratio)]
		*list = append(*list, int32(k))
	}
}

// follow packs by a pattern of the market's program: of each bucket as much as it says.
func (sv *solver) follow(queue []demand, first *class, recipe int, free vec, take func(*demand, int)) {
	m := sv.market
	p := &m.lp.patterns[m.lp.basis[recipe]]
	m.allowed = append(m.allowed[:0], p.amounts...)
	for i, row := range p.rows {
		if row == first.bucket {
			m.allowed[i] -= first.norm
		}
	}
	for k := range queue {
		d := &queue[k]
		if d.tier < 0 || d.c.bucket < 0 {
			continue
		}
		if i := slices.Index(p.rows, d.c.bucket); i >= 0 {
			if n := int(m.allowed[i]/d.c.norm + 0.5); n > 0 && d.requests.within(free) {
				take(d, n)
				m.allowed[i] -= float64(d.taken) * d.c.norm
			}
		}
	}
}

// packTier takes from the queue whatever of the tier fits, in balance.
func (sv *solver) packTier(queue []demand, tier int, ratio float64, free vec, take func(*demand, int)) {
	left := sv.ranked[tier] // those that lean to cores, and to memory, as far as they have not been looked at
	for {
		side := 0
		if sv.how == balanced {
			side = btoi(float64(free[sv.memory]) > ratio*float64(free[sv.cpu]))
		}
		if left[side] = seek(queue, left[side], free); len(left[side]) == 0 {
			side = 1 - side
			if left[side] = seek(queue, left[side], free); len(left[side]) == 0 {
				return
			}
		}
		d := &queue[left[side][0]]
		if sv.how != balanced || len(left[1-side]) == 0 {
			take(d, d.n)
			left[side] = left[side][1:]
			continue
		}
		take(d, d.untilBalanced(ratio, free[sv.cpu], free[sv.memory], d.requests[sv.cpu], d.requests[sv.memory]))
	}
}

// inTurn is into how many turns at most a large demand is divided.
const inTurn = 64

// untilBalanced is how many pods of the demand it takes until the other side has its turn.
func (d *demand) untilBalanced(ratio float64, cpu, memory, ofCPU, ofMemory int64) int {
	leans := float64(ofMemory) - ratio*float64(ofCPU)
	if leans == 0 {
		return d.n
	}
	n := math.Ceil((float64(memory) - ratio*float64(cpu)) / leans)
	return int(min(max(n, 1+float64(d.n/inTurn)), float64(d.n)))
}

// seek drops those in front that do not fit.
func seek(queue []demand, list []int32, free vec) []int32 {
	for len(list) > 0 {
		if d := &queue[list[0]]; d.taken < d.n && d.requests.within(free) {
			break
		}
		list = list[1:]
	}
	return list
}

// rated is a type of a list with its price for the worth that it could hold.
type rated struct {
	k      int
	ratio  float64
	recipe int // in the basis of the market's program; -1: none
}

// shortlist picks, from each tier of price, the types that would cost least for what they would hold besides the first pod,
// and all of which the market's program would buy some for it.
func (sv *solver) shortlist(b *bin, first *class, g growth) []rated {
	m := sv.market
	recipes := m.recipes(first)
	var out []rated
	var tier [perTier]rated // the best of the tier so far
	n := 0
	top := 0.0
	for k := g.first; k < len(g.on.list); k++ {
		cand := g.on.list[k]
		ti := &b.t.types[cand.t]
		if !first.requests.fits(ti.room) || !ti.capacity.withinSum(b.t.left, b.reserved) || !sv.may(b, cand, thrifty) {
			continue
		}
		if cand.price > top {
			out = append(out, tier[:n]...)
			n, top = 0, cand.price*1.4
		}
		rent := m.rentOf(ti, cand)
		if cand.offer >= 0 {
			for _, i := range recipes {
				if col := m.lp.patterns[m.lp.basis[i]].column; col == int(m.standIn[cand.offer]) && cand.price == m.columns[col].price {
					out = append(out, rated{k: k, recipe: i})
				}
			}
		}
		r := rated{k, cand.price / max(tiny, rent.times(ti.room)-max(0, rent.times(first.requests)-first.weight)), -1}
		if n < perTier {
			n++
		} else if r.ratio >= tier[n-1].ratio {
			continue
		}
		at := n - 1
		for ; at > 0 && r.ratio < tier[at-1].ratio; at-- {
			tier[at] = tier[at-1]
		}
		tier[at] = r
	}
	return append(out, tier[:n]...)
}

// recipes are the patterns of several rows, that is with a balance to keep, of which the market's program would buy more
// than one node, with pods like the first.
func (m *market) recipes(first *class) []int {
	m.open = m.open[:0]
	if first.bucket < 0 {
		return m.open
	}
	for i, j := range m.lp.basis {
		if j >= 0 && m.lp.level[i] >= 1.5 && len(m.lp.patterns[j].rows) > 1 && slices.Contains(m.lp.patterns[j].rows, first.bucket) {
			m.open = append(m.open, i)
		}
	}
	return m.open
}

// times is what an amount costs.
func (v vec64) times(amount vec) float64 {
	total := 0.0
	for i, x := range amount {
		total += float64(x) * v[i]
	}
	return total
}

// ahead lists the families of the queue that could join the bin, as far as is known without placing them.
func (sv *solver) ahead(b *bin, first *class, g growth) []demand {
	out := sv.queue[:0]
	sv.quotas.groups, sv.quotas.most = sv.quotas.groups[:0], sv.quotas.most[:0]
	seen, gone := 0, 0
	for _, f := range sv.waiting {
		c := f.first()
		if c == nil {
			gone++
			continue
		}
		if seen++; seen > maxLookahead {
			break
		}
		sh := c.hopeful()
		if sh == nil || sh.blocked.has(b.t.index) {
			continue
		}
		on, why := sv.narrow(g.on, sh.asks)
		if why == nil && len(c.volumes) == 1 {
			on, why = sv.narrow(on, c.volumes[0])
		}
		if why != nil || !comesAlong(first, c, sh, on) {
			continue
		}
		n, started := f.left, f == first.family
		if started {
			n--
		}
		if n = min(n, perNode(c, sh, started)); n > 0 {
			out = append(out, demand{
				c: c, n: n, on: on, worth: c.weight, ratio: float64(c.requests[sv.memory]) / float64(max(1, c.requests[sv.cpu])), quota: sv.quotas.of(first, c, sh),
				requests: c.requests, amounts: c.amounts,
			})
		}
	}
	sv.queue = out
	if gone > maxLookahead {
		sv.waiting = slices.DeleteFunc(sv.waiting, func(f *family) bool { return f.left == 0 })
	}
	return out
}

// hopeful is the first shape that a new node could satisfy, as far as is known.
func (c *class) hopeful() *shape {
	for i := range c.tries {
		if !c.tries[i].noNew {
			return c.shapes[i]
		}
	}
	return nil
}

// comesAlong tells whether pods that keep together could come to where the candidates are, after the first.
func comesAlong(first, c *class, sh *shape, on *candidates) bool {
	views := c.views(sh)
	for i := range views {
		v := &views[i]
		if v.g.kind == spread || v.g.key == corev1.LabelHostname || v.g.kind == affinity && slices.Contains(first.matches, v.g) {
			continue
		}
		if domain, ok := on.domain(v.g.key); ok && !v.allows(domain) {
			return false
		}
	}
	return true
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
				most = min(most, (c.family.left+n-1)/n)
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
