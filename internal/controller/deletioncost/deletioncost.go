// Package deletioncost writes the deletion costs of pods, so that a ReplicaSet that is scaled down removes the pods of
// the nodes that will be disrupted next. Package engine/deletioncost decides the values.
package deletioncost

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/deletioncost"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// Interval is the time between passes. It is Karpenter's.
	Interval = time.Minute
	// writers sets how many writes run at a time. The API client limits their rate.
	writers = 10
)

// clusterState takes snapshots.
type clusterState interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
}

// Loop keeps the deletion costs of pods up to date. The cluster holds all of its state, so it may stop at any time.
type Loop struct {
	Client client.Client
	State  clusterState
	// Enabled is the feature gate PodDeletionCostManagement. Without it the values that were written with it are removed.
	Enabled bool
	Metrics *Metrics
	Log     *slog.Logger
	// After is time.After, or its stand-in.
	After func(time.Duration) <-chan time.Time
}

// NeedLeaderElection makes sure that only one process writes.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start makes a pass each Interval until ctx is done; without the feature gate until nothing is left to remove.
func (l *Loop) Start(ctx context.Context) error {
	for {
		left, err := l.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !l.Enabled && err == nil && left == 0:
			return nil
		case !l.Enabled && apierrors.IsForbidden(err):
			l.Log.Warn("deletion costs of pods that the feature gate PodDeletionCostManagement has set stay, and have an effect when "+
				"ReplicaSets are scaled down: permit to patch pods once more (additionalClusterRoleRules of the chart), and restart",
				"pods", left, "error", err)
			return nil
		case err != nil:
			l.Log.Error("writing deletion costs of pods", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.After(Interval):
		}
	}
}

// pass writes what differs, and returns how many writes are left.
func (l *Loop) pass(ctx context.Context) (left int, err error) {
	snap, err := l.State.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	var ranking *deletioncost.Ranking
	if l.Enabled {
		v := disrupt.NewView(snap)
		r := deletioncost.Rank(v, deletioncost.Budgets{
			Drifted:       v.RemainingBudgets(disrupt.Allowances(snap, karpv1.DisruptionDrifted)),
			Underutilized: v.RemainingBudgets(disrupt.Allowances(snap, karpv1.DisruptionUnderutilized)),
		})
		ranking = &r
	}
	changes := deletioncost.Changes(snap.Nodes, ranking)
	pools := poolsByNode(snap)
	l.recordPending(pools, changes)
	left, err = l.write(ctx, changes)
	if left == 0 {
		l.recordPending(pools, nil)
	}
	return left, err
}

// write makes the changes and returns how many failed, and one of the errors. A pod that has changed or is gone is left
// to the next pass.
func (l *Loop) write(ctx context.Context, changes []deletioncost.Change) (failed int, err error) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(writers)
	for i := range changes {
		group.Go(func() error {
			one := ctx.Err()
			if one == nil {
				one = l.writeOne(ctx, &changes[i])
			}
			if one != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				err = one
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil
	return failed, err
}

func (l *Loop) writeOne(ctx context.Context, c *deletioncost.Change) error {
	pod := c.Pod.DeepCopy()
	if c.Value == nil {
		delete(pod.Annotations, corev1.PodDeletionCost)
		delete(pod.Annotations, karpv1.AnnotationOwnDeletionCost)
	} else {
		text := strconv.Itoa(int(*c.Value))
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, text)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, karpv1.AnnotationOwnDeletionCost, text)
	}
	err := l.Client.Patch(ctx, pod, client.MergeFromWithOptions(c.Pod, client.MergeFromWithOptimisticLock{}))
	result := resultUpdated
	switch {
	case apierrors.IsNotFound(err):
		result, err = resultNotFound, nil
	case apierrors.IsConflict(err):
		result, err = resultConflict, nil
	case err != nil:
		result, err = resultError, fmt.Errorf("deletion cost of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	l.Metrics.Writes.WithLabelValues(result).Inc()
	return err
}

// poolsByNode returns the pools of managed nodes by the nodes' names.
func poolsByNode(snap *snapshot.Snapshot) map[string]string {
	out := map[string]string{}
	for i := range snap.Nodes {
		if n := &snap.Nodes[i]; n.Pool != "" {
			out[n.Name] = n.Pool
		}
	}
	return out
}

// recordPending counts the nodes with pods that are to be written, by pool.
func (l *Loop) recordPending(pools map[string]string, changes []deletioncost.Change) {
	count := map[string]int{}
	for _, pool := range pools {
		count[pool] = 0
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if node := c.Pod.Spec.NodeName; !seen[node] && pools[node] != "" {
			seen[node] = true
			count[pools[node]]++
		}
	}
	l.Metrics.Pending.Reset()
	for pool, n := range count {
		l.Metrics.Pending.WithLabelValues(pool).Set(float64(n))
	}
}
