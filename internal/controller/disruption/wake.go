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

// gather is how long the loop waits after a change for others like it: what many nodes become together is better judged together.
const gather = time.Second

// Register adds the loop to mgr, and has changes of claims end its pauses.
func (l *Loop) Register(mgr manager.Manager) error {
	l.bell = make(chan struct{}, 1)
	claims, err := mgr.GetCache().GetInformer(context.Background(), &karpv1.NodeClaim{})
	if err != nil {
		return fmt.Errorf("watch node claims: %w", err)
	}
	if _, err := claims.AddEventHandler(l.bellRinger()); err != nil {
		return fmt.Errorf("watch node claims: %w", err)
	}
	return mgr.Add(l)
}

// bellRinger rings when a pass might find what the last one could not.
func (l *Loop) bellRinger() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if opens(before.(*karpv1.NodeClaim), after.(*karpv1.NodeClaim)) {
				l.ring()
			}
		},
		// A node that is gone is one less in the budgets.
		DeleteFunc: func(any) { l.ring() },
	}
}

// opens tells whether a change of a claim may let more nodes be ended: it has become a candidate, or is one to move pods to.
func opens(before, after *karpv1.NodeClaim) bool {
	for _, kind := range []string{karpv1.ConditionConsolidatable, karpv1.ConditionDrifted, karpv1.ConditionInitialized} {
		if condition.IsTrue(after, kind) && !condition.IsTrue(before, kind) {
			return true
		}
	}
	_, was := before.Annotations[karpv1.AnnotationDisruptionCommand]
	_, is := after.Annotations[karpv1.AnnotationDisruptionCommand]
	return was && !is
}

func (l *Loop) ring() {
	select {
	case l.bell <- struct{}{}:
	default: // it rings already
	}
}

// await waits for the next pass: for as long as there is a pause, or until the bell rings. One that took long is not followed
// sooner than after as long again, so that a large cluster in motion does not keep a whole core busy. It reports whether
// ctx goes on.
func (l *Loop) await(ctx context.Context, pause, took time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
		return true
	case <-l.bell:
	}
	gathered := time.NewTimer(max(gather, took))
	defer gathered.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
	case <-gathered.C:
	}
	return true
}
