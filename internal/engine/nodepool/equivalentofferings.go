package nodepool

import (
	"cmp"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Equivalents are offerings sorted into those for which one stands: with the same room, and in the same of some sets. A hundred pools
// that offer the same types have as many that differ as one of them.
type Equivalents struct {
	// Representatives stand for all, in the order of their numbers.
	Representatives []Representative
	// By is by number of all offerings the index of the one that stands for it; -1 if it is in no set, or if nothing fits on it.
	By []int32
}

// Representative is the cheapest of the offerings that are alike, the first of equal ones.
type Representative struct {
	Number int
	Room   resources.Vec
	// Price is that of a node, in $/h: see NodePrice.
	Price float64
	// Sets has bit i if the offerings are in set i.
	Sets uint32
}

// keptEquivalents sets how many results are kept. The pods of most simulations are in one of few sets of classes, and a result for 100
// pools takes a megabyte.
const keptEquivalents = 8

// Equivalents sorts the offerings that are in any of the sets, of which there are up to 32. Neither they nor the result may change.
//
// Cost: linear in the offerings of the templates that have some in a set; for the last sets, what it takes to compare them.
func (m *Models) Equivalents(sets []resources.Bitset) *Equivalents {
	same := func(a, b resources.Bitset) bool { return slices.Equal(a, b) }
	for _, known := range m.equivalents {
		if slices.EqualFunc(known.sets, sets, same) {
			return known.result
		}
	}
	if len(m.equivalents) == keptEquivalents {
		m.equivalents = slices.Delete(m.equivalents, 0, 1)
	}
	result := m.findEquivalents(sets)
	m.equivalents = append(m.equivalents, knownEquivalents{sets, result})
	return result
}

type knownEquivalents struct {
	sets   []resources.Bitset
	result *Equivalents
}

func (m *Models) findEquivalents(sets []resources.Bitset) *Equivalents {
	a := &equivalentsSearch{
		m: m, sets: sets, inAny: make(resources.Bitset, (m.offerings+63)/64), known: map[common]int32{}, by: make([]int32, m.offerings),
	}
	for i := range a.by {
		a.by[i] = -1
	}
	for _, set := range sets {
		for i, word := range set {
			a.inAny[i] |= word
		}
	}
	for _, t := range m.All() {
		if !a.concerns(t) {
			continue
		}
		for i := range t.types {
			if ti := &t.types[i]; !slices.ContainsFunc(ti.room, func(r int64) bool { return r < 0 }) {
				a.add(ti)
			}
		}
	}
	return a.sorted()
}

// equivalentsSearch holds those that were found so far.
type equivalentsSearch struct {
	m     *Models
	sets  []resources.Bitset
	inAny resources.Bitset
	found []Representative
	known map[common]int32
	by    []int32 // indices in found
}

// common describes what alike offerings have in common. Types with equal room share it.
type common struct {
	room *int64
	sets uint32
}

// concerns reports whether offerings of the template may be in a set.
func (a *equivalentsSearch) concerns(t *Template) bool {
	if len(t.types) == 0 {
		return false
	}
	last := &t.types[len(t.types)-1]
	words := a.inAny[t.types[0].offering/64 : (last.offering+len(last.Offerings)+63)/64]
	return slices.ContainsFunc(words, func(word uint64) bool { return word != 0 })
}

// add sorts in the offerings of a type.
func (a *equivalentsSearch) add(ti *Type) {
	last, at := common{}, int32(-1) // most offerings of a type are alike
	for k := range ti.Offerings {
		number := ti.offering + k
		if !a.inAny.Has(number) {
			continue
		}
		like, price := common{&ti.room[0], a.setsOf(number)}, a.m.NodePrice(ti.Offerings[k].Price)
		if like != last {
			known, ok := a.known[like]
			if !ok {
				known = int32(len(a.found))
				a.known[like] = known
				a.found = append(a.found, Representative{number, ti.room, price, like.sets})
			}
			last, at = like, known
		}
		a.by[number] = at
		if s := &a.found[at]; price < s.Price {
			s.Price, s.Number = price, number
		}
	}
}

func (a *equivalentsSearch) setsOf(number int) (out uint32) {
	for i, set := range a.sets {
		if set.Has(number) {
			out |= 1 << i
		}
	}
	return out
}

// sorted is the result.
func (a *equivalentsSearch) sorted() *Equivalents {
	order := make([]int32, len(a.found))
	for k := range order {
		order[k] = int32(k)
	}
	slices.SortFunc(order, func(x, y int32) int { return cmp.Compare(a.found[x].Number, a.found[y].Number) })
	out, place := &Equivalents{By: a.by}, make([]int32, len(order))
	for k, i := range order {
		place[i] = int32(k)
		out.Representatives = append(out.Representatives, a.found[i])
	}
	for number, k := range out.By {
		if k >= 0 {
			out.By[number] = place[k]
		}
	}
	return out
}
