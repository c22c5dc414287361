package cluster

import (
	"context"
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

// PoolNodes returns the nodes of a pool with their pods, including claims that have no instance yet.
func (s *State) PoolNodes(ctx context.Context, pool string) ([]snapshot.Node, error) {
	if !s.Primed() {
		if err := s.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	objects, facts := &Objects{}, s.facts()
	for _, step := range []func(context.Context, *Objects) error{s.readNodes, s.readPods} {
		if err := step(ctx, objects); err != nil {
			return nil, fmt.Errorf("read the nodes of node pool %q: %w", pool, err)
		}
	}
	s.addMarks(&facts)
	w := &snapshotBuilder{Objects: *objects, facts: facts, snap: &snapshot.Snapshot{Now: facts.Now}}
	w.addNodes()
	w.addPods()
	return slices.DeleteFunc(w.snap.Nodes, func(n snapshot.Node) bool { return n.Claim == "" || n.Pool != pool }), nil
}

// Reserve reserves node slots under the pool's limit for up to want claims, and returns how many it got. The caller
// releases each slot once its claim has been created, or could not be.
//
// Invariant: the sum of nodes and reservations never exceeds the limit. Reservations are serialized, and each reads the
// reserved slots before it counts the nodes, so that a claim created in between is counted in at least one of the two.
func (s *State) Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error) {
	s.reservationMu.Lock()
	defer s.reservationMu.Unlock()
	held := s.addReserved(pool.Name, 0)
	nodes, err := s.PoolNodes(ctx, pool.Name)
	if err != nil {
		return 0, err
	}
	granted := static.WithinLimit(static.Limit(pool), static.Count(nodes).All(), held, want)
	s.addReserved(pool.Name, granted)
	return granted, nil
}

// Release releases one reserved slot of the pool. It does nothing if none is reserved.
func (s *State) Release(pool string) { s.addReserved(pool, -1) }

// addReserved changes the pool's reserved slots by more and returns the new number.
func (s *State) addReserved(pool string, more int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := max(0, s.reserved[pool]+more)
	if held == 0 {
		delete(s.reserved, pool)
		return 0
	}
	s.reserved[pool] = held
	return held
}
