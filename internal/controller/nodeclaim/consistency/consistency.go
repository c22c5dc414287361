// Package consistency compares the capacity and the devices of a node with those that its NodeClaim expects. Plans count
// on them: pods that are planned for a node with much less do not fit on it.
package consistency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

const (
	// checkInterval is the time between two checks of a node. Its capacity changes with a restart of the kubelet at most.
	checkInterval = 10 * time.Minute
	// minShare is the share of the expected capacity that a node must have: the estimate of a node's memory is off by some
	// percent. It is Karpenter's value.
	minShare = 0.9
)

// Reconciler compares nodes with their NodeClaims.
type Reconciler struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time
	// Devices are the devices that plans expect of a claim's node. Nil if resource claims are ignored.
	Devices func(context.Context, *karpv1.NodeClaim) ([]resourcev1.ResourceSliceSpec, error)

	mu sync.Mutex
	// checked holds the last check of each claim by name; the UID distinguishes claims that reuse a name.
	checked map[string]check
}

type check struct {
	uid types.UID
	at  time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.consistency").
		For(&karpv1.NodeClaim{}).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient())),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile checks the node of a claim, unless the last check is recent.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if claim == nil {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if claim.Status.ProviderID == "" || claim.DeletionTimestamp != nil || !condition.IsTrue(claim, karpv1.ConditionInitialized) {
		return reconcile.Result{}, nil
	}
	if wait := r.untilNextCheck(claim); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 {
		return reconcile.Result{}, err
	}
	missing, err := r.missingDevices(ctx, claim, nodes[0].Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	if issues := append(shortfalls(claim, &nodes[0]), missing...); len(issues) > 0 {
		message := strings.Join(issues, ", ")
		r.Log.Info("failed consistency check", "NodeClaim", claim.Name, "Node", nodes[0].Name, "issues", message)
		for _, issue := range issues {
			r.Events.Warn(claim, "FailedConsistencyCheck", "%s", issue)
		}
		condition.SetFalse(claim, karpv1.ConditionConsistentStateFound, condition.Because("ConsistencyCheckFailed", message), r.Now())
	} else {
		condition.SetTrue(claim, karpv1.ConditionConsistentStateFound, r.Now())
	}
	_, err = patch.StatusFrom(ctx, r.Client, before, claim)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.recordCheck(claim)
	return reconcile.Result{RequeueAfter: checkInterval}, nil
}

// Consistent reports whether a node is known to have what its claim expects. It is false for a claim that was launched for DRA drivers:
// only the Reconciler knows their devices.
func Consistent(claim *karpv1.NodeClaim, node *corev1.Node) bool {
	return len(karpv1.RequestedDRADrivers(claim)) == 0 && len(shortfalls(claim, node)) == 0
}

// shortfalls returns a message for each requested resource of which the node has much less than its claim expects.
func shortfalls(claim *karpv1.NodeClaim, node *corev1.Node) []string {
	var out []string
	for name, requested := range claim.Spec.Resources.Requests {
		expected, found := claim.Status.Capacity[name], node.Status.Capacity[name]
		if requested.IsZero() || expected.IsZero() || found.IsZero() && servedByDRA(claim, name) {
			continue
		}
		share := found.AsApproximateFloat64() / expected.AsApproximateFloat64()
		if share < minShare {
			out = append(
				out,
				fmt.Sprintf("expected %s of resource %s, but found %s (%.1f%% of expected)", expected.String(), name, found.String(), 100*share),
			)
		}
	}
	slices.Sort(out)
	return out
}

// servedByDRA reports whether devices that the claim was launched for may serve the resource: no device plugin reports it then, and the
// devices are checked by themselves.
func servedByDRA(claim *karpv1.NodeClaim, name corev1.ResourceName) bool {
	return len(karpv1.RequestedDRADrivers(claim)) > 0 && strings.Contains(string(name), "/")
}

// untilNextCheck returns the time until the next check of a claim is due.
func (r *Reconciler) untilNextCheck(claim *karpv1.NodeClaim) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.checked[claim.Name]
	if last.uid != claim.UID {
		return 0
	}
	return last.at.Add(checkInterval).Sub(r.Now())
}

func (r *Reconciler) recordCheck(claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checked == nil {
		r.checked = map[string]check{}
	}
	r.checked[claim.Name] = check{uid: claim.UID, at: r.Now()}
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.checked, name)
}
