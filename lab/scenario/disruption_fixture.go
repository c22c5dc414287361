package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// The workloads of manifests.DisruptionWorkload, by app.
const (
	frontApp = "front"
	storeApp = "store"
)

// Two releases of the nodes' AMI.
const (
	oldImage = "al2023@v20260610"
	newImage = "al2023@v20260715"
)

// disruptionFixture is what the disruption scenarios share: a NodePool of manifests.DisruptionPool, and on it the
// workloads of manifests.DisruptionWorkload.
type disruptionFixture struct {
	pool         map[string]string // variables of manifests.DisruptionPool
	front, store int               // replicas
	invariants   *invariants
}

// newDisruptionFixture starts with on-demand instances of 2 CPUs, a disruption budget of 10 %, and no pods.
func newDisruptionFixture() *disruptionFixture {
	return &disruptionFixture{
		pool: map[string]string{
			"AMI_ALIAS": newImage, "CPUS": `["2"]`, "CAPACITY_TYPE": "on-demand",
			"EXPIRE_AFTER": "Never", "CONSOLIDATE_AFTER": "1s", "BUDGET": "10%",
		},
		invariants: newInvariants(percentBudget(10)),
	}
}

// setUp starts the controller and creates the NodePool.
func (s *disruptionFixture) setUp() []Step {
	return []Step{
		{Name: "start the controller", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
			s.invariants.watch(w)
			w.RestartControllerOnExit() // on a busy host it may lose its lease, and exits
			return w.StartController(ctx)
		}},
		{
			Name:    "create NodePool and EC2NodeClass: both become Ready",
			Timeout: 20 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				if err := s.applyPool(ctx, w, nil); err != nil {
					return err
				}
				return awaitPoolReady(ctx, w)
			},
		},
	}
}

// applyPool changes these variables of the NodePool.
func (s *disruptionFixture) applyPool(ctx context.Context, w *World, change map[string]string) error {
	maps.Copy(s.pool, change)
	return apply(ctx, w, manifests.DisruptionPool, s.pool)
}

func (s *disruptionFixture) replicas() map[string]string {
	return map[string]string{"FRONT": strconv.Itoa(s.front), "STORE": strconv.Itoa(s.store)}
}

// scale scales the workloads and waits until their pods run. The invariants ignore the PodDisruptionBudgets meanwhile,
// and demand them from then on.
func (s *disruptionFixture) scale(ctx context.Context, w *World, front, store int) error {
	s.invariants.requireReady(frontApp, 0)
	s.invariants.requireReady(storeApp, 0)
	s.front, s.store = front, store
	if err := apply(ctx, w, manifests.DisruptionWorkload, s.replicas()); err != nil {
		return err
	}
	if err := s.awaitPods(ctx, w); err != nil {
		return err
	}
	tenth := percentBudget(10)
	s.invariants.requireReady(frontApp, front-tenth(front))
	s.invariants.requireReady(storeApp, store-tenth(store))
	return nil
}

// awaitPods waits until all pods run.
func (s *disruptionFixture) awaitPods(ctx context.Context, w *World) error {
	return errors.Join(awaitPodsRunning(ctx, w, frontApp, s.front), awaitPodsRunning(ctx, w, storeApp, s.store))
}

// fill is the step that launches at least that many nodes. Pods that arrive in several batches may take more.
func (s *disruptionFixture) fill(nodes, front, store int) Step {
	return Step{
		Name: fmt.Sprintf("scale to %d pods: all run, on at least %d nodes", front+store, nodes), Timeout: 5 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			if err := s.scale(ctx, w, front, store); err != nil {
				return err
			}
			if n := len(w.Running()); n < nodes {
				return fmt.Errorf("the cluster has %d nodes, want at least %d", n, nodes)
			}
			return noteCost(ctx, w)
		},
	}
}

// awaitHealthy waits until all pods run and instances and NodeClaims match, and checks the invariants.
func (s *disruptionFixture) awaitHealthy(ctx context.Context, w *World) error {
	return errors.Join(s.awaitPods(ctx, w), awaitPaired(ctx, w), s.invariants.check(w))
}

// tearDown is the last step. It deletes everything.
func (s *disruptionFixture) tearDown() Step {
	return Step{
		Name: "delete the workload, NodePool and EC2NodeClass: no node, instance or other resource is left", Timeout: 2 * time.Minute,
		PauseKills: true,
		Run: func(ctx context.Context, w *World) error {
			violations := s.invariants.check(w)
			s.invariants.lift()
			workload, err := render(w, manifests.DisruptionWorkload, s.replicas())
			if err != nil {
				return err
			}
			if err := w.Delete(ctx, workload); err != nil {
				return err
			}
			pool, err := render(w, manifests.DisruptionPool, s.pool)
			if err != nil {
				return err
			}
			if err := w.Delete(ctx, pool); err != nil {
				return err
			}
			return errors.Join(awaitNothingLeft(ctx, w), awaitEmpty(ctx, w, frontApp), violations)
		},
	}
}

// nodeClaimNames returns the names of all NodeClaims.
func nodeClaimNames(ctx context.Context, w *World) ([]string, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range claims.Items {
		names = append(names, c.Name)
	}
	return names, nil
}

// runningPodUIDs returns the pods of an app that run.
func runningPodUIDs(ctx context.Context, w *World, app string) (map[types.UID]bool, error) {
	all, err := pods(ctx, w, app)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]bool{}
	for _, p := range all {
		if running(p) {
			out[p.UID] = true
		}
	}
	return out, nil
}

// awaitEventMessage waits for an event on an object of a kind and returns its message. An empty name matches any
// object.
func awaitEventMessage(ctx context.Context, w *World, kind, name, reason string) (string, error) {
	return awaitMatchingEvent(ctx, w, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == kind && (name == "" || e.InvolvedObject.Name == name) && e.Reason == reason
	}, fmt.Sprintf("%s on %s %s", reason, kind, name))
}

// awaitMatchingEvent waits for an event and returns its message.
func awaitMatchingEvent(ctx context.Context, w *World, matches func(corev1.Event) bool, what string) (string, error) {
	message := ""
	err := world.Until(ctx, func() error {
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if matches(e) {
				message = e.Message
				return nil
			}
		}
		return fmt.Errorf("no event %s", what)
	})
	return message, err
}
