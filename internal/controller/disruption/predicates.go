package disruption

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// gatherWindow is how long the loop waits after a change for further ones: nodes that become candidates together are
// better evaluated in one pass.
const gatherWindow = time.Second

// Register adds the loop to mgr. Changes of claims end its pauses.
func (l *Loop) Register(mgr manager.Manager) error {
	l.wake = make(chan struct{}, 1)
	claims, err := mgr.GetCache().GetInformer(context.Background(), &karpv1.NodeClaim{})
	if err != nil {
		return fmt.Errorf("watch node claims: %w", err)
	}
	if _, err := claims.AddEventHandler(l.eventHandler()); err != nil {
		return fmt.Errorf("watch node claims: %w", err)
	}
	return mgr.Add(l)
}

// eventHandler wakes the loop when a pass may find commands that the last one could not.
func (l *Loop) eventHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if enablesDisruption(before.(*karpv1.NodeClaim), after.(*karpv1.NodeClaim)) {
				l.signal()
			}
		},
		// A deleted node no longer counts against the budgets.
		DeleteFunc: func(any) { l.signal() },
	}
}

// enablesDisruption reports whether a change of a claim may allow more disruptions: it has become a candidate, or a
// node that pods can move to.
func enablesDisruption(before, after *karpv1.NodeClaim) bool {
	for _, typ := range []string{karpv1.ConditionConsolidatable, karpv1.ConditionDrifted, karpv1.ConditionInitialized} {
		if condition.IsTrue(after, typ) && !condition.IsTrue(before, typ) {
			return true
		}
	}
	_, was := before.Annotations[karpv1.AnnotationDisruptionCommand]
	_, is := after.Annotations[karpv1.AnnotationDisruptionCommand]
	return was && !is
}

func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // already signaled
	}
}

// waitForNextPass waits until the pause is over or a change wakes the loop. After a change it waits at least as long as
// the last pass took, so that a large cluster in motion does not keep a whole core busy. It returns false when ctx is
// done.
func (l *Loop) waitForNextPass(ctx context.Context, pause, took time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
		return true
	case <-l.wake:
	}
	gathered := time.NewTimer(max(gatherWindow, took))
	defer gathered.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
	case <-gathered.C:
	}
	return true
}
