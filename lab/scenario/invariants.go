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

// invariants watches, during a whole scenario, for what must never happen: the autoscaler terminates an instance under
// a pod with karpenter.sh/do-not-disrupt, disrupts more nodes at a time than the NodePool's budget allows, or takes an
// app below the ready pods that its PodDisruptionBudget demands. world.History checks that no two live NodeClaims
// nominate the same pod.
type invariants struct {
	// budget returns how many of a number of nodes may be disrupted at a time.
	budget func(nodes int) int

	mu         sync.Mutex
	claims     map[types.UID]budgetState
	ready      map[string]map[types.UID]bool // pods by app
	minReady   map[string]int                // by app, while required
	violations []string
	lastChange time.Time // when a NodeClaim was last created or deleted, or changed its budgetState
}

// budgetState is how a NodeClaim counts toward the disruption budget.
type budgetState struct{ counts, disrupted bool }

// percentBudget returns a budget in percent of the nodes, rounded up as Karpenter does.
func percentBudget(percent int) func(int) int {
	return func(nodes int) int { return (nodes*percent + 99) / 100 }
}

// nodeBudget returns a budget of a fixed number of nodes.
func nodeBudget(nodes int) func(int) int { return func(int) int { return nodes } }

func newInvariants(budget func(nodes int) int) *invariants {
	return &invariants{budget: budget, claims: map[types.UID]budgetState{}, ready: map[string]map[types.UID]bool{}, minReady: map[string]int{}}
}

// requireReady demands, from now on, that an app always has this many ready pods. Zero lifts the demand.
func (v *invariants) requireReady(app string, floor int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.minReady[app] = floor
}

// lift removes all demands: the disruption that follows is not the controller's choice.
func (v *invariants) lift() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.budget = func(nodes int) int { return nodes }
	clear(v.minReady)
}

// violate records a violation. It keeps the first five: later ones usually have the same cause.
func (v *invariants) violate(format string, args ...any) {
	if len(v.violations) < 5 {
		v.violations = append(v.violations, fmt.Sprintf(format, args...))
	}
}

// volumesExist checks that the EBS volume of each PersistentVolume exists.
func volumesExist(ctx context.Context, w *World) error {
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, v := range w.AWS.EC2().Volumes() {
		exists[v.ID] = true
	}
	for _, pv := range volumes.Items {
		if csi := pv.Spec.CSI; csi != nil && !exists[csi.VolumeHandle] {
			return fmt.Errorf("volume %s of PersistentVolume %s no longer exists", csi.VolumeHandle, pv.Name)
		}
	}
	return nil
}

// watch starts to watch a world, until it closes.
func (v *invariants) watch(w *World) {
	w.History.Watch(func(o client.Object, gone bool) {
		switch o := o.(type) {
		case *karpv1.NodeClaim:
			v.observeClaim(o, gone)
		case *corev1.Pod:
			v.observePod(o, gone)
		}
	})
	w.Intercept(func(c awsim.Call) {
		if controllerCall("TerminateInstances")(c) {
			for _, id := range c.Resources {
				v.observeTermination(w, id)
			}
		}
	})
}

func (v *invariants) observeClaim(claim *karpv1.NodeClaim, gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.claims[claim.UID]
	is := func(t string) bool { return meta.IsStatusConditionTrue(claim.Status.Conditions, t) }
	now := budgetState{counts: is(karpv1.ConditionInitialized) && !is(karpv1.ConditionInstanceTerminating)}
	now.disrupted = now.counts && is(karpv1.ConditionDisruptionReason)
	if gone {
		now = budgetState{}
	}
	if !known || gone || now != before {
		v.lastChange = time.Now()
	}
	if v.claims[claim.UID] = now; before.disrupted || !now.disrupted {
		return
	}
	nodes, disrupted := 0, 0
	for _, c := range v.claims {
		if c.counts {
			nodes++
		}
		if c.disrupted {
			disrupted++
		}
	}
	if allowed := v.budget(nodes); disrupted > allowed {
		v.violate("%d of %d nodes were disrupted at a time, the budget allows %d", disrupted, nodes, allowed)
	}
}

func (v *invariants) observePod(pod *corev1.Pod, gone bool) {
	app := pod.Labels["app"]
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ready[app] == nil {
		v.ready[app] = map[types.UID]bool{}
	}
	was := v.ready[app][pod.UID]
	if running(*pod) && !gone {
		v.ready[app][pod.UID] = true
		return
	}
	delete(v.ready[app], pod.UID)
	if n := len(v.ready[app]); was && n < v.minReady[app] {
		v.violate("%s has %d ready pods, its PodDisruptionBudget requires %d", app, n, v.minReady[app])
	}
}

// awaitSettled waits until, for a whole window from now on, the controller did not restart and no NodeClaim was
// created, deleted or disrupted.
func (v *invariants) awaitSettled(ctx context.Context, w *World, window time.Duration) error {
	starts := 0
	return world.Until(ctx, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if n := w.ControllerStarts(); n != starts {
			v.lastChange, starts = time.Now(), n
		}
		if settled := time.Since(v.lastChange); settled < window {
			return fmt.Errorf("the last change of a NodeClaim was %.0f s ago", settled.Seconds())
		}
		return nil
	})
}

// changedAt returns when a NodeClaim was last created, deleted or disrupted.
func (v *invariants) changedAt() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lastChange
}

// observeTermination checks the pods of a node when TerminateInstances takes effect on its instance. It reads from the
// API server, since the watch cache may still have a pod that is deleted.
func (v *invariants) observeTermination(w *World, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var nodes corev1.NodeList
	if err := w.Reader.List(ctx, &nodes); err != nil {
		return // the world closes
	}
	for _, n := range nodes.Items {
		if world.InstanceID(n.Spec.ProviderID) != id {
			continue
		}
		var pods corev1.PodList
		if err := w.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return // the API server is down
		}
		for _, p := range pods.Items {
			if mayNotMove(p) {
				v.mu.Lock()
				v.violate("instance %s was terminated under pod %s, which has do-not-disrupt", id, p.Name)
				v.mu.Unlock()
			}
		}
	}
}

// check returns the violations so far, or nil.
func (v *invariants) check(w *World) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := append(w.History.Violations(), v.violations...)
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}
