package lp

// quad is four numbers of a vector over the axes in use. Clusters mostly have up to four axes in use (CPU, memory, pods,
// attachable volumes), so that most vectors are one quad: the innermost loops are without a loop over axes.
type quad [4]float64

// dot rounds each product by itself. Without the conversions, a compiler may fuse products and sums on some processors,
// and equal inputs would not give equal outputs on all of them.
func (a *quad) dot(b *quad) float64 {
	return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2]) + float64(a[3]*b[3])
}

// quads are vectors of equal length, one after the other. Unused places are zero.
type quads struct {
	stride int // quads per vector
	list   []quad
}

func newQuads(vectors, axes int) quads {
	stride := max(1, (axes+3)/4)
	return quads{stride, make([]quad, vectors*stride)}
}

// at is vector k.
func (q quads) at(k int) []quad { return q.list[k*q.stride : (k+1)*q.stride] }

func dotQuads(a, b []quad) float64 {
	total := a[0].dot(&b[0])
	for i := 1; i < len(a); i++ {
		total += a[i].dot(&b[i])
	}
	return total
}

// dot is the scalar product of plain vectors; see quad.dot for the conversion.
func dot(a, b []float64) float64 {
	total := 0.0
	b = b[:len(a)]
	for i, x := range a {
		total += float64(x * b[i])
	}
	return total
}
