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
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Evictor drives pods off nodes, each at its own pace: a pod that its budget holds back is tried again with
// growing delay, and does not delay the others.
type Evictor struct {
	Client  client.Client
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Workers is how many evictions run at once.
	Workers int

	once  sync.Once
	queue workqueue.TypedRateLimitingInterface[podKey]
	mu    sync.Mutex
	asked map[podKey]eviction
}

// podKey tells a pod from its namesake that came after it.
type podKey struct {
	namespace, name string
	uid             types.UID
}

// eviction is why, and until when, a pod has to leave.
type eviction struct {
	node     *corev1.Node
	reason   string
	deadline *time.Time
	// due is true once the pod's time has come: it is not asked any more then, but deleted.
	due bool
}

func (e *Evictor) init() {
	e.once.Do(func() {
		e.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](100*time.Millisecond, 10*time.Second))
		e.asked = map[podKey]eviction{}
	})
}

// Start evicts what Ask asks for, until ctx ends.
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

// NeedLeaderElection makes sure that only one process evicts.
func (e *Evictor) NeedLeaderElection() bool { return true }

// Ask wants pod off its node. Asked again it keeps the earlier deadline; none is later than any. A pod whose time has come
// meanwhile does not wait until it would have been tried again.
func (e *Evictor) Ask(pod *corev1.Pod, node *corev1.Node, reason string, deadline *time.Time) {
	e.init()
	key := podKey{pod.Namespace, pod.Name, pod.UID}
	e.mu.Lock()
	have, known := e.asked[key]
	if known && (deadline == nil || have.deadline != nil && !deadline.Before(*have.deadline)) {
		deadline = have.deadline
		if have.due || !overdue(pod, deadline, e.Now()) {
			e.mu.Unlock()
			return
		}
	}
	e.asked[key] = eviction{node: node, reason: reason, deadline: deadline, due: overdue(pod, deadline, e.Now())}
	e.mu.Unlock()
	e.queue.Add(key)
}

func (e *Evictor) work(ctx context.Context) bool {
	key, stop := e.queue.Get()
	if stop {
		return false
	}
	defer e.queue.Done(key)
	e.mu.Lock()
	ask, wanted := e.asked[key]
	e.mu.Unlock()
	if wanted && !e.survive(ctx, key, ask) && ctx.Err() == nil {
		e.queue.AddRateLimited(key)
		return true
	}
	e.queue.Forget(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	// An earlier deadline that was asked for meanwhile is in the queue again, and keeps its place here.
	if e.asked[key] == ask {
		delete(e.asked, key)
	}
	return true
}

// survive is evict, which is tried again where it panics.
func (e *Evictor) survive(ctx context.Context, key podKey, ask eviction) (done bool) {
	err := panics.Logged(e.Log, "eviction of pod "+key.namespace+"/"+key.name, func() error {
		done = e.evict(ctx, key, ask)
		return nil
	})
	if err != nil {
		e.Metrics.RunnablePanics.WithLabelValues("evictor").Inc()
	}
	return done
}

// evict takes one pod one step further and reports whether nothing is left to do for it.
func (e *Evictor) evict(ctx context.Context, key podKey, ask eviction) (done bool) {
	pod := &corev1.Pod{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: key.namespace, Name: key.name}, pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != key.uid {
		return true
	}
	if err != nil {
		return false
	}
	now := e.Now()
	switch {
	case overdue(pod, ask.deadline, now):
		return e.force(ctx, pod, ask, now)
	case !snapshot.Active(pod):
		return true
	case !snapshot.Evictable(pod, now):
		e.Events.Warn(ask.node, "FailedDraining", "Failed to drain node, a pod may not be disrupted (Pod=%s/%s)", pod.Namespace, pod.Name)
		return false
	}
	return e.call(ctx, pod, ask)
}

// call asks the API server to evict; it says no while a budget stands against it.
func (e *Evictor) call(ctx context.Context, pod *corev1.Pod, ask eviction) (done bool) {
	err := e.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if err == nil {
		e.Metrics.Evictions.WithLabelValues("200").Inc()
		e.Metrics.PodsDrained.WithLabelValues(ask.reason).Inc()
		e.Events.Normal(pod, "Evicted", "Evicted pod: %s", ask.reason)
		return true
	}
	status := apierrors.APIStatus(nil)
	if s, ok := err.(apierrors.APIStatus); ok {
		status = s
		e.Metrics.Evictions.WithLabelValues(strconv.Itoa(int(s.Status().Code))).Inc()
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true
	case apierrors.IsTooManyRequests(err):
		e.Events.Warn(ask.node, "FailedDraining", "Failed to drain node, evicting pod violates a PDB (Pod=%s/%s)", pod.Namespace, pod.Name)
	case status != nil && status.Status().Code == http.StatusInternalServerError && strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
		e.Events.Warn(ask.node, "FailedDraining", "Failed to drain node, eviction does not support multiple PDBs (Pod=%s/%s)", pod.Namespace, pod.Name)
	default:
		e.Log.Error("evicting pod", "namespace", pod.Namespace, "name", pod.Name, "error", err)
	}
	return false
}

// force deletes a pod whose time has run out, past budgets and do-not-disrupt.
func (e *Evictor) force(ctx context.Context, pod *corev1.Pod, ask eviction, now time.Time) (done bool) {
	granted := grantedSeconds(*ask.deadline, now)
	if had := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && had != nil && *had <= granted {
		return true // it has no more than that already; its kubelet is slow to say that it is gone, or will not say it any more
	}
	own := "its default"
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		own = strconv.FormatInt(*s, 10)
	}
	e.Events.Normal(pod, "Disrupted",
		"Deleting the pod to accommodate the node's deadline %s: granted %d seconds of grace-period of its own %s; its PodDisruptionBudget and do-not-disrupt no longer count",
		ask.deadline.Format(time.RFC3339), granted, own)
	err := e.Client.Delete(ctx, pod, client.GracePeriodSeconds(granted), client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	if err != nil {
		e.Log.Error("deleting pod", "namespace", pod.Namespace, "name", pod.Name, "error", err)
		return false
	}
	e.Log.Debug("deleting pod", "namespace", pod.Namespace, "name", pod.Name, "delete.gracePeriodSeconds", granted)
	e.Metrics.PodsDrained.WithLabelValues(ask.reason).Inc()
	return true
}
