package provisioning

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// retriggerInterval sets how often pods that still need capacity, or a node that is terminating, trigger another pass.
const retriggerInterval = 10 * time.Second

// podEvents reports the changes of pods: see cluster.CachedPods.
type podEvents interface {
	Watch(ctx context.Context, changed, deleted func(*corev1.Pod)) error
}

// PodTrigger opens a batch window for a pod that needs a node, and again while any does.
type PodTrigger struct {
	Pods  podEvents
	Batch *Batch
	// Decisions notes when pods are first seen to need a node; nil if nobody measures that.
	Decisions *podlatency.Decisions
	Log       *slog.Logger

	mu sync.Mutex
	// waiting are the pods that need a node.
	waiting map[types.UID]bool
}

// NeedLeaderElection makes sure that only the process that provisions triggers.
func (t *PodTrigger) NeedLeaderElection() bool { return true }

// Start triggers until ctx is done.
func (t *PodTrigger) Start(ctx context.Context) error {
	t.waiting = map[types.UID]bool{}
	stop := make(chan struct{})
	defer func() { <-stop }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(stop)
		wait.UntilWithContext(ctx, t.retrigger, retriggerInterval)
	}()
	const what = "trigger for a pod"
	return t.Pods.Watch(ctx, panics.EachLogged(t.Log, what, t.changed), panics.EachLogged(t.Log, what, t.deleted))
}

func (t *PodTrigger) changed(pod *corev1.Pod) {
	_, grouped := snapshot.PodGroupOf(pod)
	// A pass decides whether it needs a node. It reports why a group is held, too: kube-scheduler reports nothing of its pods.
	perhaps := snapshot.FailsToBind(pod) || snapshot.Nominated(pod) || grouped && snapshot.Arriving(pod)
	if !snapshot.Provisionable(pod) && !perhaps {
		t.deleted(pod)
		return
	}
	t.mu.Lock()
	first := !t.waiting[pod.UID] && !perhaps
	t.waiting[pod.UID] = true
	t.mu.Unlock()
	if t.Decisions != nil && !perhaps { // which remembers a pod that did not wait for a while, as it was about to preempt others
		first = t.Decisions.See(pod)
	}
	if first {
		t.Batch.TriggerFirst(pod.UID)
	} else {
		t.Batch.Retrigger(pod.UID)
	}
}

func (t *PodTrigger) deleted(pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, pod.UID)
	t.Batch.ended(pod.UID)
}

// retrigger opens a window if any pod waits: a pass plans all of them.
func (t *PodTrigger) retrigger(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.waiting {
		t.Batch.Retrigger(uid)
		return
	}
}

// ClaimTrigger opens a batch window when a node begins to terminate, since its pods will need other nodes.
type ClaimTrigger struct {
	Client client.Client
	Batch  *Batch
}

// Register adds the reconciler to mgr.
func (t *ClaimTrigger) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("provisioner.trigger.node").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Deleting())).
		Complete(t)
}

// Reconcile triggers for a claim that is being deleted.
func (t *ClaimTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &karpv1.NodeClaim{}
	if err := t.Client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	t.Batch.Trigger(claim.UID)
	return reconcile.Result{RequeueAfter: retriggerInterval}, nil
}
