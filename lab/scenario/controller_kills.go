package scenario

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// The controller of a story that is told with kills lives for minControllerLife, and then as long as a machine that fails by chance: for
// meanExtraLife on average, and now and then for long enough to do what takes its time.
const (
	minControllerLife = 2 * time.Second
	meanExtraLife  = 25 * time.Second
)

// extraTimeAfterKills is how much longer a calm step may take after kills: what a controller was launching when it was killed is in doubt for two
// minutes.
const extraTimeAfterKills = 3 * time.Minute

// WithKills is the story with its controllers killed (SIGKILL) at random moments, and started again, all along but in calm steps.
// A seed gives the same lengths of life again; what the controller does at those moments is up to the machine.
func WithKills(s Scenario, seed uint64) Scenario {
	var calm atomic.Bool
	s.Steps = slices.Clone(s.Steps)
	for i, step := range s.Steps {
		if !step.PauseKills {
			s.Steps[i].Timeout *= 2 // what a controller was about to do when it was killed is begun anew
			continue
		}
		s.Steps[i].Timeout += extraTimeAfterKills
		s.Steps[i].Run = func(ctx context.Context, w *World) error {
			calm.Store(true)
			defer calm.Store(false)
			return step.Run(ctx, w)
		}
	}
	s.Background = func(ctx context.Context, w *World) error {
		for _, c := range w.Clusters {
			c.RestartControllerOnExit()
		}
		return killAtRandom(ctx, w, rand.New(rand.NewPCG(seed, 0x4b111)), &calm)
	}
	return s
}

// kills goes on until ctx ends, which is no failure.
func killAtRandom(ctx context.Context, w *World, dice *rand.Rand, calm *atomic.Bool) error {
	for {
		if pause(ctx, minControllerLife+time.Duration(dice.ExpFloat64()*float64(meanExtraLife))) != nil {
			return nil
		}
		c := w.Clusters[dice.IntN(len(w.Clusters))]
		if calm.Load() {
			continue
		}
		if err := c.CrashController(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
