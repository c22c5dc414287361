package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podEventDedupe is the window in which a second pod event on a node is not written. It is shorter than ValidationDelay, so
// that an event while a command waits for its validation is always noticed.
const podEventDedupe = 10 * time.Second

// PodEvents records on a NodeClaim when a pod last came to its node or left it. The time is the pod's own, not the
// clock's: a restart of the controller, which sees every pod again, changes nothing.
type PodEvents struct {
	Client client.Client
}

// Register adds the reconciler to mgr. Requests name nodes: after a start there is one for each node, and not one for each pod.
func (r *PodEvents) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("nodeclaim.podevents").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Complete(patch.RequeueOnConflict(r))
}

// nodeOfPod is the node of a pod that counts as an event.
func nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	pod := o.(*corev1.Pod)
	if pod.Spec.NodeName == "" || snapshot.DaemonOwned(pod) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
}

// Reconcile advances lastPodEventTime of a node if one of its pods has a later event.
func (r *PodEvents) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	claims, err := cluster.ClaimsOf(ctx, r.Client, node.Spec.ProviderID)
	if err != nil || len(claims) != 1 || !awsv1.IsEC2NodeClass(claims[0].Spec.NodeClassRef) {
		return reconcile.Result{}, err
	}
	pods, err := cluster.SharedPodsOn(ctx, r.Client, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	last := cluster.LastPodEvent(pods)
	switch {
	case last.IsZero():
		return reconcile.Result{}, nil
	case condition.IsUnknown(&claims[0], karpv1.ConditionInitialized):
		// Initialization writes the time together with the condition, without which nothing reads it. A pod that comes in between is
		// written then.
		return reconcile.Result{RequeueAfter: podEventDedupe}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.updateLastPodEvent(ctx, &claims[0], last))
}

func (r *PodEvents) updateLastPodEvent(ctx context.Context, claim *karpv1.NodeClaim, at time.Time) error {
	if last := claim.Status.LastPodEventTime; !last.IsZero() && at.Sub(last.Time) < podEventDedupe {
		return nil
	}
	_, err := patch.Status(ctx, r.Client, claim, func() { claim.Status.LastPodEventTime = metav1.Time{Time: at} })
	return err
}
