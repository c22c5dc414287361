package disruption

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// began is a state that reports when passes begin, and has no snapshots.
type began struct {
	clusterState
	at chan<- time.Time
}

func (s began) Version(context.Context) (cluster.Version, bool) {
	s.at <- time.Now()
	return cluster.Version{}, false
}

func (began) Snapshot(context.Context) (*snapshot.Snapshot, error) { return nil, errors.New("none") }

// A pass waits for another that is in progress, and not forever.
func TestPassesWaitForTheirTurn(t *testing.T) {
	f := controllertest.New(t)
	l, state := loop(f)
	synctest.Test(t, func(t *testing.T) {
		at := make(chan time.Time)
		l.State, l.Turns, l.Now = began{state, at}, &turns.Turns{}, time.Now
		ctx, cancel := context.WithCancel(t.Context())
		end := l.Turns.Now()
		start := time.Now()
		go func() { _ = l.Start(ctx) }()
		if waited := (<-at).Sub(start); waited != longestTurn {
			t.Errorf("a pass begins after %v, want %v", waited, longestTurn)
		}
		start = time.Now()
		go func() {
			time.Sleep(passInterval + 3*time.Second)
			end()
		}()
		if waited := (<-at).Sub(start); waited != passInterval+3*time.Second {
			t.Errorf("the next pass begins after %v, want %v", waited, passInterval+3*time.Second)
		}
		cancel()
		synctest.Wait()
	})
}
