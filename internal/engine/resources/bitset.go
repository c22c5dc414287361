package resources

// Bitset is a set of small integers that grows as needed.
type Bitset []uint64

// Has reports whether i is in the set.
func (b Bitset) Has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

// Add puts i, which must not be negative, into the set.
func (b *Bitset) Add(i int) {
	for i/64 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// Overlaps reports whether the sets have a member in common.
func (b Bitset) Overlaps(other Bitset) bool {
	for i := range min(len(b), len(other)) {
		if b[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// Union returns the members of both sets, in memory of its own.
func (b Bitset) Union(other Bitset) Bitset {
	out := make(Bitset, max(len(b), len(other)))
	copy(out, b)
	for i, word := range other {
		out[i] |= word
	}
	return out
}

// Members are the members, in order.
func (b Bitset) Members() (out []int) {
	for i := range 64 * len(b) {
		if b.Has(i) {
			out = append(out, i)
		}
	}
	return out
}
