package scenario

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	minControllerLife = 2 * time.Second
	meanExtraLife     = 25 * time.Second
)

// extraTimeAfterKills is added to the timeout of a step without kills: a launch that a kill interrupted has an unknown
// outcome for two minutes.
const extraTimeAfterKills = 3 * time.Minute

// WithKills returns the scenario with its controllers killed (SIGKILL) and restarted at random moments, except in steps
// with PauseKills. Equal seeds give equal lifetimes; what the controller does at those moments varies from run to run.
func WithKills(s Scenario, seed uint64) Scenario {
	var paused atomic.Bool
	s.Steps = slices.Clone(s.Steps)
	for i, step := range s.Steps {
		if !step.PauseKills {
			s.Steps[i].Timeout *= 2 // a restarted controller repeats the work that the kill interrupted
			continue
		}
		s.Steps[i].Timeout += extraTimeAfterKills
		s.Steps[i].Run = func(ctx context.Context, w *World) error {
			paused.Store(true)
			defer paused.Store(false)
			return step.Run(ctx, w)
		}
	}
	own := s.Background
	s.Background = func(ctx context.Context, w *World) error {
		for _, c := range w.Clusters {
			c.RestartControllerOnExit()
		}
		group, alive := errgroup.WithContext(ctx)
		if own != nil {
			group.Go(func() error { return own(alive, w) })
		}
		group.Go(func() error { return killAtRandom(alive, w, rand.New(rand.NewPCG(seed, 0x4b111)), &paused) })
		return group.Wait()
	}
	return s
}

// killAtRandom kills controllers until ctx is done, which is not an error.
func killAtRandom(ctx context.Context, w *World, rng *rand.Rand, paused *atomic.Bool) error {
	for {
		if pause(ctx, minControllerLife+time.Duration(rng.ExpFloat64()*float64(meanExtraLife))) != nil {
			return nil
		}
		c := w.Clusters[rng.IntN(len(w.Clusters))]
		if paused.Load() {
			continue
		}
		if err := c.CrashController(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
