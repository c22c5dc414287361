package termination

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

// Evictor evicts pods from nodes, each with its own backoff: a pod that a PodDisruptionBudget protects does not delay
// the others.
type Evictor struct {
	Client  client.Client
	Guard   *destroy.Guard
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Workers counts how many evictions run at once.
	Workers int

	once     sync.Once
	queue    workqueue.TypedRateLimitingInterface[podKey]
	mu       sync.Mutex
	requests map[podKey]eviction
}

// The backoff of a pod's eviction. A PodDisruptionBudget may allow it as soon as a replacement is ready, which takes
// seconds; a budget that never does costs one call per maxBackoff.
const minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second

// podKey identifies a pod; the UID distinguishes pods that reuse a name.
type podKey struct {
	namespace, name string
	uid             types.UID
}

// Cause states why a pod has to leave its node.
type Cause struct {
	Reason string
	// Decision is the ID of the decision that removes the node; empty if it was no decision of ours.
	Decision string
	// Kind is the kind of the reason, Pool the node's NodePool.
	Kind destroy.Kind
	Pool string
	// Limited is true if pods stay while deletions of the pool are paused.
	Limited bool
}

func (c Cause) why() destroy.Why {
	return destroy.Why{Kind: c.Kind, Reason: c.Reason, Decision: c.Decision, Pool: c.Pool}
}

func (c Cause) String() string {
	if c.Decision == "" {
		return c.Reason
	}
	return c.Reason + ", decision " + c.Decision
}

// eviction states why, and until when, a pod has to leave.
type eviction struct {
	node     *corev1.Node
	cause    Cause
	deadline *time.Time
	// due is true once the pod's deadline requires its deletion instead of an eviction.
	due bool
	// until is the time when the pod may stay after all; nil if it must leave.
	until *time.Time
}

func (e *Evictor) init() {
	e.once.Do(func() {
		e.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](minBackoff, maxBackoff))
		e.requests = map[podKey]eviction{}
	})
}

