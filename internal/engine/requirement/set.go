package requirement

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Set is a conjunction of requirements with different keys. The zero Set requires nothing.
type Set struct {
	// list is sorted by key and never modified once it is reachable from a Set.
	list []Requirement
}

// NewSet returns the conjunction of reqs; requirements with the same key are intersected.
func NewSet(reqs ...Requirement) Set { return Set{}.With(reqs...) }

// FromExactLabels returns each label as "key In [value]", with keys as they are. Use Labels.FromLabels for labels of
// API objects, which may have aliases as keys.
func FromExactLabels(labels map[string]string) Set {
	list, values := make([]Requirement, 0, len(labels)), make([]string, 0, len(labels))
	for i, k := range slices.Sorted(maps.Keys(labels)) {
		values = append(values, labels[k])
		list = append(list, Requirement{key: k, values: values[i : i+1 : i+1]})
	}
	return Set{list: list}
}

// find returns the place of key in the list. It is the hottest function of a search for consolidation: slices.BinarySearchFunc would copy
// a Requirement and compare its key twice for each step, which takes twice as long.
func (s Set) find(key string) (int, bool) {
	low, high := 0, len(s.list)
	for low < high {
		if middle := (low + high) / 2; s.list[middle].key < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(s.list) && s.list[low].key == key
}

// Get returns the requirement on key; Exists when there is none, since any value will do then.
func (s Set) Get(key string) Requirement {
	if i, ok := s.find(key); ok {
		return s.list[i]
	}
	return Exists(key)
}

// Defines reports whether the set has a requirement on key.
func (s Set) Defines(key string) bool {
	_, ok := s.find(key)
	return ok
}

// Len is the number of keys.
func (s Set) Len() int { return len(s.list) }

// All are the requirements, sorted by key. The caller must not modify them.
func (s Set) All() []Requirement { return s.list }

// Keys of the set, sorted.
func (s Set) Keys() []string {
	keys := make([]string, len(s.list))
	for i, r := range s.list {
		keys[i] = r.key
	}
	return keys
}

// With returns s and reqs, intersected key by key.
func (s Set) With(reqs ...Requirement) Set {
	if len(reqs) == 0 {
		return s
	}
	order := make([]int, len(reqs)) // sort indexes, since requirements are large to move
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(reqs[a].key, reqs[b].key), a-b) })
	merged := make([]Requirement, 0, len(reqs))
	for first := 0; first < len(order); {
		last := first + 1
		for last < len(order) && reqs[order[last]].key == reqs[order[first]].key {
			last++
		}
		merged = append(merged, intersectAll(reqs, order[first:last]))
		first = last
	}
	return s.Intersect(Set{list: merged})
}

// intersectAll intersects requirements with the same key, given by index. It divides and conquers: one after the other,
// thousands that exclude a value each would copy a growing list every time (quadratic instead of n log n).
func intersectAll(reqs []Requirement, which []int) Requirement {
	if len(which) == 1 {
		return reqs[which[0]]
	}
	half := len(which) / 2
	return intersectAll(reqs, which[:half]).Intersect(intersectAll(reqs, which[half:]))
}

// Intersect returns the conjunction of both.
func (s Set) Intersect(o Set) Set {
	switch {
	case len(o.list) == 0:
		return s
	case len(s.list) == 0:
		return o
	}
	out := make([]Requirement, 0, len(s.list)+len(o.list))
	i, j := 0, 0
	for i < len(s.list) && j < len(o.list) {
		switch c := strings.Compare(s.list[i].key, o.list[j].key); {
		case c < 0:
			out = append(out, s.list[i])
			i++
		case c > 0:
			out = append(out, o.list[j])
			j++
		default:
			out = append(out, s.list[i].Intersect(o.list[j]))
			i, j = i+1, j+1
		}
	}
	out = append(out, s.list[i:]...)
	return Set{list: append(out, o.list[j:]...)}
}

// Replace returns s with r in place of its requirement on r's key.
func (s Set) Replace(r Requirement) Set {
	return s.Without(r.key).With(r)
}

