package propertytest

// dice generates worlds.
type random struct {
	next func() byte
}

// written dice read what they throw, and throw nothing but zeros when that finishes.
func written(data []byte) random {
	return random{func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}}
}

// n returns a number below n, at most 256.
func (d random) n(n int) int { return int(d.next()) % n }

// from returns a number from lo to hi.
func (d random) from(lo, hi int) int { return lo + d.n(hi-lo+1) }

// maybe is true so often; zeros make it false.
func (d random) maybe(percent int) bool { return int(d.next()) >= 256-256*percent/100 }

func pick[T any](d random, list ...T) T { return list[d.n(len(list))] }

// some picks from 1 to most of the list, in its order.
func some[T any](d random, most int, list ...T) []T {
	first := d.n(len(list))
	n := d.from(1, most)
	return list[first:min(len(list), first+n)]
}