// Start evicts the requested pods until ctx is canceled.
func (e *Evictor) Start(ctx context.Context) error {
	e.init()
	var wg sync.WaitGroup
	for range max(e.Workers, 1) {
		wg.Go(func() {
			for e.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	e.queue.ShutDown()
	wg.Wait()
	return nil
}

// NeedLeaderElection makes sure that only one replica evicts.
func (e *Evictor) NeedLeaderElection() bool { return true }

// Request requests the eviction of a pod from its node. A repeated request keeps the earlier deadline; no deadline is
// the latest. A pod that has become due since the last request skips its backoff.
func (e *Evictor) Request(pod *corev1.Pod, node *corev1.Node, cause Cause, deadline *time.Time) {
	e.init()
	key := podKey{pod.Namespace, pod.Name, pod.UID}
	e.mu.Lock()
	have, known := e.requests[key]
	if known && have.until == nil && (deadline == nil || have.deadline != nil && !deadline.Before(*have.deadline)) {
		deadline = have.deadline
		urgent := have.cause.Limited && !cause.Limited // EC2 takes the instance now: a pause holds the pod no more
		if !urgent && (have.due || !drain.Overdue(pod, deadline, e.Now())) {
			e.mu.Unlock()
			return
		}
	}
	e.requests[key] = eviction{node: node, cause: cause, deadline: deadline, due: drain.Overdue(pod, deadline, e.Now())}
	e.mu.Unlock()
	e.queue.Add(key)
}

// RequestUntil requests the eviction of a pod that may stay if it has not left by a time: nothing forces it out. A
// request that the pod must leave stands; of two such requests the earlier time holds.
func (e *Evictor) RequestUntil(pod *corev1.Pod, node *corev1.Node, reason string, until time.Time) {
	e.init()
	key := podKey{pod.Namespace, pod.Name, pod.UID}
	e.mu.Lock()
	if have, known := e.requests[key]; known && (have.until == nil || !until.Before(*have.until)) {
		e.mu.Unlock()
		return
	}
	cause := Cause{Reason: reason, Kind: destroy.Fault, Pool: node.Labels[karpv1.LabelNodePool], Limited: true}
	e.requests[key] = eviction{node: node, cause: cause, until: &until}
	e.mu.Unlock()
	e.queue.Add(key)
}

// Next returns the pods that leave a node before its reboot now, which are those of its current tier, and how many it still waits for.
func (e *Evictor) Next(pods []*corev1.Pod) (evict []*corev1.Pod, waiting int) {
	step := drain.Next(drain.Node{Pods: pods, Reboot: true}, e.Now())
	return step.Evict, len(step.Waits)
}

func (e *Evictor) work(ctx context.Context) bool {
	key, stop := e.queue.Get()
	if stop {
		return false
	}
	defer e.queue.Done(key)
	e.mu.Lock()
	request, wanted := e.requests[key]
	e.mu.Unlock()
	if wanted && !e.evictRecovered(ctx, key, request) && ctx.Err() == nil {
		e.queue.AddRateLimited(key)
		return true
	}
	e.queue.Forget(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	// A new request with an earlier deadline is already in the queue, and must stay in the map.
	if e.requests[key] == request {
		delete(e.requests, key)
	}
	return true
}

// evictRecovered is evict, repeated after a panic.
func (e *Evictor) evictRecovered(ctx context.Context, key podKey, request eviction) (done bool) {
	err := panics.ErrorLogged(e.Log, "eviction of pod "+key.namespace+"/"+key.name, func() error {
		done = e.evict(ctx, key, request)
		return nil
	})
	if err != nil {
		e.Metrics.RunnablePanics.WithLabelValues("evictor").Inc()
	}
	return done
}

// evict takes one pod one step further and reports whether nothing is left to do for it.
func (e *Evictor) evict(ctx context.Context, key podKey, request eviction) (done bool) {
	pod := &corev1.Pod{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: key.namespace, Name: key.name}, pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != key.uid {
		return true
	}
	if err != nil {
		return false
	}
	if request.cause.Limited && e.Guard.Budget.Paused(ctx, request.cause.Pool) != nil {
		return false
	}
	leave := drain.Request{Pod: pod, Deadline: request.deadline, Until: request.until}
	switch action, grace := leave.Next(e.Now()); action {
	case drain.Delete:
		return e.force(ctx, pod, request, grace)
	case drain.Keep:
		e.Events.Warn(request.node, "FailedDraining", "Failed to drain node, a pod may not be disrupted (Pod=%s/%s)", pod.Namespace, pod.Name)
		return false
	case drain.Evict:
		return e.callEviction(ctx, pod, request)
	default:
		return true
	}
}

// callEviction calls the eviction API, which refuses while a PodDisruptionBudget does not allow the eviction.
func (e *Evictor) callEviction(ctx context.Context, pod *corev1.Pod, request eviction) (done bool) {
	err := e.Guard.Evict(ctx, pod, request.cause.why())
	if err == nil {
		e.Metrics.Evictions.WithLabelValues("200").Inc()
		e.Metrics.PodsDrained.WithLabelValues(request.cause.Reason).Inc()
		e.Events.Normal(pod, "Evicted", "Evicted pod: %s", request.cause)
		return true
	}
	status := apierrors.APIStatus(nil)
	if s, ok := err.(apierrors.APIStatus); ok {
		status = s
		e.Metrics.Evictions.WithLabelValues(strconv.Itoa(int(s.Status().Code))).Inc()
	}
	switch {
	case apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err):
		return false // the pod has changed since it was read, or another has its name: the next attempt reads it
	case apierrors.IsTooManyRequests(err):
		e.Events.Warn(
			request.node,
			"FailedDraining",
			"Failed to drain node, evicting pod violates a PDB (Pod=%s/%s)",
			pod.Namespace,
			pod.Name,
		)
	case status != nil && status.Status().Code == http.StatusInternalServerError && strings.Contains(err.Error(),
		"more than one PodDisruptionBudget"):
		e.Events.Warn(
			request.node,
			"FailedDraining",
			"Failed to drain node, eviction does not support multiple PDBs (Pod=%s/%s)",
			pod.Namespace,
			pod.Name,
		)
	default:
		e.Log.Error("evicting pod", "namespace", pod.Namespace, "name", pod.Name, "error", err)
	}
	return false
}

// force deletes a pod at its deadline, with a grace period in seconds, despite PodDisruptionBudgets and do-not-disrupt.
func (e *Evictor) force(ctx context.Context, pod *corev1.Pod, request eviction, granted int64) (done bool) {
	own := "its default"
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		own = strconv.FormatInt(*s, 10)
	}
	e.Events.Normal(
		pod,
		"Disrupted",
		"Deleting the pod to accommodate the node's deadline %s: granted %d seconds of grace-period of its own %s; its PodDisruptionBudget and do-not-disrupt no longer count",
		request.deadline.Format(time.RFC3339),
		granted,
		own,
	)
	err := e.Guard.Pod(ctx, pod, granted, request.cause.why())
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	if err != nil {
		e.Log.Error("deleting pod", "namespace", pod.Namespace, "name", pod.Name, "error", err)
		return false
	}
	e.Log.Debug("deleting pod", "namespace", pod.Namespace, "name", pod.Name, "delete.gracePeriodSeconds", granted)
	e.Metrics.PodsDrained.WithLabelValues(request.cause.Reason).Inc()
	return true
}
