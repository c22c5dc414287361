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
