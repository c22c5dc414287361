// Package kill tests that controllers survive a kill, or a failure, at each of their writes.
//
// A scenario runs once without faults, which gives the number of its writes and its final state. Then it runs again for
// each write and each way in which that write can fail: rejected, or applied without a response, and the process killed
// or not. Every run must reach the same final state.
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

// Start is the time at which each scenario begins.
var Start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

const (
	// tick sets how far the clock advances in each round.
	tick = 5 * time.Second
	// quietRounds sets how many consecutive rounds without a write end a scenario; some waits take more than one round.
	quietRounds = 3
	maxRounds   = 100
)

// Scenario is a list of steps that a controller takes.
type Scenario struct {
	// Objects returns the objects at the start, new ones for each run.
	Objects func() []client.Object
	// Process starts the controllers, with empty memory.
	Process func(w *World, c client.Client, cloud *Cloud) []Actor
	// Others simulates everything else between rounds: kubelets, the scheduler, users. May be nil.
	Others func(t *testing.T, w *World)
	// Check checks invariants of the final state. May be nil.
	Check func(t *testing.T, w *World)
}

// Actor is a reconciler and the kind with objects that it reconciles.
type Actor struct {
	Reconciler reconcile.Reconciler
	Kind       client.ObjectList
}

// Pass returns a reconciler for a loop that processes all objects in one pass.
func Pass(pass func(context.Context) error) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, pass(ctx)
	})
}

// World is the state that outlives a process.
type World struct {
	// API is the API server as it is, without faults.
	API   client.WithWatch
	Cloud *Instances
	now   time.Time
	// Round counts from zero.
	Round int
}

// Now is the scenario's clock.
func (w *World) Now() time.Time { return w.now }

// fault is one way in which a write fails.
type fault struct {
	// at is the number of the write that fails, from 1; 0 for none.
	at int
	// applied is true if the write takes effect but its response is lost; kills if the process is killed with it.
	applied, kills bool
}

func (f fault) String() string {
	effect, fate := "refused", "lives"
	if f.applied {
		effect = "answer lost"
	}
	if f.kills {
		fate = "dies"
	}
	return fmt.Sprintf("write %d: %s, process %s", f.at, effect, fate)
}

// Run runs the scenario without faults, and with each fault at each write.
func Run(t *testing.T, s Scenario) {
	t.Helper()
	undisturbed := runScenario(t, s, fault{})
	if undisturbed.writes == 0 {
		t.Fatal("the scenario writes nothing")
	}
	for at := 1; at <= undisturbed.writes; at++ {
		for _, f := range []fault{{at, false, false}, {at, false, true}, {at, true, false}, {at, true, true}} {
			t.Run(f.String(), func(t *testing.T) {
				got := runScenario(t, s, f)
				if diff := cmp.Diff(undisturbed.end, got.end); diff != "" {
					t.Errorf("ends differently (-undisturbed +disturbed):\n%s", diff)
				}
			})
		}
	}
}

type result struct {
	writes int
	end    []string
}

func runScenario(t *testing.T, s Scenario, f fault) result {
	t.Helper()
	w := &World{now: Start}
	w.API = apitest.New(t, w.Now, s.Objects()...)
	w.Cloud = &Instances{t: t}
	g := &faultInjector{fault: f}
	var actors []Actor
	for still := 0; still < quietRounds; w.Round++ {
		if w.Round == maxRounds {
			t.Fatalf("still writing after %d rounds", maxRounds)
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
	return result{g.writes, digest(t, w)}
}

// round reconciles every object once. A reconciler that fails is called again in the next round.
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

// faultInjector passes writes on one at a time, except the one that fails.
type faultInjector struct {
	fault fault

	mu     sync.Mutex
	writes int
	dead   bool
}

func (g *faultInjector) write(act func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errFault
	}
	g.writes++
	if g.writes != g.fault.at {
		return act()
	}
	if g.fault.applied {
		_ = act() // the response is lost
	}
	g.dead = g.fault.kills
	return errFault
}

func (g *faultInjector) read(act func() error) error {
	g.mu.Lock()
	dead := g.dead
	g.mu.Unlock()
	if dead {
		return errFault
	}
	return act()
}

// client returns a client that calls c through the fault injector. A failed write does not change its object.
func (g *faultInjector) client(c client.WithWatch) client.Client {
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
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			return g.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, in client.Object,
			opts ...client.SubResourceCreateOption,
		) error {
			return g.write(func() error { return c.SubResource(sub).Create(ctx, o, in, opts...) })
		},
	})
}
