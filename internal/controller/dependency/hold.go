package dependency

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Hold returns a loop that begins once launches need wait for nothing anymore. It is for loops that plan, and for those that can do
// nothing but call the cloud.
func (s *Set) Hold(loop manager.Runnable) manager.Runnable {
	return &held{Runnable: loop, allowed: s.allowed}
}

// HoldUntilRead returns a loop that begins once launches need wait for nothing anymore, and no earlier answer stands in: it is for loops
// that delete nodes.
func (s *Set) HoldUntilRead(loop manager.Runnable) manager.Runnable {
	return &held{Runnable: loop, allowed: s.read}
}

type held struct {
	manager.Runnable
	allowed <-chan struct{}
}

// NeedLeaderElection is that of the loop. A loop without the method runs on the leader only, the manager's default.
func (h *held) NeedLeaderElection() bool {
	if l, ok := h.Runnable.(manager.LeaderElectionRunnable); ok {
		return l.NeedLeaderElection()
	}
	return true
}

// Start runs the loop as soon as it may begin.
func (h *held) Start(ctx context.Context) error {
	select {
	case <-h.allowed:
		return h.Runnable.Start(ctx)
	case <-ctx.Done():
		return nil
	}
}
