// Package disrupt gives back nodes that are no longer worth their price, as far as the budgets of their
// pools allow. What to end is the engine's decision; this package makes sure that it still holds, and acts.
package disrupt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metric"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// idle is the pause after a pass that found nothing.
	idle = 10 * time.Second
	// SettleTime is how long a decision must hold before it is acted upon.
	SettleTime = 15 * time.Second
)

// world cuts snapshots, and is told at once what the loop has condemned.
type world interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	Condemn(uid types.UID)
	Spare(uid types.UID)
}

// Loop ends empty nodes.
type Loop struct {
	Client client.Client
	// Live reads the API server itself: the last look before a node is ended must not be an old one.
	Live    client.Reader
	State   world
	Events  *event.Recorder
	Metrics *metric.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Settle is SettleTime in production.
	Settle time.Duration
}

// NeedLeaderElection makes sure that only one process disrupts.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs passes until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for {
		acted, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("disrupting nodes", "error", err)
		}
		wait := idle
		if acted {
			wait = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// pass decides, waits, decides again, and acts on what was decided both times.
func (l *Loop) pass(ctx context.Context) (acted bool, err error) {
	snap, err := l.State.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	if err := l.reopen(ctx, snap); err != nil {
		return false, err
	}
	first := disrupt.Empty(snap)
	l.tell(first)
	if len(first.Nodes) == 0 {
		return false, nil
	}
	select {
	case <-ctx.Done():
		return false, nil
	case <-time.After(l.Settle):
	}
	if snap, err = l.State.Snapshot(ctx); err != nil {
		return false, err
	}
	second := disrupt.Empty(snap)
	nodes := slices.DeleteFunc(slices.Clone(first.Nodes), func(n *snapshot.Node) bool {
		return !slices.ContainsFunc(second.Nodes, func(m *snapshot.Node) bool { return m.ClaimUID == n.ClaimUID })
	})
	if len(nodes) == 0 {
		return false, nil
	}
	return true, l.end(ctx, nodes)
}

// tell records what the decision means for people: blocked nodes and pools, and the gauges.
func (l *Loop) tell(d disrupt.Decision) {
	l.Metrics.EligibleNodes.WithLabelValues("empty").Set(float64(d.Eligible))
	for _, b := range d.Budgets {
		l.Metrics.AllowedDisruptions.WithLabelValues(b.Pool.Name, string(karpv1.DisruptionEmpty)).Set(float64(b.Allowed))
		if b.Nodes > 0 && b.Allowed == 0 {
			l.Events.Normal(b.Pool, "DisruptionBlocked", "No allowed disruptions for disruption reason %s due to blocking budget", karpv1.DisruptionEmpty)
		}
	}
	for _, k := range d.Blocked() {
		if k.Node.Registered && k.Reason != disrupt.Deleting {
			ref := &corev1.Node{}
			ref.Name, ref.UID = k.Node.Name, types.UID(k.Node.Name)
			l.Events.Normal(ref, "DisruptionBlocked", "%s", upperFirst(k.Message))
		}
	}
}

// end closes the nodes to new pods, looks for the last time whether one has slipped in, and deletes the claims
// of those that are still empty.
func (l *Loop) end(ctx context.Context, nodes []*snapshot.Node) error {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	l.Log.Info("disrupting node(s)", "command", "delete: ["+strings.Join(names, ", ")+"]", "decision", "delete", "reason", "empty",
		"disrupted-node-count", len(nodes), "replacement-node-count", 0)
	l.Metrics.Decisions.WithLabelValues("delete", "empty", "empty").Inc()
	var errs []error
	for _, n := range nodes {
		if err := l.endOne(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("end empty node %q: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Loop) endOne(ctx context.Context, n *snapshot.Node) error {
	node := &corev1.Node{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := setTaint(ctx, l.Client, node, true /* present */); err != nil {
		return client.IgnoreNotFound(err)
	}
	busy, err := l.busy(ctx, node)
	if busy || err != nil {
		return errors.Join(err, setTaint(ctx, l.Client, node, false /* present */))
	}
	claim := &karpv1.NodeClaim{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Claim}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := claim.DeepCopy()
	if condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, string(karpv1.DisruptionEmpty), string(karpv1.DisruptionEmpty), l.Now()) {
		if err := l.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	l.State.Condemn(claim.UID)
	if err := l.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil {
		l.State.Spare(claim.UID)
		return client.IgnoreNotFound(err)
	}
	l.Events.Normal(node, "DisruptionTerminating", "Disrupting Node: %s", karpv1.DisruptionEmpty)
	l.Events.Normal(claim, "DisruptionTerminating", "Disrupting NodeClaim: %s", karpv1.DisruptionEmpty)
	l.Metrics.Disrupted(claim, "empty")
	return nil
}

// busy asks the API server whether a pod that would have to move has been bound to the node after all.
func (l *Loop) busy(ctx context.Context, node *corev1.Node) (bool, error) {
	var pods corev1.PodList
	if err := l.Live.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node.Name)}); err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return disrupt.Load(&p) }), nil
}

// reopen takes the taint off nodes that nobody is ending: a controller that was stopped in the middle of a
// disruption leaves them closed.
func (l *Loop) reopen(ctx context.Context, snap *snapshot.Snapshot) error {
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Claim == "" || !n.Registered || n.Deleting || !slices.ContainsFunc(n.Taints, disrupted) {
			continue
		}
		node := &corev1.Node{}
		if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return err
		}
		if node.DeletionTimestamp != nil {
			continue
		}
		// The taint goes last: as long as it is there, the next pass comes here again.
		if err := l.clearReason(ctx, n.Claim); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := setTaint(ctx, l.Client, node, false /* present */); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) clearReason(ctx context.Context, name string) error {
	claim := &karpv1.NodeClaim{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return err
	}
	before := claim.DeepCopy()
	if !condition.Clear(claim, karpv1.ConditionDisruptionReason, l.Now()) {
		return nil
	}
	return l.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// setTaint puts the disrupted taint on the node, or takes it off, unless the node has changed since it was read.
func setTaint(ctx context.Context, c client.Client, node *corev1.Node, present bool) error {
	if slices.ContainsFunc(node.Spec.Taints, disrupted) == present {
		return nil
	}
	before := node.DeepCopy()
	if present {
		node.Spec.Taints = append(node.Spec.Taints, karpv1.TaintDisrupted())
	} else {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, disrupted)
	}
	return c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func disrupted(t corev1.Taint) bool {
	d := karpv1.TaintDisrupted()
	return t.MatchTaint(&d)
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
