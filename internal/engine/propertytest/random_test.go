package propertytest

import "math/rand/v2"

func seeded(seed uint64) random {
	r := rand.New(rand.NewPCG(seed, 3))
	return random{func() byte { return byte(r.Uint32()) }}
}
