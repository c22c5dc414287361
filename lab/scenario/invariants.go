package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// guard watches, as long as a story lasts, for what may never happen: an instance terminated under a pod that may not be
// moved, more nodes disrupted at a time than the budget has, and an app with fewer ready pods than its disruption budget
// leaves it. That no pod is nominated to two live claims, History sees.
type invariants struct {
	// budget is how many of a number of nodes may be disrupted at a time.
	budget func(nodes int) int

	mu     sync.Mutex
	claims map[types.UID]budgetState
	ready  map[string]map[types.UID]bool // pods by app
	minReady map[string]int                // by app, while it is kept
	violations []string
	lastChange  time.Time // when a NodeClaim last came, went, or changed its standing
}

// standing is how a NodeClaim counts for the budget.
type budgetState struct{ counts, disrupted bool }

// share is a budget in percent.
func percentBudget(percent int) func(int) int {
	return func(nodes int) int { return (nodes*percent + 99) / 100 }
}

// most is a budget in nodes.
func nodeBudget(nodes int) func(int) int { return func(int) int { return nodes } }

func newInvariants(budget func(nodes int) int) *invariants {
	return &invariants{budget: budget, claims: map[types.UID]budgetState{}, ready: map[string]map[types.UID]bool{}, minReady: map[string]int{}}
}

// keep has the guard watch that, from now on, an app has as many ready pods as its disruption budget leaves it; 0 ends that.
func (g *invariants) requireReady(app string, floor int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.minReady[app] = floor
}

// free lifts all budgets: what follows is not by the controller's choice.
func (g *invariants) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget = func(nodes int) int { return nodes }
	clear(g.minReady)
}

// broke notes what may not happen. The first times tell enough.
func (g *invariants) violate(format string, args ...any) {
	if len(g.violations) < 5 {
		g.violations = append(g.violations, fmt.Sprintf(format, args...))
	}
}

// volumesExist checks that each volume that was ever bound is still in EC2.
func volumesExist(ctx context.Context, w *World) error {
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, v := range w.AWS.EC2().Volumes() {
		there[v.ID] = true
	}
	for _, pv := range volumes.Items {
		if csi := pv.Spec.CSI; csi != nil && !there[csi.VolumeHandle] {
			return fmt.Errorf("volume %s of %s is gone", csi.VolumeHandle, pv.Name)
		}
	}
	return nil
}

// watch begins to watch a world, until its end.
func (g *invariants) watch(w *World) {
	w.History.Watch(func(o client.Object, gone bool) {
		switch o := o.(type) {
		case *karpv1.NodeClaim:
			g.observeClaim(o, gone)
		case *corev1.Pod:
			g.observePod(o, gone)
		}
	})
	w.Intercept(func(c awsim.Call) {
		if controllerCall("TerminateInstances")(c) {
			for _, id := range c.Resources {
				g.observeTermination(w, id)
			}
		}
	})
}

func (g *invariants) observeClaim(claim *karpv1.NodeClaim, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, known := g.claims[claim.UID]
	is := func(t string) bool { return meta.IsStatusConditionTrue(claim.Status.Conditions, t) }
	now := budgetState{counts: is(karpv1.ConditionInitialized) && !is(karpv1.ConditionInstanceTerminating)}
	now.disrupted = now.counts && is(karpv1.ConditionDisruptionReason)
	if gone {
		now = budgetState{}
	}
	if !known || gone || now != before {
		g.lastChange = time.Now()
	}
	if g.claims[claim.UID] = now; before.disrupted || !now.disrupted {
		return
	}
	nodes, disrupted := 0, 0
	for _, c := range g.claims {
		if c.counts {
			nodes++
		}
		if c.disrupted {
			disrupted++
		}
	}
	if allowed := g.budget(nodes); disrupted > allowed {
		g.violate("%d of %d nodes are disrupted at a time, the budget is %d", disrupted, nodes, allowed)
	}
}

func (g *invariants) observePod(pod *corev1.Pod, gone bool) {
	app := pod.Labels["app"]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready[app] == nil {
		g.ready[app] = map[types.UID]bool{}
	}
	was := g.ready[app][pod.UID]
	if running(*pod) && !gone {
		g.ready[app][pod.UID] = true
		return
	}
	delete(g.ready[app], pod.UID)
	if n := len(g.ready[app]); was && n < g.minReady[app] {
		g.violate("%s has %d ready pods, its disruption budget leaves it %d", app, n, g.minReady[app])
	}
}

// settled waits until no NodeClaim has come, gone, or been disrupted for so long, from now on, with one and the same controller there.
func (g *invariants) awaitSettled(ctx context.Context, w *World, quiet time.Duration) error {
	starts := 0
	return world.Until(ctx, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if n := w.ControllerStarts(); n != starts {
			g.lastChange, starts = time.Now(), n
		}
		if calm := time.Since(g.lastChange); calm < quiet {
			return fmt.Errorf("the last NodeClaim moved %.0f s ago", calm.Seconds())
		}
		return nil
	})
}

// observeTermination looks at the pods of a node whose instance was just told to end. It asks the API server: what was watched
// may not know yet that a pod has gone.
func (g *invariants) observeTermination(w *World, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var nodes corev1.NodeList
	if err := w.Reader.List(ctx, &nodes); err != nil {
		return // the world ends
	}
	for _, n := range nodes.Items {
		if world.InstanceID(n.Spec.ProviderID) != id {
			continue
		}
		var pods corev1.PodList
		if err := w.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return // nothing can be said while the API server is away
		}
		for _, p := range pods.Items {
			if mayNotMove(p) {
				g.mu.Lock()
				g.violate("instance %s was terminated under pod %s, which may not be moved", id, p.Name)
				g.mu.Unlock()
			}
		}
	}
}

// verdict is nil as long as nothing has happened that may not.
func (g *invariants) check(w *World) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	broken := append(w.History.Violations(), g.violations...)
	if len(broken) == 0 {
		return nil
	}
	return errors.New(strings.Join(broken, "; "))
}
