package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// killPoint is when the scenario kills the controller: at the nth matching AWS call, after its effect and before its
// response, or when the nth matching object appears.
type killPoint struct {
	name   string
	nth    int
	call   func(awsim.Call) bool
	object func(client.Object) bool
}

// killedController kills the controller at ten points of a scale-up and a scale-down.
func killedController() Scenario {
	const wave = 25 // pods
	s := Scenario{
		Name:    "killed-controller",
		Summary: "0 -> 200 pods -> 0, with the controller killed at ten points: nothing is lost, nothing is launched twice",
		Steps: []Step{
			startController(),
			installPool(manifests.MediumInstances, nil),
			{Name: "create a workload without pods", Timeout: 10 * time.Second, Run: createSpread},
		},
	}
	replicas := 0
	for _, m := range launchKillPoints() {
		replicas += wave
		s.Steps = append(s.Steps, killDuringScaleUp(m, replicas))
	}
	s.Steps = append(s.Steps,
		killDuringScaleDown(terminationKillPoints()),
		Step{Name: "all nodes and instances terminate", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := awaitEmpty(ctx, w, spreadApp); err != nil {
				return err
			}
			w.Note(
				"the controller was started %d times; %d NodeClaims, %d instances",
				w.ControllerStarts(),
				len(w.History.Claims()),
				len(w.Instances()),
			)
			return oneInstancePerClaim(w)
		}},
		removePool(manifests.MediumInstances, nil))
	return s
}

func createSpread(ctx context.Context, w *World) error { return apply(ctx, w, manifests.Spread, nil) }

// launchKillPoints are the points between a pending pod and an initialized node.
func launchKillPoints() []killPoint {
	return []killPoint{
		{name: "a pod is unschedulable", nth: 1, object: unschedulable},
		{name: "the first NodeClaim is created", nth: 1, object: claimWithout(karpv1.ConditionLaunched)},
		{name: "the third NodeClaim is created", nth: 3, object: claimWithout(karpv1.ConditionLaunched)},
		{name: "CreateFleet has taken effect", nth: 1, call: controllerCall("CreateFleet")},
		{name: "CreateFleet has taken effect for the third time", nth: 3, call: controllerCall("CreateFleet")},
		{name: "a NodeClaim is launched", nth: 1, object: claimBetween(karpv1.ConditionLaunched, karpv1.ConditionRegistered)},
		{name: "a Node has joined", nth: 1, object: nodeJoined},
		{name: "a NodeClaim is registered", nth: 1, object: claimBetween(karpv1.ConditionRegistered, karpv1.ConditionInitialized)},
	}
}

// terminationKillPoints are the points between an empty node and its terminated instance.
func terminationKillPoints() []killPoint {
	return []killPoint{
		{name: "a Node is tainted to be drained", nth: 1, object: nodeTainted},
		{name: "TerminateInstances has taken effect", nth: 1, call: controllerCall("TerminateInstances")},
	}
}

func controllerCall(action string) func(awsim.Call) bool {
	return func(c awsim.Call) bool {
		return c.Action == action && c.ErrorCode == "" && strings.Contains(c.Principal, "KarpenterControllerRole")
	}
}

func unschedulable(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// claimWithout matches a NodeClaim that does not have a condition yet.
func claimWithout(missing string) func(client.Object) bool { return claimBetween("", missing) }

// claimBetween matches a NodeClaim that has one condition (empty = any) but does not have the next yet.
func claimBetween(has, not string) func(client.Object) bool {
	return func(o client.Object) bool {
		claim, ok := o.(*karpv1.NodeClaim)
		return ok && claim.DeletionTimestamp == nil && (has == "" || condition.IsTrue(claim, has)) && !condition.IsTrue(claim, not)
	}
}

func nodeJoined(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && node.Labels[karpv1.LabelRegistered] == ""
}

func nodeTainted(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyDisrupted })
}

// killDuringScaleUp adds a wave of pods, kills the controller at one point, restarts it, and waits until all pods run.
func killDuringScaleUp(m killPoint, replicas int) Step {
	return Step{
		Name: fmt.Sprintf("scale to %d pods, kill the controller when %s: all run", replicas, m.name), Timeout: time.Minute,
		Run: func(ctx context.Context, w *World) error {
			killed := m.arm(w)
			defer killed.disarm()
			if err := w.Scale(ctx, spreadApp, int32(replicas)); err != nil {
				return err
			}
			if err := killed.wait(ctx); err != nil {
				return err
			}
			if err := w.StartController(ctx); err != nil {
				return err
			}
			if err := awaitPodsRunning(ctx, w, spreadApp, replicas); err != nil {
				return err
			}
			return errors.Join(awaitPaired(ctx, w), oneInstancePerClaim(w))
		},
	}
}

// killDuringScaleDown deletes all pods, and kills the controller at one point after another. It arms each point before
// the controller starts.
func killDuringScaleDown(moments []killPoint) Step {
	var names []string
	for _, m := range moments {
		names = append(names, m.name)
	}
	return Step{
		Name: "scale to 0, kill the controller when " + strings.Join(names, " and when "), Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			return killInTurn(ctx, w, moments, func() error { return w.Scale(ctx, spreadApp, 0) })
		},
	}
}

// killInTurn begins something, kills the controller at one point of it after another, and starts it again after each. It
// arms each point before the controller starts.
func killInTurn(ctx context.Context, w *World, moments []killPoint, begin func() error) error {
	for i, m := range moments {
		killed := m.arm(w)
		defer killed.disarm()
		if i == 0 {
			if err := begin(); err != nil {
				return err
			}
		} else if err := w.StartController(ctx); err != nil && !killed.fired() {
			return err
		}
		if err := killed.wait(ctx); err != nil {
			return err
		}
	}
	return w.StartController(ctx)
}

// armedKill kills the controller once, at its point.
type armedKill struct {
	point   killPoint
	disarm  func()
	done    chan struct{} // closed after the kill
	mu      sync.Mutex
	matched map[types.UID]bool // objects that counted
	count   int
	err     error // of the kill
}

// arm starts to watch for the point.
func (m killPoint) arm(w *World) *armedKill {
	t := &armedKill{point: m, done: make(chan struct{}), matched: map[types.UID]bool{}}
	if m.call != nil {
		w.Intercept(func(c awsim.Call) {
			if m.call(c) {
				t.hit(w)
			}
		})
		t.disarm = func() { w.Intercept(nil) }
		return t
	}
	t.disarm = w.History.Watch(func(o client.Object, gone bool) {
		if !gone && m.object(o) && t.firstMatch(o.GetUID()) {
			t.hit(w)
		}
	})
	return t
}

// firstMatch reports whether an object matches for the first time.
func (t *armedKill) firstMatch(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.matched[uid] {
		return false
	}
	t.matched[uid] = true
	return true
}

func (t *armedKill) hit(w *World) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.count == t.point.nth {
		t.err = w.KillController()
		close(t.done)
	}
}

// fired reports whether the point was reached.
func (t *armedKill) fired() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// wait waits until the controller was killed.
func (t *armedKill) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("the controller was not killed, since this did not happen: %s (%w)", t.point.name, context.Cause(ctx))
	}
}