// Without returns s without requirements on keys.
func (s Set) Without(keys ...string) Set {
	out := make([]Requirement, 0, len(s.list))
	drop := func(key string) bool { return slices.Contains(keys, key) }
	if len(keys) > lopsided {
		sorted := slices.Sorted(slices.Values(keys))
		drop = func(key string) bool {
			_, found := slices.BinarySearch(sorted, key)
			return found
		}
	}
	for _, r := range s.list {
		if !drop(r.key) {
			out = append(out, r)
		}
	}
	return Set{list: out}
}

// lopsided is the ratio of lengths from which a set is searched instead of merged: binary search costs about log2 of
// the length per key, so it wins well below this ratio, and merging is faster on equal lengths.
const lopsided = 16

// Overlaps reports whether one node can satisfy both, considering only the keys that both define. Instance types and
// offerings are matched in this way, since each of them leaves other labels open.
func (s Set) Overlaps(o Set) bool {
	if len(s.list) > lopsided*len(o.list) {
		s, o = o, s
	}
	if len(o.list) > lopsided*len(s.list) {
		for i := range s.list {
			if j, ok := o.find(s.list[i].key); ok && !s.list[i].Agrees(o.list[j]) {
				return false
			}
		}
		return true
	}
	i, j := 0, 0
	for i < len(s.list) && j < len(o.list) {
		switch c := strings.Compare(s.list[i].key, o.list[j].key); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if !s.list[i].Agrees(o.list[j]) {
				return false
			}
			i, j = i+1, j+1
		}
	}
	return true
}

// Compatible reports whether a node described by s can satisfy incoming. A key that s does not define must be in
// undefined (labels that the node may still get), or incoming must allow its absence.
func (s Set) Compatible(incoming Set, undefined map[string]bool) bool {
	_, conflict := s.Conflict(incoming, undefined)
	return !conflict
}

// Conflict is the first reason, in the order of keys, why s is not Compatible with a set.
type Conflict struct {
	// Incoming is the requirement that cannot be satisfied.
	Incoming Requirement
	// Existing is the requirement that contradicts it; meaningless when the key is Undefined.
	Existing  Requirement
	Undefined bool
}

// Conflict returns why s is not Compatible with incoming; unknown labels come first.
func (s Set) Conflict(incoming Set, undefined map[string]bool) (Conflict, bool) {
	for _, q := range incoming.list {
		if q.Impossible() {
			return Conflict{Incoming: q}, true
		}
		if undefined[q.key] || q.AllowsAbsent() || s.Defines(q.key) {
			continue
		}
		return Conflict{Incoming: q, Undefined: true}, true
	}
	for _, q := range incoming.list {
		if i, ok := s.find(q.key); ok && !s.list[i].Agrees(q) {
			return Conflict{Incoming: q, Existing: s.list[i]}, true
		}
	}
	return Conflict{}, false
}

// HasMinValues reports whether any requirement has minValues.
func (s Set) HasMinValues() bool {
	return slices.ContainsFunc(s.list, func(r Requirement) bool { return r.minValues > 0 })
}

// Equal reports whether both sets hold the same requirements.
func (s Set) Equal(o Set) bool { return slices.EqualFunc(s.list, o.list, Requirement.Equal) }

// Key is a string that only equal sets share, for use as a map key.
func (s Set) Key() string {
	return string(s.AppendKey(nil))
}

// AppendKey appends Key to b.
func (s Set) AppendKey(b []byte) []byte {
	for i := range s.list {
		r := &s.list[i]
		b = append(append(b, r.key...), 0)
		flags := byte('0')
		for k, flag := range [...]bool{r.complement, r.present, r.hasMin, r.hasMax} {
			if flag {
				flags += 1 << k
			}
		}
		b = append(b, flags)
		for _, n := range [...]int64{r.min, r.max, int64(r.minValues), int64(len(r.values))} {
			b = strconv.AppendInt(append(b, 0), n, 36)
		}
		for _, v := range r.values {
			b = append(append(b, 0), v...)
		}
		b = append(b, 1)
	}
	return b
}

// String is for people: requirements in the order of keys.
func (s Set) String() string {
	parts := make([]string, len(s.list))
	for i, r := range s.list {
		parts[i] = r.String()
	}
	return strings.Join(parts, ", ")
}
