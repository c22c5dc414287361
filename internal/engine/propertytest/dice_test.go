package propertytest_test

import "math/rand/v2"

// dice are what worlds are drawn with.
type dice struct {
	next func() byte
}

func seeded(seed uint64) dice {
	r := rand.New(rand.NewPCG(seed, 3))
	return dice{func() byte { return byte(r.Uint32()) }}
}

// written dice read what they throw, and throw nothing but zeros when that ends.
func written(data []byte) dice {
	return dice{func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}}
}

// n throws a number below n, at most 256.
func (d dice) n(n int) int { return int(d.next()) % n }

// from throws a number from lo to hi.
func (d dice) from(lo, hi int) int { return lo + d.n(hi-lo+1) }

// maybe is true so often; zeros make it false.
func (d dice) maybe(percent int) bool { return int(d.next()) >= 256-256*percent/100 }

func pick[T any](d dice, list ...T) T { return list[d.n(len(list))] }

// some picks from 1 to most of the list, in its order.
func some[T any](d dice, most int, list ...T) []T {
	first := d.n(len(list))
	n := d.from(1, most)
	return list[first:min(len(list), first+n)]
}
