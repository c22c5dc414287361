package disrupt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// A node that cannot be opened keeps no other closed.
func TestReopenPastANodeThatCannotBe(t *testing.T) {
	f := fixture.New(t, fixture.Claim("a", fixture.Initialized), fixture.Up("a", tainted), fixture.Claim("b", fixture.Initialized), fixture.Up("b", tainted))
	l, state := loop(f)
	refused := errors.New("webhook says no")
	l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "node-a" {
				return refused
			}
			return api.Patch(ctx, o, patch, opts...)
		},
	})
	s, err := state.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cleanUp(t.Context(), s); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if closed(f, "node-b") {
		t.Error("node-b is still closed")
	}
}
