// Package consistency looks at whether nodes are what was promised: a node with much less of a resource than its
// NodeClaim expects makes plans that do not come true.
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
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

const (
	// checkEvery is how long a verdict stands.
	checkEvery = 10 * time.Minute
	// enough is the share of what is expected that a node must have.
	enough = 0.9
)

// Reconciler compares nodes with their NodeClaims.
type Reconciler struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time

	mu sync.Mutex
	// checked is when a claim was last looked at, by its name; its UID tells it from another of that name.
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
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient()))).
		Complete(patch.Retry(r))
}

// Reconcile looks at a claim's node, unless it has done so lately.
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
	if wait := r.wait(claim); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	if issues := shortfalls(claim, &nodes[0]); len(issues) > 0 {
		message := strings.Join(issues, ", ")
		r.Log.Info("failed consistency check", "NodeClaim", claim.Name, "Node", nodes[0].Name, "issues", message)
		for _, issue := range issues {
			r.Events.Warn(claim, "FailedConsistencyCheck", "%s", issue)
		}
		condition.SetFalse(claim, karpv1.ConditionConsistentStateFound, "ConsistencyCheckFailed", message, r.Now())
	} else {
		condition.SetTrue(claim, karpv1.ConditionConsistentStateFound, r.Now())
	}
	err = r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.note(claim)
	return reconcile.Result{RequeueAfter: checkEvery}, nil
}

// shortfalls name the resources of which a node has much less than its claim was promised. Only those count that the
// claim asked for.
func shortfalls(claim *karpv1.NodeClaim, node *corev1.Node) []string {
	var out []string
	for name, asked := range claim.Spec.Resources.Requests {
		expected, found := claim.Status.Capacity[name], node.Status.Capacity[name]
		if asked.IsZero() || expected.IsZero() {
			continue
		}
		share := found.AsApproximateFloat64() / expected.AsApproximateFloat64()
		if share < enough {
			out = append(out, fmt.Sprintf("expected %s of resource %s, but found %s (%.1f%% of expected)", expected.String(), name, found.String(), 100*share))
		}
	}
	slices.Sort(out)
	return out
}

// wait is for how long the last look at a claim still stands.
func (r *Reconciler) wait(claim *karpv1.NodeClaim) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.checked[claim.Name]
	if last.uid != claim.UID {
		return 0
	}
	return last.at.Add(checkEvery).Sub(r.Now())
}

func (r *Reconciler) note(claim *karpv1.NodeClaim) {
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
