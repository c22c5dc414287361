package disrupt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/fixture"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// blind is a world that nothing can be read of.
type blind struct {
	*cluster.State
	asked func()
}

func (b blind) Snapshot(context.Context) (*snapshot.Snapshot, error) {
	b.asked()
	return nil, errors.New("the API server does not answer")
}

// What is due stays due while the API server does not answer. It is not asked without a pause.
func TestAPassThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	f := fixture.New(t)
	state := stateOf(f.API, f.API, f.Now)
	synctest.Test(t, func(t *testing.T) {
		const lasts, most = 10 * time.Second, 11
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		passes := 0
		l := newLoop(f, f.API, state, time.Now)
		l.State = blind{state, func() {
			if passes++; passes > most {
				cancel()
			}
		}}
		l.proposals = []proposal{{cmd: &disrupt.Command{}, due: time.Now()}}
		if err := l.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if passes < 2 || passes > most {
			t.Errorf("%d passes in %v, want at most %d", passes, lasts, most)
		}
	})
}
