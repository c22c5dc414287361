package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// undisturbed watches, while controllers change, that nothing happens to what was there before: no pod restarts or goes away, no
// node is tainted or deleted, no NodeClaim is marked as drifted or deleted, and no instance is terminated.
type undisturbed struct {
	app string

	mu         sync.Mutex
	pods       map[types.UID]bool // those that ran when the watch began
	others     map[types.UID]bool // Nodes and NodeClaims that were there then
	violations map[string]bool
	stop       []func()
}

// watchUndisturbed begins to watch the running pods of an app, and all nodes.
func watchUndisturbed(ctx context.Context, w *World, app string) (*undisturbed, error) {
	u := &undisturbed{app: app, pods: map[types.UID]bool{}, others: map[types.UID]bool{}, violations: map[string]bool{}}
	all, err := pods(ctx, w, app)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if running(p) {
			u.pods[p.UID] = true
		}
	}
	if len(u.pods) == 0 {
		return nil, fmt.Errorf("no pod of %s runs, so the watch would prove nothing", app)
	}
	if err := u.remember(ctx, w); err != nil {
		return nil, err
	}
	instances := map[string]bool{}
	for _, i := range w.Instances() {
		instances[i.ID] = true
	}
	before := len(w.AWS.Calls())
	u.stop = append(u.stop, w.History.Watch(u.observe), func() {
		for _, c := range w.AWS.Calls()[before:] {
			if c.Action != "TerminateInstances" || c.ErrorCode != "" {
				continue
			}
			for _, id := range c.Resources {
				if instances[id] {
					u.note("instance %s was terminated", id)
				}
			}
		}
	})
	return u, nil
}

// remember notes which Nodes and NodeClaims there are. A NodeClaim that has no instance yet is not among them: a pass before its launch may
// plan another node for its pod, and the one that the pod does not come to is removed.
func (u *undisturbed) remember(ctx context.Context, w *World) error {
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	if err := errors.Join(w.Client.List(ctx, &nodes), w.Client.List(ctx, &claims)); err != nil {
		return err
	}
	for i := range nodes.Items {
		u.others[nodes.Items[i].UID] = true
	}
	for i := range claims.Items {
		if claims.Items[i].Status.ProviderID != "" {
			u.others[claims.Items[i].UID] = true
		}
	}
	return nil
}

func (u *undisturbed) note(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.violations[fmt.Sprintf(format, args...)] = true
}

func (u *undisturbed) observe(o client.Object, gone bool) {
	switch o := o.(type) {
	case *corev1.Pod:
		if !u.pods[o.UID] {
			return
		}
		if gone || o.DeletionTimestamp != nil {
			u.note("pod %s is deleted", o.Name)
		}
		for _, c := range o.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				u.note("container %s of pod %s restarted", c.Name, o.Name)
			}
		}
	case *corev1.Node:
		if !u.others[o.UID] {
			return
		}
		if gone || o.DeletionTimestamp != nil {
			u.note("Node %s is deleted", o.Name)
		}
		if hasTaint(o, karpv1.TaintKeyDisrupted) {
			u.note("Node %s got the taint %s", o.Name, karpv1.TaintKeyDisrupted)
		}
	case *karpv1.NodeClaim:
		if !u.others[o.UID] {
			return
		}
		if gone || o.DeletionTimestamp != nil {
			u.note("NodeClaim %s is deleted", o.Name)
		}
		for _, condition := range []string{karpv1.ConditionDrifted, karpv1.ConditionDisruptionReason} {
			if c := meta.FindStatusCondition(o.Status.Conditions, condition); c != nil && c.Status == "True" {
				u.note("NodeClaim %s got the condition %s: %s", o.Name, condition, c.Reason)
			}
		}
	}
}

// end stops the watch, and returns what was disturbed.
func (u *undisturbed) end(ctx context.Context, w *World) error {
	for _, stop := range u.stop {
		stop()
	}
	all, err := pods(ctx, w, u.app)
	if err != nil {
		return err
	}
	left := 0
	for _, p := range all {
		if u.pods[p.UID] && running(p) {
			left++
		}
	}
	if left < len(u.pods) {
		u.note("only %d of %d pods of %s still run", left, len(u.pods), u.app)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.violations) > 0 {
		var all []string
		for v := range u.violations {
			all = append(all, v)
		}
		slices.Sort(all)
		return errors.New(strings.Join(all, "; "))
	}
	w.Note("%d pods ran on: 0 restarts, 0 terminations, 0 drift marks", left)
	return nil
}
