// Package kill proves that controllers survive being killed, and failing, at each of their writes.
//
// A Story is told once undisturbed, to learn its writes and its end. Then it is told again for each write and each
// way in which that write can go wrong: refused or done without an answer, and the process dead or alive
// afterwards. However it goes, the story must end the same.
package kill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

// Start is when each story begins, tick how far the clock moves with each round.
var Start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

const (
	tick = 5 * time.Second
	// quiet is how many rounds without a write end a story; some waits are longer than one.
	quiet = 3
	most  = 100
)

// Story is what happens in a small world.
type Story struct {
	// Objects are there at the beginning. They are made anew for each telling.
	Objects func() []client.Object
	// Process starts the controllers: their memory is empty.
	Process func(w *World, c client.Client, cloud *Cloud) []Actor
	// Others is what everybody else does between rounds: kubelets, schedulers, people. May be nil.
	Others func(t *testing.T, w *World)
	// Check looks at the end, with what must hold whatever happened. May be nil.
	Check func(t *testing.T, w *World)
}

// Actor is a reconciler and the kind whose objects it reconciles.
type Actor struct {
	Reconciler reconcile.Reconciler
	Kind       client.ObjectList
}

// Pass makes an actor's reconciler of a loop that looks at everything at once.
func Pass(pass func(context.Context) error) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, pass(ctx)
	})
}

// World is the state that outlives a process.
type World struct {
	// API is the API server as it is, without faults.
	API   client.WithWatch
	Cloud *Machines
	now   time.Time
	// Round counts from zero.
	Round int
}

// Now is the story's clock.
func (w *World) Now() time.Time { return w.now }

// fault is one way of going wrong.
type fault struct {
	// at is the write that goes wrong, from 1; 0 for none.
	at int
	// done is true when the write takes effect, though nobody learns so; kills when the process ends with it.
	done, kills bool
}

func (f fault) String() string {
	effect, fate := "refused", "lives"
	if f.done {
		effect = "answer lost"
	}
	if f.kills {
		fate = "dies"
	}
	return fmt.Sprintf("write %d: %s, process %s", f.at, effect, fate)
}

// Run tells the story in every way.
func Run(t *testing.T, s Story) {
	t.Helper()
	calm := tell(t, s, fault{})
	if calm.writes == 0 {
		t.Fatal("the story writes nothing")
	}
	for at := 1; at <= calm.writes; at++ {
		for _, f := range []fault{{at, false, false}, {at, false, true}, {at, true, false}, {at, true, true}} {
			t.Run(f.String(), func(t *testing.T) {
				got := tell(t, s, f)
				if diff := cmp.Diff(calm.end, got.end); diff != "" {
					t.Errorf("ends differently (-undisturbed +disturbed):\n%s", diff)
				}
			})
		}
	}
}

type ending struct {
	writes int
	end    []string
}

func tell(t *testing.T, s Story, f fault) ending {
	t.Helper()
	w := &World{now: Start}
	w.API = apitest.New(t, w.Now, s.Objects()...)
	w.Cloud = &Machines{t: t}
	g := &gate{fault: f}
	var actors []Actor
	for still := 0; still < quiet; w.Round++ {
		if w.Round == most {
			t.Fatalf("no rest after %d rounds", most)
		}
		if actors == nil || g.dead {
			g.dead = false
			actors = s.Process(w, g.client(w.API), &Cloud{gate: g, machines: w.Cloud})
		}
		before := g.writes
		for _, a := range actors {
			round(t, w, a)
		}
		if s.Others != nil {
			s.Others(t, w)
		}
		w.Cloud.settle()
		w.now = w.now.Add(tick)
		if still++; g.writes != before {
			still = 0
		}
	}
	if s.Check != nil {
		s.Check(t, w)
	}
	return ending{g.writes, digest(t, w)}
}

// round reconciles every object once. A reconciler that fails is asked again in the next round.
func round(t *testing.T, w *World, a Actor) {
	t.Helper()
	list := a.Kind.DeepCopyObject().(client.ObjectList)
	if err := w.API.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		key := client.ObjectKeyFromObject(o.(client.Object))
		_, err := a.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil && !errors.Is(err, errFault) {
			t.Logf("round %d: %T %s: %v", w.Round, a.Reconciler, key, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var errFault = errors.New("connection reset by peer")

// gate lets writes through one at a time, but for the one that goes wrong.
type gate struct {
	fault fault

	mu     sync.Mutex
	writes int
	dead   bool
}

func (g *gate) write(act func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errFault
	}
	g.writes++
	if g.writes != g.fault.at {
		return act()
	}
	if g.fault.done {
		_ = act() // whether it worked, nobody learns
	}
	g.dead = g.fault.kills
	return errFault
}

func (g *gate) read(act func() error) error {
	g.mu.Lock()
	dead := g.dead
	g.mu.Unlock()
	if dead {
		return errFault
	}
	return act()
}

// client passes through the gate. An object handed to a write that went wrong is not changed by it.
func (g *gate) client(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return g.read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return g.read(func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return g.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return g.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return g.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return g.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, in client.Object, opts ...client.SubResourceCreateOption) error {
			return g.write(func() error { return c.SubResource(sub).Create(ctx, o, in, opts...) })
		},
	})
}
