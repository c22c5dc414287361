package scenario

import (
	"context"
	"math/rand/v2"
	"time"
)

// The controller of a story that is told with kills lives for leastLife, and then as long as a machine that fails by chance: for
// moreLife on average, and now and then for long enough to do what takes its time.
const (
	leastLife = 2 * time.Second
	moreLife  = 25 * time.Second
)

// WithKills is the story with its controllers killed (SIGKILL) at random moments, and started again, from beginning to end.
// A seed gives the same lengths of life again; what the controller does at those moments is up to the machine.
func WithKills(s Scenario, seed uint64) Scenario {
	s.Beside = func(ctx context.Context, w *World) error {
		for _, c := range w.Clusters {
			c.KeepController()
		}
		return kills(ctx, w, rand.New(rand.NewPCG(seed, 0x4b111)))
	}
	return s
}

// kills goes on until ctx ends, which is no failure.
func kills(ctx context.Context, w *World, dice *rand.Rand) error {
	for {
		if pause(ctx, leastLife+time.Duration(dice.ExpFloat64()*float64(moreLife))) != nil {
			return nil
		}
		if err := w.Clusters[dice.IntN(len(w.Clusters))].CrashController(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
